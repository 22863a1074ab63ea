#include "match_cache.h"

#include <algorithm>

namespace rescore {

void MatchCache::clear(int width) {
  width_ = width;
  arc_.resize(width << kBits);
  cost_.resize(width << kBits);
  key_.fill(0);
}

// Contexts are found longest first and read shortest first, in steps whose reads overlap.
void MatchCache::match(const Automaton& lm, uint32_t state, const Slot& slot, int t, uint64_t* arc, double* cost) {
  struct Unknown {
    uint32_t length;
    float backoff_cost;
    uint64_t key;
    Automaton::List list;
    uint64_t tokens;  // a bit for each candidate with an arc, by its place
    std::array<uint32_t, kMaxCandidates> number;
  };
  std::array<Unknown, kMaxOrder> unknown;
  int count = 0;
  uint64_t tokens = slot.tokens.all();
  for (;; ++count) {
    if (state == kRoot) {
      for (int i = 0; i < slot.count; ++i) {
        arc[i] = slot.tokens[i];
        cost[i] = lm.cost(0, arc[i]);
      }
      break;
    }
    const uint64_t key = static_cast<uint64_t>(state) * kMaxStates + t;
    if (const size_t at = place(key); key_[at] == key) {
      tokens = tokens_[at];
      std::copy_n(&arc_[at * width_], slot.count, arc);
      std::copy_n(&cost_[at * width_], slot.count, cost);
      break;
    }
    Unknown& one = unknown[count];
    one.length = lm.length(state);
    one.key = key;
    const uint32_t index = state - lm.level(one.length).first_state;
    one.list = lm.list(one.length, index);
    lm.prefetch_list(one.length, one.list, slot.tokens);
    one.backoff_cost = lm.level(one.length).contexts.backoff(index);
    state = lm.backoff(state);
  }
  for (int i = count; i--;) {
    Unknown& one = unknown[i];
    // A context has arcs only for tokens that have arcs in the next shorter one.
    if (tokens)
      tokens = lm.match(one.length, one.list, slot.tokens, tokens, MatchRow{one.number.data(), one.list.begin});
    one.tokens = tokens;
    for (uint64_t left = tokens; left; left &= left - 1) lm.prefetch_arc(one.length, one.number[__builtin_ctzll(left)]);
  }
  while (count--) {
    const Unknown& one = unknown[count];
    const StateLevel& level = lm.level(one.length);
    for (int i = 0; i < slot.count; ++i) cost[i] += one.backoff_cost;
    for (uint64_t left = one.tokens; left; left &= left - 1) {
      const int place = __builtin_ctzll(left);
      arc[place] = level.first_arc + one.number[place];
      cost[place] = level.records.cost(one.number[place]);
    }
    if (one.length + 1 < lm.order) keep(one.key, slot.count, one.tokens, arc, cost);  // none back off to longer ones
  }
}

void MatchCache::keep(uint64_t key, int count, uint64_t tokens, const uint64_t* arc, const double* cost) {
  const size_t at = place(key);
  key_[at] = key;
  tokens_[at] = tokens;
  std::copy_n(arc, count, &arc_[at * width_]);
  std::copy_n(cost, count, &cost_[at * width_]);
}

}  // namespace rescore
