// An n-gram model of one running text, counted while it grows: of the tokens that came, and of those that the target
// thought could come.
//
// A context is a run of at most order - 1 tokens of the text, or of a draft that was verified. What the target
// predicted behind a context counts as well as the token that came (soft counts, docs/how/calibrated-q.md): with f =
// soft[o] of a context of o tokens,
//
//     count(c, w) += f p(w) for the tokens that were predicted,  += 1 - f for the token that came
//
// and where nothing is known of what was predicted, the token that came counts as if kUnknown had been its
// probability: 1 - f (1 - kUnknown). p(w | c) is interpolated over all contexts that are suffixes of c, in the manner
// of Witten and Bell:
// p_o(w) = (count_o(w) + m_o p_{o-1}(w)) / (count_o + m_o), m_o being strength[o] times the number of distinct tokens
// counted behind the context of o tokens, and p_{-1} another model's distribution.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "count_lists.h"
#include "growing.h"
#include "many_readers.h"

namespace rescore {

// The most probable tokens behind a text, as the target sees them: the first ids, and their probabilities.
struct Prediction {
  const int32_t* ids = nullptr;
  const float* p = nullptr;
  int size = 0;
};

class ContextModel {
 public:
  static constexpr uint32_t kEmpty = 0;  // the state of no context
  static constexpr uint32_t kMaxOrder = 16;
  static constexpr float kLeast = 0.01f;  // a share of a prediction that is less does not count
  // Of a token that came where no prediction is known: what models give the tokens of a prompt, most of which they
  // would not have written themselves.
  static constexpr float kUnknown = 0.15f;

  // soft [order], each in [0, 1].
  ContextModel(uint32_t order, const double* soft);

  uint32_t order() const { return order_; }
  uint64_t size() const { return tokens_; }  // of the text
  uint64_t bytes() const { return sizeof *this + contexts_.bytes() + table_.bytes() + lists_.bytes(); }
  uint32_t greatest_token() const { return greatest_; }

  // What comes next is another text.
  void begin() { longest_ = 0; }
  // The text goes on with a token, which was chosen from a prediction.
  void extend(uint32_t token, const Prediction& predicted);
  // The target read `draft` behind the text, and predicted what would follow.
  void foresee(const int32_t* draft, size_t length, const Prediction& predicted);

  // Of the text so far.
  uint32_t state() const { return active_[longest_]; }
  // Of a text of which no more is known than that it ends so; ids below 0 are left out.
  uint32_t state_after(const int32_t* tokens, size_t length) const;
  // After one token more, which is not counted.
  uint32_t step(uint32_t state, uint32_t token) const;

  double count(uint32_t state, uint32_t token) const { return lists_.count(state, contexts_[state].followers, token); }
  const CountList& followers(uint32_t state) const { return contexts_[state].followers; }
  const CountLists& lists() const { return lists_; }

  // What counts are worth in a state: p(w) = sum over contexts of count_o(w) * worth_o + rest * p_other(w).
  struct Mixture {
    struct Part {
      uint32_t state;
      double worth;
    };
    std::array<Part, kMaxOrder> parts;  // the longest context first; what nothing followed is left out
    int size = 0;
    double rest = 1;
  };
  Mixture mixture(uint32_t state, const double* strength) const;

  // Shared by searches, held alone while the text grows.
  ManyReaders& mutex() const { return mutex_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  using Path = std::array<uint32_t, kMaxOrder>;  // the contexts of the last 0, 1, .. tokens

  struct Context {
    uint32_t parent, token;  // its tokens are those of the parent, and this one
    uint32_t link;           // the context of all its tokens but the first
    uint32_t depth;
    CountList followers;
    double total;
  };

  // From bit 32 on the product depends on both: below, keys of one token would share their places.
  static size_t hash(uint32_t parent, uint32_t token) {
    return ((static_cast<uint64_t>(parent) << 32 | token) * 0x9E3779B97F4A7C15ull) >> 32;
  }
  uint32_t child(uint32_t parent, uint32_t token) const;
  uint32_t child_or_new(uint32_t parent, uint32_t token, uint32_t link);
  void advance(Path& path, uint32_t& longest, uint32_t token);
  void add(uint32_t context, uint32_t token, float amount);
  void add(const Path& path, uint32_t longest, const Prediction& predicted);
  void enter(uint32_t context);  // into the table
  void grow();

  uint32_t order_, longest_ = 0, greatest_ = 0;
  uint64_t tokens_ = 0;
  mutable ManyReaders mutex_;
  std::array<float, kMaxOrder> soft_{};
  Path active_{};
  Growing<Context> contexts_;
  Growing<uint32_t> table_;  // open addressing over contexts_ by (parent, token)
  CountLists lists_;         // followers, of all contexts
};

}  // namespace rescore
