#include "best_paths.h"

#include <algorithm>
#include <limits>

namespace rescore {
namespace {

constexpr int kSeenBits = 9;

// A loop, as these are one or two numbers: a call of memcmp takes longer.
template <typename A, typename B>
bool same_numbers(const A& a, const B& b, int count) {
  for (int j = 0; j < count; ++j)
    if (a[j] != b[j]) return false;
  return true;
}

constexpr size_t kMaxTransitions = size_t{1} << 26;  // 0.8 GB of them

}  // namespace

size_t PathSearch::hash(const States& states, int models) const {
  uint64_t key = 0;
  for (int j = 0; j < models; ++j) key = (key ^ states[j]) * 0x9E3779B97F4A7C15ull;
  return (key >> 32) & table_mask_;
}

void PathSearch::begin_layer() {
  layer_begin_.push_back(static_cast<uint32_t>(states_.size()));
  table_.assign(256, kNone);
  table_mask_ = table_.size() - 1;
  seen_node_.assign(size_t{1} << kSeenBits, kNone);
}

void PathSearch::grow_table(int models) {
  table_.assign(table_.size() * 2, kNone);
  table_mask_ = table_.size() - 1;
  for (uint32_t node = layer_begin_.back(); node < states_.size(); ++node) {
    size_t at = hash(states_[node], models);
    while (table_[at] != kNone) at = (at + 1) & table_mask_;
    table_[at] = node;
  }
}

// The node of `states` in the newest layer, t. An epsilon arc's target is interned before its source, so
// that within a layer it has the smaller number.
uint32_t PathSearch::intern(const States& states, const Models& models, Semantics semantics, int t) {
  const auto same = [&](uint32_t node) { return same_numbers(states, states_[node], models.size()); };
  const auto probe = [&] {
    size_t at = hash(states, models.size());
    while (table_[at] != kNone && !same(table_[at])) at = (at + 1) & table_mask_;
    return at;
  };
  if (const uint32_t known = table_[probe()]; known != kNone) return known;
  uint32_t target = kNone;
  Fixed weight = kImpossible;
  if (semantics == Semantics::kEpsilon && models.size() == 1 && states[0] != kRoot) {
    const Automaton& lm = *models.lm[0];
    const Automaton::Context context = caches_[0].at(lm, states[0]);
    target = intern({context.backoff}, models, semantics, t);
    // An epsilon arc after the last token is weighted as in the last slot.
    weight = to_fixed(models.weight(0, std::min(t, length_ - 1)) * static_cast<double>(context.backoff_cost));
  }
  const uint32_t node = static_cast<uint32_t>(states_.size());
  states_.push_back(states);
  epsilon_target_.push_back(target);
  epsilon_weight_.push_back(weight);
  if (2 * (states_.size() - layer_begin_.back()) > table_.size()) {
    grow_table(models.size());
  } else {
    table_[probe()] = node;
  }
  return node;
}

// The node of layer t that arcs lead to. Most nodes of a layer back off to the same few, whose arcs come again.
uint32_t PathSearch::target(const TakenArcs& arcs, uint32_t token, const Models& models, Semantics semantics, int t) {
  uint64_t key = 0;
  for (int j = 0; j < models.size(); ++j) key = (key ^ arcs[j]) * 0x9E3779B97F4A7C15ull;
  const size_t at = key >> (64 - kSeenBits);
  uint64_t* seen = &seen_arcs_[at * models.size()];
  if (seen_node_[at] != kNone && same_numbers(seen, arcs, models.size())) return seen_node_[at];
  for (int j = 0; j < models.size(); ++j) seen[j] = arcs[j];
  return seen_node_[at] = intern(models.next(arcs, token), models, semantics, t);
}

void PathSearch::expand_node(uint32_t node, int t, const Models& models, const Sausage& sausage, Semantics semantics) {
  const Slot& slot = slots_[t];
  const States states = states_[node];
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
                           : lm.match(caches_[0].at(lm, states[0]), slot.tokens.data(), slot.all(), 0, arc.data(), cost.data());
    reached = 0;
    for (uint64_t left = found; left; left &= left - 1) {
      const int i = __builtin_ctzll(left);
      const int rank = slot.rank[i];
      expansion.weight[rank] = to_fixed(sausage.slot_cost(t)[rank] + models.weight(0, t) * cost[i]);
      expansion.arc[0][rank] = arc[i];
      reached |= uint64_t{1} << rank;
    }
  }
  for (int rank = 0; rank < slot.count; ++rank) {
    const bool exists = (reached >> rank & 1) && expansion.weight[rank] < kImpossible;
    weight_[row + rank] = exists ? expansion.weight[rank] : kImpossible;
    target_[row + rank] = exists ? target(expansion.arcs(rank, models.size()), sausage.slot_ids(t)[rank], models, semantics, t + 1) : kNone;
  }
}

void PathSearch::forward(const Models& models, const Sausage& sausage, const States& start, Semantics semantics) {
  states_.clear();
  layer_begin_.clear();
  epsilon_target_.clear();
  epsilon_weight_.clear();
  for (int j = 0; j < models.size(); ++j) caches_[j].clear();
  seen_arcs_.resize(std::max<size_t>(models.size(), 1) << kSeenBits);
  begin_layer();
  intern(start, models, semantics, 0);
  for (int t = 0; t < length_; ++t) {
    const uint32_t first = layer_begin_.back(), last = static_cast<uint32_t>(states_.size());
    if (static_cast<size_t>(last) * width_ > kMaxTransitions)
      throw std::length_error("the composition has more than " + std::to_string(kMaxTransitions) +
                              " transitions at slot " + std::to_string(t) + "; ask for a smaller top-k or fewer models");
    weight_.resize(static_cast<size_t>(last) * width_);
    target_.resize(static_cast<size_t>(last) * width_);
    begin_layer();
    for (uint32_t node = first; node < last; ++node) expand_node(node, t, models, sausage, semantics);
  }
  layer_begin_.push_back(static_cast<uint32_t>(states_.size()));
}

void PathSearch::backward() {
  completion_.resize(states_.size());
  for (int t = length_; t >= 0; --t) {
    for (uint32_t node = layer_begin_[t]; node < layer_begin_[t + 1]; ++node) {
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
  add_member(0, layer_begin_[1] - 1, 0);
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
