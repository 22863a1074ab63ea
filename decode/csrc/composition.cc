#include "composition.h"

#include <algorithm>

namespace rescore {

Slot::Slot(const Sausage& sausage, int t) : count(sausage.candidates(t)) {
  const int32_t* ids = sausage.slot_ids(t);
  for (int i = 0; i < count; ++i) rank[i] = i;
  std::sort(rank.begin(), rank.begin() + count, [ids](uint8_t a, uint8_t b) { return ids[a] < ids[b]; });
  for (int i = 0; i < count; ++i) tokens[i] = ids[rank[i]];
}

void expand(const Models& models, const Sausage& sausage, const Slot& slot, int t, const States& states,
            Expansion& out) {
  std::array<double, kMaxCandidates> total;
  for (int i = 0; i < slot.count; ++i) total[i] = sausage.slot_cost(t)[slot.rank[i]];
  std::array<uint64_t, kMaxCandidates> arc;
  std::array<double, kMaxCandidates> cost;
  for (int j = 0; j < models.size(); ++j) {
    models.lm[j]->match(states[j], slot.tokens.data(), slot.count, arc.data(), cost.data());
    const double alpha = models.weight(j, t);
    for (int i = 0; i < slot.count; ++i) {
      total[i] += alpha * cost[i];
      out.arc[slot.rank[i]][j] = arc[i];
    }
  }
  for (int i = 0; i < slot.count; ++i) out.weight[slot.rank[i]] = to_fixed(total[i]);
}

}  // namespace rescore
