#include "best_paths.h"

#include <algorithm>
#include <limits>

namespace rescore {
// The node of `states` in the newest layer, t. An epsilon arc's target is interned before its source, so
// that within a layer it has the smaller number.
uint32_t PathSearch::intern(const States& states, const Models& models, Semantics semantics, int t) {
  if (const uint32_t known = layers_.find(states); known != kNone) return known;
  uint32_t target = kNone;
  Fixed weight = kImpossible;
  if (semantics == Semantics::kEpsilon && models.size() == 1 && states[0] != kRoot) {
    const Automaton& lm = *models.lm[0];
    const Automaton::Context context = contexts_.at(lm, states[0]);
    target = intern({context.backoff}, models, semantics, t);
    // An epsilon arc after the last token is weighted as in the last slot.
    weight = to_fixed(models.weight(0, std::min(t, length_ - 1)) * static_cast<double>(context.backoff_cost));
  }
  epsilon_target_.push_back(target);
  epsilon_weight_.push_back(weight);
  return layers_.add(states);
}

void PathSearch::expand_node(uint32_t node, int t, const Models& models, const Sausage& sausage, Semantics semantics) {
  const Slot& slot = slots_[t];
  const States states = layers_.states(node);
  const size_t row = static_cast<size_t>(node) * width_;
  Expansion expansion;
  uint64_t reached;  // by rank
  if (semantics == Semantics::kFailure || models.size() == 0) {
    expand(models, sausage, slot, t, states, caches_, expansion);
    reached = ~uint64_t{0};
  } else {
    std::array<uint64_t, kMaxCandidates> arc;
    std::array<double, kMaxCandidates> cost;
    const Automaton& lm = *models.lm[0];
    const uint64_t found =
        states[0] == kRoot ? lm.match_root(slot.tokens.data(), slot.all(), 0, arc.data(), cost.data())
                           : lm.match(contexts_.at(lm, states[0]), slot.tokens.data(), slot.all(), 0, arc.data(), cost.data());
    reached = 0;
    for (uint64_t left = found; left; left &= left - 1) {
      const int i = __builtin_ctzll(left);
      const int rank = slot.rank[i];
      expansion.cost[rank] = sausage.slot_cost(t)[rank] + models.weight(0, t) * cost[i];
      expansion.arc[0][rank] = arc[i];
      reached |= uint64_t{1} << rank;
    }
  }
  const auto intern_after = [&](const States& after) { return intern(after, models, semantics, t + 1); };
  for (int rank = 0; rank < slot.count; ++rank) {
    const Fixed weight = reached >> rank & 1 ? to_fixed(expansion.cost[rank]) : kImpossible;
    weight_[row + rank] = weight;
    target_[row + rank] = weight < kImpossible ? layers_.target(models, expansion.arcs(rank, models.size()), sausage.slot_ids(t)[rank], intern_after) : kNone;
  }
}

void PathSearch::forward(const Models& models, const Sausage& sausage, const States& start, Semantics semantics) {
  layers_.clear(models.size());
  epsilon_target_.clear();
  epsilon_weight_.clear();
  for (int j = 0; j < models.size(); ++j) caches_[j].clear();
  contexts_.clear();
  layers_.begin();
  intern(start, models, semantics, 0);
  for (int t = 0; t < length_; ++t) {
    const uint32_t first = layers_.first(t), last = layers_.size();
    expect_transitions(static_cast<size_t>(last) * width_, kMaxTransitions, t);
    weight_.resize(static_cast<size_t>(last) * width_);
    target_.resize(static_cast<size_t>(last) * width_);
    layers_.begin();
    for (uint32_t node = first; node < last; ++node) expand_node(node, t, models, sausage, semantics);
  }
}

void PathSearch::backward() {
  completion_.resize(layers_.size());
  for (int t = length_; t >= 0; --t) {
    for (uint32_t node = layers_.first(t); node < layers_.first(t + 1); ++node) {
      Fixed best = t == length_ ? 0 : kImpossible;
      if (t < length_) {
        const size_t row = static_cast<size_t>(node) * width_;
        for (int rank = 0; rank < slots_[t].count; ++rank)
          if (target_[row + rank] != kNone) best = std::min(best, weight_[row + rank] + completion_[target_[row + rank]]);
      }
      if (epsilon_target_[node] != kNone)
        best = std::min(best, epsilon_weight_[node] + completion_[epsilon_target_[node]]);
      completion_[node] = std::min(best, kImpossible);
    }
  }
}

void PathSearch::add_member(size_t first, uint32_t node, Fixed cost) {
  for (; node != kNone && cost < kImpossible; cost += epsilon_weight_[node], node = epsilon_target_[node]) {
    const auto known = std::find_if(members_.begin() + first, members_.end(), [node](const Member& m) { return m.node == node; });
    if (known == members_.end()) {
      members_.push_back({node, cost});
    } else if (cost < known->cost) {
      known->cost = cost;
    } else {
      return;  // and so its epsilon chain is already there at least as cheaply
    }
  }
}

// Sorts the children of a prefix whose members are the last ones in members_.
void PathSearch::open(uint32_t prefix) {
  Opened& opened = opened_[prefix];
  const int t = tree_.prefixes[prefix].depth;
  opened.first_child = children_.size();
  for (int rank = 0; rank < slots_[t].count; ++rank) {
    Fixed best = kImpossible;
    for (size_t m = opened.first_member; m < opened.first_member + opened.members; ++m) {
      const size_t at = static_cast<size_t>(members_[m].node) * width_ + rank;
      if (target_[at] != kNone) best = std::min(best, members_[m].cost + weight_[at] + completion_[target_[at]]);
    }
    if (best < kImpossible) children_.push_back({best, prefix, 0, static_cast<uint32_t>(rank), t + 1});
  }
  opened.children = children_.size() - opened.first_child;
  std::sort(children_.begin() + opened.first_child, children_.end(),
            [](const Child& a, const Child& b) { return a.cost != b.cost ? a.cost < b.cost : a.rank < b.rank; });
  for (size_t i = 0; i < opened.children; ++i) children_[opened.first_child + i].place = static_cast<uint32_t>(i);
}

void PathSearch::spell(uint32_t prefix, const Sausage& sausage, int32_t* tokens) const {
  for (; tree_.prefixes[prefix].parent != kNone; prefix = tree_.prefixes[prefix].parent) {
    const Prefix& last = tree_.prefixes[prefix];
    tokens[last.depth - 1] = sausage.slot_ids(last.depth - 1)[last.rank];
  }
}

int PathSearch::run(const Models& models, const Sausage& sausage, const States& start, Semantics semantics, PathOutput out) {
  length_ = sausage.length();
  width_ = sausage.width;
  for (int t = 0; t < length_; ++t) slots_[t] = Slot(sausage, t);
  std::fill(out.tokens, out.tokens + static_cast<size_t>(out.paths) * sausage.slots, -1);
  std::fill(out.cost, out.cost + out.paths, std::numeric_limits<float>::infinity());
  if (length_ == 0) return 0;
  forward(models, sausage, start, semantics);
  backward();

  tree_.clear();
  opened_.clear();
  members_.clear();
  children_.clear();
  ChildQueue queue([this](const Child& a, const Child& b) {
    return a.cost != b.cost ? a.cost < b.cost : tree_.ranks_before(a, b);
  });
  const auto offer = [&](uint32_t prefix, size_t place) {
    if (place < opened_[prefix].children) queue.push(children_[opened_[prefix].first_child + place]);
  };
  tree_.add(kNone, 0, 0);
  // The start node is the last one of its layer: its epsilon chain was interned before it.
  add_member(0, layers_.first(1) - 1, 0);
  opened_.push_back({0, members_.size(), 0, 0});
  open(0);
  offer(0, 0);

  int found = 0;
  while (found < out.paths && !queue.empty()) {
    const Child child = queue.pop();
    offer(child.parent, child.place + 1);
    const uint32_t prefix = tree_.add(child.parent, child.rank, child.depth);
    opened_.push_back({members_.size(), 0, 0, 0});
    if (child.depth == length_) {
      out.cost[found] = to_cost(child.cost);
      spell(prefix, sausage, out.tokens + static_cast<size_t>(found) * sausage.slots);
      ++found;
      continue;
    }
    const Opened parent = opened_[child.parent];
    for (size_t m = parent.first_member; m < parent.first_member + parent.members; ++m) {
      const Member from = members_[m];
      const size_t at = static_cast<size_t>(from.node) * width_ + child.rank;
      if (target_[at] != kNone) add_member(opened_[prefix].first_member, target_[at], from.cost + weight_[at]);
    }
    opened_[prefix].members = members_.size() - opened_[prefix].first_member;
    open(prefix);
    offer(prefix, 0);
  }
  return found;
}

}  // namespace rescore
