// An n-gram model of the running text, updated as the text grows. It counts the tokens of the text and, as soft counts,
// the target's own predictions (docs/how/calibrated-q.md).
//
// A context is a sequence of at most order - 1 tokens of the text, or of a verified draft. With f = soft[o] for a
// context c of o tokens,
//
//     count(c, w) += f p(w) for each predicted token w,  += 1 - f for the token that followed
//
// If the prediction is unknown, the token that followed counts as if its probability had been kUnknown:
// 1 - f (1 - kUnknown). p(w | c) is interpolated over all suffixes of c as in Witten and Bell:
//
//     p_o(w) = (count_o(w) + m_o p_{o-1}(w)) / (count_o + m_o)
//
// where m_o is strength[o] times the number of distinct tokens counted after the context of o tokens, and p_{-1} is
// another model's distribution.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "count_lists.h"
#include "growing.h"
#include "many_readers.h"

namespace rescore {

// The target's prediction after a text: its most probable tokens and their probabilities.
struct Prediction {
  const int32_t* ids = nullptr;
  const float* p = nullptr;
  int size = 0;
};

class ContextModel {
 public:
  static constexpr uint32_t kEmpty = 0;  // the state of no context
  static constexpr uint32_t kMaxOrder = 16;
  static constexpr float kLeast = 0.01f;  // smaller soft counts are dropped
  // The assumed probability of a token without a known prediction: what models typically give the tokens of a prompt,
  // most of which they would not have written themselves.
  static constexpr float kUnknown = 0.15f;

  // soft [order], each in [0, 1].
  ContextModel(uint32_t order, const double* soft);

  uint32_t order() const { return order_; }
  uint64_t size() const { return tokens_; }  // tokens of the text
  uint64_t bytes() const { return sizeof *this + contexts_.bytes() + table_.bytes() + lists_.bytes(); }
  uint32_t greatest_token() const { return greatest_; }

  // Starts a new text; counts are kept.
  void begin() { longest_ = 0; }
  // Appends a token to the text and counts it. predicted: the target's prediction at its position.
  void extend(uint32_t token, const Prediction& predicted);
  // Counts the target's prediction after the text and `draft`.
  void foresee(const int32_t* draft, size_t length, const Prediction& predicted);

  // The state of the text so far.
  uint32_t state() const { return active_[longest_]; }
  // The state of a text that ends in these tokens; ids below 0 are skipped.
  uint32_t state_after(const int32_t* tokens, size_t length) const;
  // The state after one more token, which is not counted.
  uint32_t step(uint32_t state, uint32_t token) const;

  double count(uint32_t state, uint32_t token) const { return lists_.count(state, contexts_[state].followers, token); }
  const CountList& followers(uint32_t state) const { return contexts_[state].followers; }
  const CountLists& lists() const { return lists_; }

  // The weights of counts in a state: p(w) = sum over contexts of count_o(w) * worth_o + rest * p_other(w).
  struct Mixture {
    struct Part {
      uint32_t state;
      double worth;
    };
    std::array<Part, kMaxOrder> parts;  // the longest context first; contexts without counts are omitted
    int size = 0;
    double rest = 1;
  };
  Mixture mixture(uint32_t state, const double* strength) const;

  // Held shared by searches, and exclusively while the text grows.
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

  // The upper half of the product depends on both; in the lower half all keys of one token would collide.
  static size_t hash(uint32_t parent, uint32_t token) {
    return ((static_cast<uint64_t>(parent) << 32 | token) * 0x9E3779B97F4A7C15ull) >> 32;
  }
  uint32_t child(uint32_t parent, uint32_t token) const;
  uint32_t child_or_new(uint32_t parent, uint32_t token, uint32_t link);
  void advance(Path& path, uint32_t& longest, uint32_t token);
  void add(uint32_t context, uint32_t token, float amount);
  void add(const Path& path, uint32_t longest, const Prediction& predicted);
  void enter(uint32_t context);  // adds it to the table
  void grow();

  uint32_t order_, longest_ = 0, greatest_ = 0;
  uint64_t tokens_ = 0;
  mutable ManyReaders mutex_;
  std::array<float, kMaxOrder> soft_{};
  Path active_{};
  Growing<Context> contexts_;
  Growing<uint32_t> table_;  // open addressing over contexts_ by (parent, token)
  CountLists lists_;         // the followers of all contexts
};

}  // namespace rescore
