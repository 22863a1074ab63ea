#include "best_tree.h"

#include <algorithm>
#include <limits>

namespace rescore {
namespace {

struct LessProbableLater {
  const PrefixTree* tree;
  bool operator()(const Child& a, const Child& b) const {
    if (a.cost != b.cost) return a.cost < b.cost;
    if (a.depth != b.depth) return a.depth < b.depth;
    return tree->ranks_before(a, b);
  }
};

void clear(TreeOutput out) {
  std::fill(out.tokens, out.tokens + out.nodes, -1);
  std::fill(out.parents, out.parents + out.nodes, -1);
  std::fill(out.depths, out.depths + out.nodes, 0);
  std::fill(out.logq, out.logq + out.nodes, -std::numeric_limits<float>::infinity());
}

// Takes the best child over and over: `open(prefix, cost, states of child)` sorts a prefix's children,
// `token(child)` names a child's token. Prefix 0 is empty and already open; prefix i + 1 is node i.
template <typename Opened, typename Open, typename Token>
int enumerate(PrefixTree& tree, std::vector<Opened>& opened, const std::vector<Child>& children, int length,
              TreeOutput out, Open open, Token token) {
  ChildQueue<LessProbableLater> queue(LessProbableLater{&tree});
  const auto offer = [&](uint32_t prefix, size_t place) {
    if (place < opened[prefix].children) queue.push(children[opened[prefix].first_child + place]);
  };
  offer(0, 0);
  int found = 0;
  while (found < out.nodes && !queue.empty()) {
    const Child child = queue.pop();
    offer(child.parent, child.place + 1);
    const size_t at = opened[child.parent].first_child + child.place;
    out.tokens[found] = token(child);
    out.parents[found] = static_cast<int32_t>(child.parent) - 1;
    out.depths[found] = child.depth;
    out.logq[found] = -to_cost(child.cost);
    ++found;
    const uint32_t prefix = tree.add(child.parent, child.rank, child.depth);
    opened.push_back({});
    if (child.depth < length && found < out.nodes) {
      open(prefix, child.cost, at);
      offer(prefix, 0);
    }
  }
  return found;
}

}  // namespace

void LatticeTreeSearch::open(uint32_t prefix, Fixed cost, const Models& models, const Sausage& sausage) {
  Opened& opened = opened_[prefix];
  const int t = tree_.prefixes[prefix].depth;
  Expansion expansion;
  expand(models, sausage, slots_[t], t, opened.states, expansion);
  // The softmax over the slot's candidates, in nats.
  Fixed least = kImpossible;
  for (int rank = 0; rank < slots_[t].count; ++rank) least = std::min(least, expansion.weight[rank]);
  opened.first_child = children_.size();
  if (least >= kImpossible) return;
  double total = 0;
  for (int rank = 0; rank < slots_[t].count; ++rank)
    if (expansion.weight[rank] < kImpossible) total += std::exp((least - expansion.weight[rank]) / kFixedOne);
  const Fixed log_total = to_fixed(std::log(total));
  std::array<uint8_t, kMaxCandidates> order;
  int count = 0;
  for (int rank = 0; rank < slots_[t].count; ++rank)
    if (expansion.weight[rank] < kImpossible) order[count++] = rank;
  std::sort(order.begin(), order.begin() + count, [&](uint8_t a, uint8_t b) {
    return expansion.weight[a] != expansion.weight[b] ? expansion.weight[a] < expansion.weight[b] : a < b;
  });
  for (int place = 0; place < count; ++place) {
    const int rank = order[place];
    const Fixed step = expansion.weight[rank] - least + log_total;
    children_.push_back({cost + step, prefix, static_cast<uint32_t>(place), static_cast<uint32_t>(rank), t + 1});
    next_.push_back(expansion.next[rank]);
  }
  opened.children = count;
}

int LatticeTreeSearch::run(const Models& models, const Sausage& sausage, const States& start, TreeOutput out) {
  clear(out);
  const int length = sausage.length();
  if (length == 0) return 0;
  for (int t = 0; t < length; ++t) slots_[t] = Slot(sausage, t);
  tree_.clear();
  children_.clear();
  next_.clear();
  opened_.assign(1, {start, 0, 0});
  open(tree_.add(kNone, 0, 0), 0, models, sausage);
  return enumerate(
      tree_, opened_, children_, length, out,
      [&](uint32_t prefix, Fixed cost, size_t child) {
        opened_[prefix].states = next_[child];
        open(prefix, cost, models, sausage);
      },
      [&](const Child& child) { return sausage.slot_ids(child.depth - 1)[child.rank]; });
}

// The `most` cheapest tokens in a state. Arcs of longer contexts hide those of shorter ones; of the root,
// whose arcs are all tokens, only the cheapest that nothing hides are looked at.
void ModelTreeSearch::open(uint32_t prefix, Fixed cost, const Automaton& lm, size_t most) {
  Opened& opened = opened_[prefix];
  const int depth = tree_.prefixes[prefix].depth + 1;
  opened.first_child = children_.size();
  ++opening_;
  proposals_.clear();
  const auto propose = [&](uint32_t token, double token_cost, uint64_t arc) {
    if (seen_[token] == opening_) return false;
    seen_[token] = opening_;
    const Fixed fixed = to_fixed(std::max(token_cost, 0.0));
    if (fixed < kImpossible) proposals_.push_back({fixed, token, lm.next(arc)});
    return true;
  };
  double paid = 0;
  uint32_t state = opened.state;
  for (; state != kRoot; state = lm.backoff(state)) {
    const Automaton::Arcs arcs = lm.arcs(state);
    for (uint64_t arc = arcs.begin; arc < arcs.end; ++arc) {
      propose(lm.checked_token(arc), paid + lm.arc_cost[arc], arc);
    }
    paid += lm.backoff_cost[state];
  }
  size_t taken = 0;
  for (const uint32_t token : lm.by_unigram_cost()) {
    if (taken == most) break;
    taken += propose(token, paid + lm.arc_cost[token], token);
  }
  const size_t count = std::min(most, proposals_.size());
  std::partial_sort(proposals_.begin(), proposals_.begin() + count, proposals_.end(), [](const Proposal& a, const Proposal& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.token < b.token;
  });
  for (size_t place = 0; place < count; ++place) {
    const Proposal& best = proposals_[place];
    children_.push_back({cost + best.cost, prefix, static_cast<uint32_t>(place), best.token, depth});
    next_.push_back(best.next);
  }
  opened.children = count;
}

int ModelTreeSearch::run(const Automaton& lm, uint32_t start, int slots, TreeOutput out) {
  clear(out);
  if (slots == 0 || out.nodes == 0) return 0;
  if (seen_.size() < lm.vocab_size) seen_.assign(lm.vocab_size, 0);
  tree_.clear();
  children_.clear();
  next_.clear();
  opened_.assign(1, {start, 0, 0});
  open(tree_.add(kNone, 0, 0), 0, lm, out.nodes);
  return enumerate(
      tree_, opened_, children_, slots, out,
      [&](uint32_t prefix, Fixed cost, size_t child) {
        opened_[prefix].state = next_[child];
        open(prefix, cost, lm, out.nodes);
      },
      [](const Child& child) { return static_cast<int32_t>(child.rank); });
}

}  // namespace rescore
