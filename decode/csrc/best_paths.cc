#include "best_paths.h"

#include <algorithm>
#include <limits>

namespace rescore {

int PathSearch::run(const Models& models, const Sausage& sausage, const Starts& starts, PathOutput out) {
  std::fill(out.tokens, out.tokens + static_cast<size_t>(out.paths) * sausage.slots, -1);
  std::fill(out.cost, out.cost + out.paths, std::numeric_limits<float>::infinity());
  const int length = sausage.length();
  if (length == 0) return 0;
  read_slots(sausage, slots_);
  product_.run(models, sausage, slots_, starts, kMaxTransitions, lattice_);
  completions_.run(lattice_, slots_, length);
  return search(sausage, out);
}

int PathSearch::search(const Sausage& sausage, PathOutput out) {
  const int length = sausage.length();
  tree_.clear();
  queue_.clear();
  opened_.clear();
  totals_.clear();
  opened_.push_back({lattice_.start, 0, 0});
  uint32_t parent = tree_.add(kNone, 0, 0);
  open(parent, 0);
  if (!next(parent)) return 0;
  for (int found = 0;;) {
    const Offer taken = tree_.offers[parent];
    const int depth = tree_.prefixes[parent].depth + 1;
    if (found + 1 < out.paths && next(parent)) queue_.push(tree_.offers[parent].cost, parent);
    const uint32_t prefix = tree_.add(parent, taken.rank, depth);
    opened_.push_back({kNone, 0, 0});
    if (depth < length) {
      // Completions are exact, so the best child of a prefix costs the same: nothing queued precedes it.
      follow(parent, slots_[depth - 1].place(taken.rank));
      open(prefix, depth);
      next(prefix);
      parent = prefix;
      continue;
    }
    out.cost[found] = to_cost(taken.cost);
    spell(prefix, sausage, out.tokens + static_cast<size_t>(found) * sausage.slots);
    if (++found == out.paths || !queue_.size()) return found;
    parent = queue_.top();
    queue_.pop();
  }
}

// Computes the totals of a prefix's children.
void PathSearch::open(uint32_t prefix, int t) {
  Opened& opened = opened_[prefix];
  const Slot& slot = slots_[t];
  opened.first_total = totals_.size();
  totals_.resize(totals_.size() + slot.count);
  std::array<Fixed, kMaxCandidates> by_token;
  completions_.totals(opened.node, opened.weight, slot.count, by_token.data());
  for (int i = 0; i < slot.count; ++i) totals_[opened.first_total + slot.rank[i]] = by_token[i];
}

// Offers the best child of a prefix that was not taken yet; false if there is none.
bool PathSearch::next(uint32_t prefix) {
  const int count = slots_[tree_.prefixes[prefix].depth].count;
  Fixed* total = &totals_[opened_[prefix].first_total];
  Fixed least = kImpossible;
  int best = 0;
  for (int rank = 0; rank < count; ++rank) {
    best = total[rank] < least ? rank : best;
    least = std::min(least, total[rank]);
  }
  if (!possible(least)) return false;
  total[best] = kImpossible;
  tree_.offers[prefix] = {least, static_cast<uint32_t>(best), 0};
  return true;
}

// Sets the newest prefix's node and weight: those of `from` and a token that can follow it.
void PathSearch::follow(uint32_t from, int token) {
  lattice_.find(opened_[from].node, token, [&](const FailureLattice::Arc& arc, Fixed paid) {
    opened_.back().node = arc.target;
    opened_.back().weight = opened_[from].weight + paid + arc.weight;
  });
}

void PathSearch::spell(uint32_t prefix, const Sausage& sausage, int32_t* tokens) const {
  for (; tree_.prefixes[prefix].parent != kNone; prefix = tree_.prefixes[prefix].parent) {
    const Prefix& last = tree_.prefixes[prefix];
    tokens[last.depth - 1] = sausage.slot_ids(last.depth - 1)[last.rank];
  }
}

}  // namespace rescore
