// The n-gram automaton: a deterministic acceptor with failure arcs, as flat arrays.
//
// State 0 is the root, with an arc for every token. Any other state is a context; its arcs are sorted by
// token, and its failure arc leads to the next shorter context, which has a smaller number. Costs are
// negated natural logarithms. The arrays may come from a file that nobody has checked, so every index
// read from them is compared with its bound before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace rescore {

constexpr uint32_t kRoot = 0;

class CorruptModel : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Step {
  uint32_t next;
  double cost;
};

class Automaton {
 public:
  const uint64_t* arc_begin = nullptr;  // [num_states + 1]
  const uint16_t* token16 = nullptr;    // [num_arcs], or null: then token32 holds them
  const uint32_t* token32 = nullptr;
  const float* arc_cost = nullptr;           // [num_arcs]
  const uint32_t* arc_next = nullptr;        // [num_arcs]
  const uint32_t* backoff_state = nullptr;   // [num_states]
  const float* backoff_cost = nullptr;       // [num_states]
  uint64_t num_states = 0;
  uint64_t num_arcs = 0;
  uint32_t vocab_size = 0;
  uint32_t order = 0;

  // The constant-time facts on which everything below relies.
  void check_header() const;
  // Every array, wholly; O(num_arcs + num_states).
  void check() const;

  uint32_t token(uint64_t arc) const { return token16 ? token16[arc] : token32[arc]; }

  uint32_t checked_token(uint64_t arc) const {
    const uint32_t found = token(arc);
    if (found >= vocab_size) corrupt("arc_token", arc);
    return found;
  }

  struct Arcs {
    uint64_t begin, end;
  };
  Arcs arcs(uint32_t state) const {
    const Arcs found{arc_begin[state], arc_begin[state + 1]};
    if (found.begin > found.end || found.end > num_arcs) corrupt("arc_begin", state);
    return found;
  }
  uint32_t backoff(uint32_t state) const {
    const uint32_t shorter = backoff_state[state];
    if (shorter >= state) corrupt("backoff_state", state);
    return shorter;
  }
  uint32_t next(uint64_t arc) const {
    const uint32_t state = arc_next[arc];
    if (state >= num_states) corrupt("arc_next", arc);
    return state;
  }

  // Whether `token` has an arc in `state` itself.
  bool has_arc(uint32_t state, uint32_t token) const;

  // The cost of `token` in `state` and the state that it leads to. Precondition: token < vocab_size.
  Step step(uint32_t state, uint32_t token) const;

  // The longest suffix of the history that is a state. Tokens outside the vocabulary are an error.
  uint32_t start(const int32_t* history, size_t length) const;

  // For the tokens of `wanted` (a bit each) that have an arc in `state` itself: next[i] and
  // cost[i] = paid + arc cost are set. Returns their bits. `tokens` ascend.
  uint64_t match_arcs(uint32_t state, const uint32_t* tokens, uint64_t wanted, double paid, uint32_t* next,
                      double* cost) const;

  // The same under failure semantics: each of the `count` tokens gets its cost and next state.
  void match(uint32_t state, const uint32_t* tokens, int count, uint32_t* next, double* cost) const;

  // The costs [vocab_size] of all tokens in `state`.
  void distribution(uint32_t state, float* cost) const;

  // Tokens by ascending unigram cost, ties by token; made once, when first asked for.
  const std::vector<uint32_t>& by_unigram_cost() const;

 private:
  [[noreturn]] void corrupt(const char* array, uint64_t index) const;

  mutable std::once_flag unigram_once_;
  mutable std::vector<uint32_t> unigram_order_;
};

}  // namespace rescore
