#include "best_paths.h"

#include <algorithm>
#include <limits>

namespace rescore {

int PathSearch::run(const Models& models, const Sausage& sausage, const States& start, Semantics semantics, PathOutput out) {
  std::fill(out.tokens, out.tokens + static_cast<size_t>(out.paths) * sausage.slots, -1);
  std::fill(out.cost, out.cost + out.paths, std::numeric_limits<float>::infinity());
  const int length = sausage.length();
  if (length == 0) return 0;
  semantics_ = semantics;
  read_slots(sausage, slots_);
  if (models.size() == 1)
    composer_.run(*models.lm[0], sausage, slots_, start[0], {models.alpha.data(), true}, semantics == Semantics::kEpsilon, lattice_);
  else
    product_.run(models, sausage, slots_, start, lattice_);
  completions_.run(lattice_, length, semantics);
  return search(sausage, out);
}

int PathSearch::search(const Sausage& sausage, PathOutput out) {
  const int length = sausage.length();
  tree_.clear();
  opened_.clear();
  members_.clear();
  children_.clear();
  ChildQueue queue([this](const Child& a, const Child& b) { return a.cost != b.cost ? a.cost < b.cost : tree_.ranks_before(a, b); });
  const auto offer = [&](uint32_t prefix, size_t place) {
    if (place < opened_[prefix].children) queue.push(children_[opened_[prefix].first_child + place]);
  };
  members_.push_back({lattice_.start, 0});
  opened_.push_back({0, 1, 0, 0});
  tree_.add(kNone, 0, 0);
  open(0, 0);
  offer(0, 0);

  int found = 0;
  while (found < out.paths && !queue.empty()) {
    const Child child = queue.pop();
    offer(child.parent, child.place + 1);
    const uint32_t prefix = tree_.add(child.parent, child.rank, child.depth);
    opened_.push_back({members_.size(), 0, 0, 0});
    if (child.depth == length) {
      out.cost[found] = to_cost(child.cost);
      spell(prefix, sausage, out.tokens + static_cast<size_t>(found) * sausage.slots);
      ++found;
      continue;
    }
    follow(child.parent, slots_[child.depth - 1].place(child.rank));
    open(prefix, child.depth);
    offer(prefix, 0);
  }
  return found;
}

// visit(token, arc, weight of the prefix before it) for what may follow the member.
template <typename Visit>
void PathSearch::read(const Member& member, Visit visit) const {
  lattice_.read(member.node, semantics_ == Semantics::kFailure, [&](int token, uint32_t arc, Fixed paid) { visit(token, arc, member.weight + paid); });
}

// Sorts the children of a prefix.
void PathSearch::open(uint32_t prefix, int t) {
  Opened& opened = opened_[prefix];
  const Slot& slot = slots_[t];
  std::array<Fixed, kMaxCandidates> best;
  std::fill_n(best.begin(), slot.count, kImpossible);
  for (size_t m = opened.first_member; m < opened.first_member + opened.members; ++m)
    read(members_[m], [&](int token, uint32_t arc, Fixed weight) { best[token] = std::min(best[token], weight + completions_.of_arc(arc)); });
  opened.first_child = children_.size();
  for (int i = 0; i < slot.count; ++i)
    if (best[i] < kImpossible) children_.push_back({best[i], prefix, 0, slot.rank[i], t + 1});
  opened.children = children_.size() - opened.first_child;
  std::sort(children_.begin() + opened.first_child, children_.end(),
            [](const Child& a, const Child& b) { return a.cost != b.cost ? a.cost < b.cost : a.rank < b.rank; });
  for (size_t i = 0; i < opened.children; ++i) children_[opened.first_child + i].place = static_cast<uint32_t>(i);
}

// The members of the newest prefix: where those of `from` go with a token.
void PathSearch::follow(uint32_t from, int token) {
  Opened& newest = opened_.back();
  const Opened parent = opened_[from];
  for (size_t m = parent.first_member; m < parent.first_member + parent.members; ++m) {
    const Member member = members_[m];
    read(member, [&](int other, uint32_t arc, Fixed weight) {
      const FailureLattice::Arc& taken = lattice_.arcs[arc];
      if (other == token && taken.weight < kImpossible) add_member(newest.first_member, {taken.target, weight + taken.weight});
    });
  }
  newest.members = members_.size() - newest.first_member;
}

void PathSearch::add_member(size_t first, Member member) {
  const auto known = std::find_if(members_.begin() + first, members_.end(), [&](const Member& m) { return m.node == member.node; });
  if (known == members_.end())
    members_.push_back(member);
  else
    known->weight = std::min(known->weight, member.weight);
}

void PathSearch::spell(uint32_t prefix, const Sausage& sausage, int32_t* tokens) const {
  for (; tree_.prefixes[prefix].parent != kNone; prefix = tree_.prefixes[prefix].parent) {
    const Prefix& last = tree_.prefixes[prefix];
    tokens[last.depth - 1] = sausage.slot_ids(last.depth - 1)[last.rank];
  }
}

}  // namespace rescore
