#include "best_tree.h"

#include <algorithm>
#include <limits>

namespace rescore {
namespace {

constexpr uint64_t kBlock = 64;  // costs of a list compared at once

}  // namespace

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
  for (int t = 0; t < length; ++t) slots_[t] = Slot(sausage, t);
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

// The children of a prefix that may belong to the tree, sorted. `least_` holds the n least costs of all children
// seen so far: what costs more than the greatest of them cannot be among the n best nodes. Long arc lists are
// so read in one pass that keeps few arcs, and of the root's, sorted by cost, only the first are looked at.
void ModelTreeSearch::open(uint32_t prefix, Fixed cost, const Automaton& lm, size_t nodes) {
  Opened& opened = opened_[prefix];
  const int depth = tree_.prefixes[prefix].depth + 1;
  proposals_.clear();
  contexts_.clear();
  double paid = 0;
  const auto most = [&] {  // nats that an arc may cost, with room for rounding
    return least_.size() < nodes ? INFINITY : static_cast<double>(least_.front() - cost) / kFixedOne - paid + 1e-5;
  };
  const auto propose = [&](uint64_t arc, uint32_t token, float arc_cost) {
    const Fixed total = cost + to_fixed(std::max(paid + static_cast<double>(arc_cost), 0.0));
    if (total >= kImpossible || (least_.size() == nodes && total > least_.front())) return;
    for (const Automaton::Arcs longer : contexts_)  // one of which hides this one
      if (lm.has_arc(longer, token)) return;
    proposals_.push_back({total, token, arc});
    if (least_.size() == nodes) {
      std::pop_heap(least_.begin(), least_.end());
      least_.pop_back();
    }
    least_.push_back(total);
    std::push_heap(least_.begin(), least_.end());
  };
  uint32_t state = opened.state;
  for (; state != kRoot; state = lm.backoff(state)) {
    const Automaton::Arcs arcs = lm.arcs(state);
    const Level& level = lm.level(lm.length(state));
    CostColumn::Limit limit = level.cost.limit(static_cast<float>(most()));
    for (uint64_t begin = arcs.begin; begin < arcs.end; begin += kBlock) {
      uint64_t cheap = level.cost.within(begin - level.first_arc, std::min(kBlock, arcs.end - begin), limit);
      for (; cheap; cheap &= cheap - 1) {
        const uint64_t arc = begin + __builtin_ctzll(cheap);
        const float arc_cost = level.cost[arc - level.first_arc];
        if (arc_cost <= most()) propose(arc, lm.checked_token(arc), arc_cost);
      }
      if (const float lower = static_cast<float>(most()); lower < limit.cost) limit = level.cost.limit(lower);
    }
    contexts_.push_back(arcs);
    paid += lm.backoff_cost(state);
  }
  for (const uint32_t token : lm.by_unigram_cost()) {
    if (!(lm.cost(token) <= most())) break;
    propose(token, token, lm.cost(token));
  }
  std::sort(proposals_.begin(), proposals_.end(),
            [](const Proposal& a, const Proposal& b) { return a.cost != b.cost ? a.cost < b.cost : a.token < b.token; });
  opened.first_child = children_.size();
  for (const Proposal& best : proposals_) {
    if (least_.size() == nodes && best.cost > least_.front()) break;
    children_.push_back({best.cost, prefix, static_cast<uint32_t>(children_.size() - opened.first_child), best.token, depth});
    arcs_.push_back(best.arc);
  }
  opened.children = children_.size() - opened.first_child;
}

int ModelTreeSearch::run(const Automaton& lm, uint32_t start, int slots, TreeOutput out) {
  clear(out);
  if (slots == 0 || out.nodes == 0) return 0;
  least_.clear();
  tree_.clear();
  children_.clear();
  arcs_.clear();
  opened_.assign(1, {start, 0, 0});
  open(tree_.add(kNone, 0, 0), 0, lm, out.nodes);
  return enumerate(
      tree_, opened_, children_, slots, out,
      [&](uint32_t prefix, Fixed cost, size_t child) {
        opened_[prefix].state = lm.next(arcs_[child], tree_.prefixes[prefix].rank);
        open(prefix, cost, lm, out.nodes);
      },
      [](const Child& child) { return static_cast<int32_t>(child.rank); });
}

}  // namespace rescore
