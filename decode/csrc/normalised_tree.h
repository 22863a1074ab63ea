// The n most probable prefixes of a normalised lattice. Walk: PushedWalk or LocalWalk.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "best_prefixes.h"
#include "sausage.h"

namespace rescore {

// A prefix has the probability q(prefix), the sum over the drafts that begin with it. Its children are the candidates
// of the next slot, with q(w | prefix).
template <typename Walk>
class NormalisedTreeSearch {
 public:
  // `start` has taken no token yet. Returns the number of prefixes.
  int run(const Walk& start, const Sausage& sausage, TreeOutput out) {
    children_.clear();
    walks_.clear();
    best_.begin(sausage.length(), out, 1);
    const auto next = [&](uint32_t number, Offer& offer) { return children_.next(number, offer); };
    const auto token = [&](int depth, const Offer& offer) { return sausage.slot_ids(depth)[offer.rank]; };
    while (best_.advance(next, token)) {
      const Opening& opening = best_.openings().front();
      walks_.push_back(opening.depth ? Walk(walks_[opening.parent]) : start);
      if (opening.depth) walks_.back().take(opening.depth - 1, opening.offer.rank);
      open(opening, sausage);
    }
    return best_.found();
  }

 private:
  // Sorts the children of a prefix.
  void open(const Opening& opening, const Sausage& sausage) {
    const double* logq = walks_[opening.number].row(opening.depth);
    const size_t first = children_.offers.size();
    for (int rank = 0; rank < sausage.candidates(opening.depth); ++rank)
      if (logq[rank] != -std::numeric_limits<double>::infinity())
        children_.offers.push_back(
            {opening.offer.cost + to_fixed(std::max(-logq[rank], 0.0)), static_cast<uint32_t>(rank), 0});
    std::sort(children_.offers.begin() + first, children_.offers.end(),
              [](const Offer& a, const Offer& b) { return a.cost != b.cost ? a.cost < b.cost : a.rank < b.rank; });
    children_.end_prefix();
  }

  BestPrefixes best_;
  std::vector<Walk> walks_;  // of the opened prefixes
  SortedChildren children_;
};

}  // namespace rescore
