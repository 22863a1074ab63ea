#include "match_cache.h"

#include <algorithm>

namespace rescore {

void MatchCache::clear() {
  if (!row_) row_.reset(new Row[1 << kBits]);  // as it comes: few of the pages are ever written
  key_.fill(0);
}

void MatchCache::match(const Automaton& lm, uint32_t state, const Slot& slot, int t, uint64_t* arc, double* cost) {
  struct Unknown {
    Automaton::Context context;
    uint64_t key;
  };
  std::array<Unknown, kMaxOrder> unknown;  // from the longest context on
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
    unknown[count] = {lm.context(state), key};
    state = unknown[count].context.backoff;
  }
  while (count--) {
    const auto& [context, key] = unknown[count];
    for (int i = 0; i < slot.count; ++i) cost[i] += context.backoff_cost;
    lm.match(context.arcs, slot.tokens, [&lm, arc, cost, length = context.length](bool here, int i, uint64_t at) {
      if (!here) return;
      arc[i] = at;
      cost[i] = lm.cost(length, at);
    });
    if (context.length + 1 < lm.order) keep(key, slot.count, arc, cost);  // nothing backs off to the longest
  }
}

void MatchCache::keep(uint64_t key, int count, const uint64_t* arc, const double* cost) {
  const size_t at = place(key);
  key_[at] = key;
  std::copy_n(arc, count, row_[at].arc.data());
  std::copy_n(cost, count, row_[at].cost.data());
}

}  // namespace rescore
