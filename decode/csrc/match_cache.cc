#include "match_cache.h"

#include <algorithm>

namespace rescore {

void MatchCache::clear() {
  if (!row_) row_.reset(new Row[1 << kBits]);  // uninitialised: few of its pages are ever written
  key_.fill(0);
}

void MatchCache::match(const Automaton& lm, uint32_t state, const Slot& slot, int t, uint64_t* arc, double* cost) {
  struct Unknown {
    uint32_t length;
    Automaton::List list;
    float backoff_cost;
    uint64_t key;
  };
  std::array<Unknown, kMaxOrder> unknown;  // longest context first
  int count = 0;
  for (;; ++count) {
    if (state == kRoot) {
      for (int i = 0; i < slot.count; ++i) {
        arc[i] = slot.tokens[i];
        cost[i] = lm.cost(arc[i]);
      }
      break;
    }
    const uint64_t key = static_cast<uint64_t>(state) * kMaxSlots + t;
    if (const size_t at = place(key); key_[at] == key) {
      std::copy_n(row_[at].arc.data(), slot.count, arc);
      std::copy_n(row_[at].cost.data(), slot.count, cost);
      break;
    }
    const uint32_t length = lm.length(state);
    const uint32_t index = state - lm.level(length).first_state;
    unknown[count] = {length, lm.list(length, index), lm.level(length).contexts.backoff(index), key};
    state = lm.backoff(state);
  }
  while (count--) {
    const auto& [length, list, backoff_cost, key] = unknown[count];
    const uint64_t first = lm.level(length).first_arc;
    for (int i = 0; i < slot.count; ++i) cost[i] += backoff_cost;
    std::array<uint32_t, kMaxCandidates> number;
    for (uint64_t found = lm.match(length, list, slot.tokens, slot.tokens.all(), MatchRow{number.data(), list.begin});
         found; found &= found - 1) {
      const int place = __builtin_ctzll(found);
      arc[place] = first + number[place];
      cost[place] = lm.cost(length, arc[place]);
    }
    if (length + 1 < lm.order) keep(key, slot.count, arc, cost);  // no context backs off to the longest ones
  }
}

void MatchCache::keep(uint64_t key, int count, const uint64_t* arc, const double* cost) {
  const size_t at = place(key);
  key_[at] = key;
  std::copy_n(arc, count, row_[at].arc.data());
  std::copy_n(cost, count, row_[at].cost.data());
}

}  // namespace rescore
