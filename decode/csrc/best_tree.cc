#include "best_tree.h"

#include <algorithm>

namespace rescore {
void LatticeTreeSearch::open(uint32_t prefix, Fixed cost, const Models& models, const Sausage& sausage) {
  Opened& opened = opened_[prefix];
  const int t = tree_.prefixes[prefix].depth;
  Expansion expansion;
  expand(models, sausage, slots_[t], t, opened.states, caches_, expansion);
  std::array<Fixed, kMaxCandidates> weight;
  std::array<uint8_t, kMaxCandidates> order;
  int count = 0;
  for (int rank = 0; rank < slots_[t].count; ++rank) {
    weight[rank] = to_fixed(expansion.cost[rank]);
    if (weight[rank] < kImpossible) order[count++] = rank;
  }
  opened.first_child = children_.size();
  if (!count) return;
  std::sort(order.begin(), order.begin() + count,
            [&](uint8_t a, uint8_t b) { return weight[a] != weight[b] ? weight[a] < weight[b] : a < b; });
  // The softmax over the slot's candidates, in nats.
  const Fixed least = weight[order[0]];
  double total = 0;
  for (int rank = 0; rank < slots_[t].count; ++rank)
    if (weight[rank] < kImpossible) total += std::exp((least - weight[rank]) / kFixedOne);
  const Fixed log_total = to_fixed(std::log(total));
  for (int place = 0; place < count; ++place) {
    const int rank = order[place];
    const Fixed step = weight[rank] - least + log_total;
    children_.push_back({cost + step, prefix, static_cast<uint32_t>(place), static_cast<uint32_t>(rank), t + 1});
    arcs_.push_back(expansion.arcs(rank, models.size()));
  }
  opened.children = count;
}

int LatticeTreeSearch::run(const Models& models, const Sausage& sausage, const States& start, TreeOutput out) {
  clear(out);
  const int length = sausage.length();
  if (length == 0) return 0;
  read_slots(sausage, slots_);
  for (int j = 0; j < models.size(); ++j) caches_[j].clear();
  tree_.clear();
  children_.clear();
  arcs_.clear();
  opened_.assign(1, {start, 0, 0});
  open(tree_.add(kNone, 0, 0), 0, models, sausage);
  return enumerate(
      tree_, opened_, children_, length, out,
      [&](uint32_t prefix, Fixed cost, size_t child) {
        const Prefix& last = tree_.prefixes[prefix];
        opened_[prefix].states = models.next(arcs_[child], sausage.slot_ids(last.depth - 1)[last.rank]);
        open(prefix, cost, models, sausage);
      },
      [&](const Child& child) { return sausage.slot_ids(child.depth - 1)[child.rank]; });
}

}  // namespace rescore
