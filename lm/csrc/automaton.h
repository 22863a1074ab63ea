// The n-gram automaton: a deterministic acceptor with failure arcs, over the compact arrays of an `.ngram` file.
//
// State 0 is the root, with an arc for every token. Any other state is a context; states are numbered by the length of
// their context, then by the context read backwards. All suffixes of a state's context are states, so the failure arc
// of a state of length l leads to one of length l - 1. Arcs are stored state by state, ascending by token; costs are
// negated natural logarithms. lm/ngram-format.md describes the arrays.
//
// The arrays may come from an unverified file: every index read from them is checked against its bound before it is
// used.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "arc_records.h"
#include "bits.h"
#include "context_blocks.h"
#include "dense_lists.h"
#include "elias_fano.h"
#include "list_match.h"
#include "order.h"

namespace rescore {

constexpr uint32_t kRoot = 0;

template <typename T>
struct Span {
  const T* data = nullptr;
  uint64_t size = 0;
};

// One row of `sizes` for each order n.
struct Sizes {
  uint64_t arcs;                    // of order n
  uint64_t arc_bytes, arc_entries;  // of their costs, and of the codebook of these
  uint64_t states;                  // of length n - 1
  uint64_t backoff_bytes, backoff_entries;
};

// The arrays of the file. Root arcs are in root_cost and first_state only.
struct Sections {
  Span<Sizes> sizes;        // [order]
  Span<float> root_cost;    // [vocab_size]
  Span<uint8_t> arc_token;  // 2 or 3 bytes for each arc but the root's
  Span<uint8_t> arcs;       // records of orders 2, 3, ..
  Span<float> arc_book;
  Span<uint8_t> contexts;  // blocks of lengths 1, 2, ..
  Span<float> backoff_book;
  Span<uint32_t> wide;
  Span<uint32_t> first_state;  // [order - 1, vocab_size + 1]
  Span<uint32_t> jumps;
  Span<uint64_t> backoff_state;  // Elias-Fano, lengths 2, 3, ..
};

// The states of one length l and their arcs, which are the arcs of order l + 1.
struct StateLevel {
  uint64_t first_state = 0, states = 0;
  uint64_t first_arc = 0, arcs = 0;
  const uint32_t* first = nullptr;  // [vocab_size + 1]: the first state whose context ends in each token
  const uint32_t* jumps = nullptr;  // for `extension`
  ArcRecords records;               // [arcs]
  ContextBlocks contexts;           // [states]
  EliasFano shorter;                // [states]
};

// The suffixes of a text that are states, one of each length from 1 to `length`, as indices into those of the length.
struct Suffixes {
  std::array<uint32_t, kMaxOrder> index;
  uint32_t length = 0;
};

struct Step {
  uint32_t next;
  double cost;
};

struct Taken {
  uint32_t state;  // the state that has the arc
  uint64_t arc;
  double cost;  // including backoff costs
};

class Automaton {
 public:
  uint64_t num_states = 0;
  uint64_t num_arcs = 0;
  uint32_t vocab_size = 0;
  uint32_t order = 0;

  // A view of arrays; std::invalid_argument unless their lengths agree. next_bits: number of low bits of a state in a
  // code.
  Automaton(const Sections& sections, uint32_t order, uint32_t vocab_size, uint32_t next_bits);

  // Reads all arrays; std::invalid_argument unless they are the automaton of a closed model in canonical order.
  void check() const;

  const StateLevel& level(uint32_t length) const { return levels_[length]; }
  uint32_t length(uint32_t state) const {
    uint32_t found = 0;
    for (uint32_t l = 1; l < order; ++l) found += state >= levels_[l].first_state;
    return found;
  }

  // Arcs are numbered from 0, the root's first: arc w < vocab_size is the root's arc for token w.
  struct Arcs {
    uint64_t begin, end;
  };
  Arcs arcs(uint32_t state) const {
    const uint32_t l = length(state);
    return l ? arcs(l, state - levels_[l].first_state) : Arcs{0, vocab_size};
  }
  Arcs arcs(uint32_t l, uint64_t index) const {
    const auto [begin, end] = levels_[l].contexts.arcs(index);
    return {levels_[l].first_arc + begin, levels_[l].first_arc + end};
  }
  // A state other than the root.
  struct Context {
    Arcs arcs;
    uint32_t length;
    uint32_t backoff;
    float backoff_cost;
  };
  Context context(uint32_t state) const {
    const uint32_t l = length(state);
    const uint64_t index = state - levels_[l].first_state;
    const uint32_t to = l > 1 ? levels_[l - 1].first_state + shorter(l, index) : kRoot;
    return {arcs(l, index), l, to, levels_[l].contexts.backoff(index)};
  }
  uint32_t backoff(uint32_t state) const {
    const uint32_t l = length(state);
    return l > 1 ? levels_[l - 1].first_state + shorter(l, state - levels_[l].first_state) : kRoot;
  }
  float backoff_cost(uint32_t state) const {
    const uint32_t l = length(state);
    return l ? levels_[l].contexts.backoff(state - levels_[l].first_state) : 0;
  }
  // The cost of an arc < num_arcs.
  float cost(uint64_t arc) const { return cost(arc_level(arc), arc); }
  // The cost of an arc of a state of length l.
  float cost(uint32_t l, uint64_t arc) const { return levels_[l].records.cost(arc - levels_[l].first_arc); }
  uint32_t token(uint64_t arc) const {
    if (arc < vocab_size) return arc;
    const uint64_t at = arc - vocab_size;
    return token16_ ? token16_[at] : Token24{token24_}[at];
  }
  uint32_t checked_token(uint64_t arc) const {
    const uint32_t found = token(arc);
    if (found >= vocab_size) corrupt("arc_token", arc);
    return found;
  }
  // The state after taking `arc` with `token` < vocab_size in `state`.
  uint32_t next(uint32_t state, uint64_t arc, uint32_t token) const;

  // The arc of `token` among the arcs of a state other than the root, or a tail of them; arcs.end if there is none.
  uint64_t find(Arcs arcs, uint32_t token) const;
  bool has_arc(Arcs arcs, uint32_t token) const { return find(arcs, token) != arcs.end; }

  // The arc of `token` in `state`, under failure semantics. Precondition: token < vocab_size.
  Taken take(uint32_t state, uint32_t token) const;

  // The cost of `token` in `state` and the state that it leads to.
  Step step(uint32_t state, uint32_t token) const {
    const Taken taken = take(state, token);
    return {next(taken.state, taken.arc, token), taken.cost};
  }

  // The suffixes of a history that are states. Tokens outside the vocabulary are an error.
  Suffixes suffixes(const int32_t* history, size_t length) const;
  // The state of the longest suffix.
  uint32_t state(const Suffixes& suffixes) const {
    return suffixes.length ? levels_[suffixes.length].first_state + suffixes.index[suffixes.length] : kRoot;
  }
  uint32_t start(const int32_t* history, size_t length) const { return state(suffixes(history, length)); }

  // Interleaved look-ups in many states of one length l > 0, whose memory accesses overlap. Call each of these for all
  // states before the next: prefetch_state; `list` and prefetch_list; `match` and prefetch_arc. index: among the states
  // of that length. Arcs are numbered among the arcs of these states.
  struct List {
    uint32_t begin, end;
    const DenseList* dense;  // or null
  };
  void prefetch_state(uint32_t l, uint32_t index) const { levels_[l].contexts.prefetch(index); }
  // For `context`.
  void prefetch_context(uint32_t state) const {
    const uint32_t l = length(state), index = state - levels_[l].first_state;
    if (l) prefetch_state(l, index);
    if (l > 1) levels_[l].shorter.prefetch(index);
  }
  List list(uint32_t l, uint32_t index) const {
    const auto [begin, end] = levels_[l].contexts.arcs(index);
    List list{begin, end, nullptr};
    if (dense_[l]->dense(end - begin)) list.dense = dense(l, index, list);
    return list;
  }
  void prefetch_list(uint32_t l, const List& list, const TokenSet& tokens) const {
    if (list.dense)
      list.dense->prefetch(tokens);
    else
      prefetch_tokens(inner(l, list.begin), list.end - list.begin);
  }
  // Matches the wanted tokens with a list, like the functions of list_match.h; `out` must add list.begin to numbers.
  template <typename Out>
  uint64_t match(uint32_t l, const List& list, const TokenSet& tokens, uint64_t wanted, Out out) const {
    if (list.dense) return list.dense->match(tokens, wanted, out);
    const uint64_t begin = inner(l, list.begin);
    const uint32_t size = list.end - list.begin;
    const bool spare = begin + size + kMatchSpare <= num_arcs - vocab_size;
    if (token16_) return match_list(token16_ + begin, size, tokens, wanted, spare, out);
    return match_list(Token24{token24_ + 3 * begin}, size, tokens, wanted, spare, out);
  }
  void prefetch_arc(uint32_t l, uint32_t arc) const { levels_[l].records.prefetch(arc); }

  // The states of length l > 0 whose context ends in a token: `begin` to end - 1.
  struct Ending {
    uint32_t begin, end;
  };
  Ending ending(uint32_t l, uint32_t token) const {
    const Ending found{levels_[l].first[token], levels_[l].first[token + 1]};
    if (found.begin > found.end || found.end > levels_[l].states) corrupt("first_state", token);
    return found;
  }
  // Whether an arc of a state of length l leads to a state of length l + 1; and if so, to which of those of that
  // length. ending: the states of length l + 1 whose context ends in the arc's token.
  bool extends(uint32_t l, uint32_t arc, Ending ending) const {
    return l ? levels_[l].records.code(arc) >> next_bits_ : ending.begin < ending.end;
  }
  uint32_t extension(uint32_t l, uint32_t arc, Ending ending) const;
  // The state of length l + 1 to which an arc of a state of length l leads; kRoot if it leads to a shorter one.
  uint32_t longer(uint32_t l, uint32_t arc, uint32_t token) const {
    if (l + 1 == order) return kRoot;
    const Ending own = ending(l + 1, token);
    return extends(l, arc, own) ? levels_[l + 1].first_state + extension(l, arc, own) : kRoot;
  }

  // Throws the error for an inconsistent arc of a state of length l > 0.
  [[noreturn]] void corrupt_arc(uint32_t l, uint32_t arc) const { corrupt("arcs", levels_[l].first_arc + arc); }

  // The costs [vocab_size] of all tokens in `state`.
  void distribution(uint32_t state, float* cost) const;

  // Tokens by ascending unigram cost, ties by token; computed on first use and cached.
  const std::vector<uint32_t>& by_unigram_cost() const;

 private:
  struct Token24 {
    const uint8_t* bytes;
    uint32_t operator[](uint64_t i) const {
      return uint32_t{bytes[3 * i]} | bytes[3 * i + 1] << 8 | bytes[3 * i + 2] << 16;
    }
  };

  static constexpr uint64_t kPrefetched = 1024;  // entries of a list

  // The index of an arc of a state of length l > 0 in arrays without the root's arcs.
  uint64_t inner(uint32_t l, uint32_t arc) const { return levels_[l].first_arc - vocab_size + arc; }
  // The list as a bit set; null only in exceptional cases (see DenseLists::at).
  const DenseList* dense(uint32_t l, uint32_t index, List list) const {
    const uint64_t first = levels_[l].first_arc + list.begin;
    return dense_[l]->at(index, [&] {
      return DenseList(vocab_size, list.end - list.begin, [&](uint64_t i) { return checked_token(first + i); });
    });
  }
  void prefetch_tokens(uint64_t begin, uint64_t size) const {
    if (!size) return;
    const auto address = [this](uint64_t at) {
      return token16_ ? reinterpret_cast<const uint8_t*>(token16_ + at) : token24_ + 3 * at;
    };
    const uint8_t* last = address(begin + std::min(size, kPrefetched) - 1);
    // Most lists are shorter than a cache line.
    prefetch_line(address(begin));
    prefetch_line(last);
    for (const uint8_t* at = address(begin) + 64; at < last; at += 64) prefetch_line(at);
  }

  void lay_out(const Sections& sections);
  void lay_out_arcs(const Sections& sections);
  void lay_out_contexts(const Sections& sections);

  // The level of the arcs' states.
  uint32_t arc_level(uint64_t arc) const {
    uint32_t found = 0;
    for (uint32_t l = 1; l < order; ++l) found += arc >= levels_[l].first_arc;
    return found;
  }
  // The backoff state, among the states of length - 1; 0 for length 1.
  uint64_t shorter(uint32_t length, uint64_t index) const { return length > 1 ? levels_[length].shorter[index] : 0; }
  friend class Check;

  std::array<StateLevel, kMaxOrder> levels_;
  const float* root_cost_ = nullptr;
  const uint16_t* token16_ = nullptr;  // null if token24_ is used
  const uint8_t* token24_ = nullptr;
  uint32_t next_bits_ = 0;
  std::array<std::unique_ptr<DenseLists>, kMaxOrder> dense_;  // by length
  mutable std::once_flag unigram_once_;
  mutable std::vector<uint32_t> unigram_order_;
};

}  // namespace rescore
