#include "expansion.h"

#include <cmath>

namespace rescore {

void expand(const Models& models, const Sausage& sausage, const Slot& slot, int t, const States& states, Caches& caches,
            Expansion& out) {
  for (int rank = 0; rank < slot.count; ++rank)
    out.cost[rank] = models.allows(states, sausage.slot_ids(t)[rank]) ? sausage.slot_cost(t)[rank] : INFINITY;
  std::array<uint64_t, kMaxCandidates> arc;
  std::array<double, kMaxCandidates> cost;
  for (int j = 0; j < models.size(); ++j) {
    caches[j].match(*models.lm[j], states[j], slot, t, arc.data(), cost.data());
    const double alpha = models.weight(j, t);
    for (int i = 0; i < slot.count; ++i) {
      out.cost[slot.rank[i]] += alpha * cost[i];
      out.arc[j][slot.rank[i]] = arc[i];
    }
  }
}

}  // namespace rescore
