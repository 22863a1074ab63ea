#include "composition.h"

#include <algorithm>

namespace rescore {

Slot::Slot(const Sausage& sausage, int t) : count(sausage.candidates(t)) {
  const int32_t* ids = sausage.slot_ids(t);
  for (int i = 0; i < count; ++i) rank[i] = i;
  std::sort(rank.begin(), rank.begin() + count, [ids](uint8_t a, uint8_t b) { return ids[a] < ids[b]; });
  for (int i = 0; i < count; ++i) tokens[i] = ids[rank[i]];
}

namespace {

// The arc of each of the slot's candidates under failure semantics, and its cost, backing off included.
void match(const Automaton& lm, uint32_t state, const Slot& slot, ContextCache& cache, uint64_t* arc, double* cost) {
  uint64_t left = slot.all();
  double paid = 0;
  while (state != kRoot) {
    const Automaton::Context& context = cache.at(lm, state);
    left &= ~lm.match(context, slot.tokens.data(), left, paid, arc, cost);
    if (!left) return;
    paid += context.backoff_cost;
    state = context.backoff;
  }
  lm.match_root(slot.tokens.data(), left, paid, arc, cost);
}

}  // namespace

void expand(const Models& models, const Sausage& sausage, const Slot& slot, int t, const States& states,
            Caches& caches, Expansion& out) {
  for (int rank = 0; rank < slot.count; ++rank) out.cost[rank] = sausage.slot_cost(t)[rank];
  std::array<uint64_t, kMaxCandidates> arc;
  std::array<double, kMaxCandidates> cost;
  for (int j = 0; j < models.size(); ++j) {
    match(*models.lm[j], states[j], slot, caches[j], arc.data(), cost.data());
    const double alpha = models.weight(j, t);
    for (int i = 0; i < slot.count; ++i) {
      out.cost[slot.rank[i]] += alpha * cost[i];
      out.arc[j][slot.rank[i]] = arc[i];
    }
  }
}

}  // namespace rescore
