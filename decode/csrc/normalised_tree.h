// The n most probable prefixes of a pushed lattice.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "best_prefixes.h"
#include "normalised.h"
#include "sausage.h"

namespace rescore {

// A prefix has the probability q(prefix), the sum over the drafts that begin with it. Its children are the candidates
// of the next slot, with q(w | prefix).
class NormalisedTreeSearch {
 public:
  // `start` has taken no token yet. Returns the number of prefixes.
  int run(const PushedWalk& start, const Sausage& sausage, TreeOutput out) {
    walks_.clear();
    best_.begin(sausage.length(), out);
    while (best_.advance([&](int depth, const Offer& offer) { return sausage.slot_ids(depth)[offer.rank]; })) {
      const Opening& opening = best_.opening();
      walks_.push_back(opening.depth ? PushedWalk(walks_[opening.parent]) : start);
      if (opening.depth) walks_.back().take(opening.depth - 1, opening.offer.rank);
      open(opening, sausage);
    }
    return best_.found();
  }

 private:
  // Offers the children of a prefix, sorted.
  void open(const Opening& opening, const Sausage& sausage) {
    const double* logq = walks_[opening.number].row(opening.depth);
    children_.clear();
    for (int rank = 0; rank < sausage.candidates(opening.depth); ++rank)
      if (logq[rank] != -std::numeric_limits<double>::infinity())
        children_.push_back(
            {opening.offer.cost + to_fixed(std::max(-logq[rank], 0.0)), static_cast<uint32_t>(rank), 0});
    std::sort(children_.begin(), children_.end(),
              [](const Offer& a, const Offer& b) { return a.cost != b.cost ? a.cost < b.cost : a.rank < b.rank; });
    for (const Offer& child : children_) best_.offer(child.cost, child.rank, child.place);
    best_.end_prefix();
  }

  BestPrefixes best_;
  std::vector<PushedWalk> walks_;  // of the opened prefixes
  std::vector<Offer> children_;    // of one
};

}  // namespace rescore
