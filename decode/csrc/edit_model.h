// A text that is expected, as an automaton of edits (docs/how/predictions.md).
//
// State i has read the first i tokens. Arcs copy token i, or remove up to kRemoved tokens and copy the next one;
// replace token i by any token; insert any token and stay; and jump behind any place where the last two tokens stand.
// A text may also leave all places, and copies nothing until it jumps back. The forward algorithm keeps the most
// probable places of the text so far. Copying arcs give the next token's distribution, under a share that depends on
// how probable the best place is:
//
//     p(w) = s sum over places of weight copy(w) + rest p_other(w),  s = 1 / (1 + exp(-(a + b ln weight)))
//
// A token that was replaced before, as in a renaming, is copied with less probability.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rescore {

class EditModel {
 public:
  static constexpr int kPlaces = 12;
  static constexpr int kRemoved = 4;
  static constexpr uint32_t kNone = UINT32_MAX;

  // Weights of arcs; copies have what is left. A removed token costs `removed` more than none. Where a token is not
  // copied, it is taken to have probability `other`.
  struct Arcs {
    double replaced, inserted, left, removed, jumped, other;
  };
  struct Share {
    double constant, of_weight;
  };
  struct Place {
    uint32_t at;  // tokens of the expected text before it
    double weight;
  };
  struct State {
    std::array<Place, kPlaces> places;  // the most probable one first
    int count = 0;                      // at least one
    double away = 0;                    // weight of being at no place; all weights sum to 1
    uint32_t last = kNone;
  };

  EditModel(const int32_t* tokens, size_t length, const Arcs& arcs, const Share& share);

  State step(const State& state, uint32_t token) const;

  // Calls see(token, probability) for each copying arc; tokens may come more than once.
  template <typename See>
  void copies(const State& state, See see) const {
    const double share = share_of(state);
    for (int i = 0; i < state.count; ++i) {
      double worth = share * state.places[i].weight * copy_;
      for (uint32_t at = state.places[i].at, removed = 0; at < tokens_.size() && removed <= kRemoved; ++at, ++removed) {
        see(tokens_[at], worth * trust(tokens_[at]));
        worth *= arcs_.removed;
      }
    }
  }

  // The text so far.
  const State& state() const { return state_; }
  void extend(uint32_t token);

  uint32_t greatest_token() const { return greatest_; }

 private:
  using Pair = std::pair<uint64_t, uint32_t>;  // two tokens, and the place behind them
  struct Fate {
    uint32_t copied = 0, replaced = 0;
  };

  double share_of(const State& state) const;
  double trust(uint32_t token) const;

  std::vector<uint32_t> tokens_;
  std::vector<Pair> pairs_;                   // ascending
  std::unordered_map<uint32_t, Fate> fates_;  // of tokens of the expected text
  Arcs arcs_;
  Share share_;
  double copy_;  // weight of copying the next token
  uint32_t greatest_ = 0;
  State state_;
};

}  // namespace rescore
