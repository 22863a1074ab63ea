// An n-gram model of the running text, updated as the text grows (docs/how/calibrated-q.md).
//
// A context is a sequence of at most order - 1 tokens of the text, or of a rejected draft. It counts the tokens that
// followed: 1 where the target wrote them, kWeak in a prompt. Apart from them it counts what the target predicted
// there after a rejected draft, p(w) of each token w. p(w | c) is interpolated over all suffixes of c, from the
// shortest one on, and in each first with what followed, then with what was predicted:
//
//     p(w) <- s count(w) / total + (1 - s) p(w),  s = 1 / (1 + exp(-(a + b ln total + c ln distinct)))
//
// beginning with another model's p. The weights a, b, c depend on the number of tokens of the context and on the kind
// of counts. 0, 1, -1 is Witten and Bell's interpolation.
//
// Where the last tokens stood before, at least order - 1 of them, the token that followed the longest of such matches
// gets a share last, by the same formula: total is the number of matching tokens, and in place of distinct stand the
// tokens that matches foretold so far for each one that they missed, where the target wrote them.
//
// Texts may share their counts, as the samples of one prompt do: each has a place of its own, and counts kWeak.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
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

class ContextCounts {
 public:
  static constexpr uint32_t kEmpty = 0;  // the state of no context
  static constexpr uint32_t kMaxOrder = 16;
  // Of a prompt's tokens, which are no choice of the target, and of texts that share their counts
  // (docs/notebooks/q.md).
  static constexpr float kWeak = 0.3f;
  static constexpr float kLeast = 0.01f;    // less probable tokens of a prediction are not counted
  static constexpr double kFew = 4;         // tokens that matches foretell for each miss before any is known
  static constexpr uint32_t kLongest = 64;  // matches of more tokens count as long as this

  // How the share s of a context's counts depends on how many there are, and of how many tokens.
  struct Share {
    double constant, of_total, of_distinct;
  };

  // followed, predicted [order]. copied: null if no matches are sought.
  ContextCounts(uint32_t order, const Share* followed, const Share* predicted, const Share* copied);

  uint32_t order() const { return order_; }
  uint64_t bytes() const {
    return sizeof *this + contexts_.bytes() + predicted_.bytes() + read_.bytes() + table_.bytes() + lists_.bytes();
  }
  uint32_t greatest_token() const { return greatest_; }

  static constexpr uint32_t kNone = UINT32_MAX;

  // A longest match of the last tokens: how many they are, and the place of the token that followed them.
  struct Match {
    uint32_t next = kNone, length = 0;
  };
  // What is known of what follows: the longest context, and the longest match.
  struct State {
    uint32_t context = kEmpty;
    Match match;
  };
  // Where a text stands: the contexts of its last 0, 1, .. tokens, up to the longest, and the place of its last token.
  struct Place {
    std::array<uint32_t, kMaxOrder> path{};
    uint32_t longest = 0, last = kNone;
    Match match;

    State state() const { return {path[longest], match}; }
  };
  // Appends a token to a text and counts it as `amount`. written: by the target.
  void extend(Place& text, uint32_t token, float amount, bool written);
  // Where a draft stands that goes on from a place by one more token, which is not counted.
  Place after(const Place& place, uint32_t token);
  // Counts the target's prediction at the place of a draft that was rejected.
  void foresee(const Place& draft, const Prediction& predicted);

  // The state of a text that ends in these tokens and was not counted; ids below 0 are skipped.
  State state_after(const int32_t* tokens, size_t length) const;
  // The state after one more token, which is not counted.
  State step(const State& state, uint32_t token) const;

  const CountLists& lists() const { return lists_; }

  // What the counts of a context know of a token.
  struct Evidence {
    float count, total, distinct;
  };
  // Writes what followed and what was predicted, by all contexts of a state and by its match; [order + 1, 2], zero
  // where there is nothing.
  void evidence(const State& state, uint32_t token, Evidence* out) const;

  // The weights of the counts in a state: p(w) = sum over parts of count(w) * worth + rest * p_other(w).
  struct Mixture {
    struct Part {
      uint32_t owner;
      CountList list;
      double worth;
    };
    std::array<Part, 2 * kMaxOrder> parts;  // the longest context first; those without counts are omitted
    int size = 0;
    double rest = 1;
    uint32_t copied = kNone;  // the token that followed the longest match, which gets `of_copied` more
    double of_copied = 0;

    void add(uint32_t owner, const CountList& list, double worth, double left) {
      parts[size++] = {owner, list, rest * worth};
      rest *= left;
    }
  };
  Mixture mixture(const State& state) const;

  // Held shared by searches, and exclusively while a text grows.
  ManyReaders& mutex() const { return mutex_; }

 private:
  static constexpr uint32_t kPredicted = 1u << 31;  // marks owners of lists of predictions

  struct Counts {
    CountList list;
    double total = 0;           // a float ends at 2^24
    float worth = 0, rest = 1;  // share / total, and 1 - share
  };

  struct Context {
    uint32_t parent, token;  // its tokens are those of the parent, and this one
    uint32_t link;           // the context of all its tokens but the first
    uint32_t depth;
    Counts followed;
    uint32_t predicted = kNone;  // the number of its counts in predicted_
    uint32_t last = kNone;       // of a longest one: where its last token was read last
  };

  // A token that was read, the ones before and after it in its text, and where the longest context that it ends was
  // read before.
  struct Read {
    uint32_t token, before, next, earlier;
  };

  uint32_t child(uint32_t parent, uint32_t token) const;
  uint32_t child_or_new(uint32_t parent, uint32_t token, uint32_t link);
  static uint32_t owner_of_predicted(uint32_t number) { return kPredicted | number; }
  void add(uint32_t owner, Counts& to, uint32_t token, float amount);
  void weigh(Counts& counts, const Share& share);  // after counts were added
  static double share_of(const Share& share, double log_total, double log_distinct);
  void append(Place& text, uint32_t token);
  double per_miss() const { return (kFew + copied_ + missed_) / (1.0 + missed_); }
  Match match(const Match& before, uint32_t token) const;  // which goes on
  Match last_match(uint32_t place) const;
  Match longest_match(uint32_t last) const;  // of a text that ends there
  void enter(uint32_t context);              // adds it to the table
  void grow();

  // Keeps the last one: many contexts have the same counts, and hold one prediction.
  struct Logarithm {
    double of = 1, value = 0;

    double operator()(double number) {
      if (number != of) of = number, value = std::log(number);
      return value;
    }
  };

  uint32_t order_, greatest_ = 0;
  Logarithm log_total_, log_distinct_;
  std::vector<CountLists::Entry> foreseen_;  // by the prediction that is counted
  mutable ManyReaders mutex_;
  std::array<Share, kMaxOrder> of_followed_{}, of_predicted_{};
  Share of_copied_{};
  bool copies_;
  uint64_t copied_ = 0, missed_ = 0;  // tokens of the target that matches foretold rightly, and wrongly
  Growing<Context> contexts_;
  Growing<Read> read_;         // if matches are sought
  Growing<Counts> predicted_;  // few contexts have any
  Growing<uint32_t> table_;    // open addressing over contexts_ by (parent, token)
  CountLists lists_;           // of all contexts
};

// A text and the counts that it extends.
class ContextModel {
 public:
  explicit ContextModel(std::shared_ptr<ContextCounts> counts) : counts_(std::move(counts)) {}

  ContextCounts& counts() const { return *counts_; }
  ContextCounts::State state() const { return place_.state(); }
  uint64_t size() const { return size_; }  // tokens read

  // Another text, which stands where this one does and shares its counts.
  ContextModel sibling() const {
    ContextModel text(*this);
    text.amount_ = ContextCounts::kWeak;
    return text;
  }
  // Starts a new text; counts are kept.
  void begin() { place_ = {}; }
  // Appends a token; kNone, where something stands that is no text, is not counted and begins anew.
  void extend(uint32_t token, bool prompt = false) {
    ++size_;
    if (token == ContextCounts::kNone) return begin();
    counts_->extend(place_, token, prompt ? ContextCounts::kWeak : amount_, !prompt);
  }
  const ContextCounts::Place& place() const { return place_; }

 private:
  std::shared_ptr<ContextCounts> counts_;
  ContextCounts::Place place_;
  uint64_t size_ = 0;
  float amount_ = 1;
};

}  // namespace rescore
