// The n most probable prefixes of a normalised lattice. Walk: PushedWalk or LocalWalk.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "best_prefixes.h"
#include "sausage.h"

namespace rescore {

// A prefix of the lattice has the probability q(prefix), the sum over the drafts that begin with it. What follows it are
// the candidates of the next slot, by q(w | prefix).
template <typename Walk>
class NormalisedTreeSearch {
 public:
  // `start` has taken no token yet. Returns how many prefixes there are.
  int run(const Walk& start, const Sausage& sausage, TreeOutput out) {
    clear(out);
    const int length = sausage.length();
    if (length == 0) return 0;
    children_.clear();
    walks_.clear();
    opened_.clear();
    return best_.run(
        length, out, 1,
        [&](const Opening* opening, int) {
          walks_.push_back(opening->depth ? Walk(walks_[opening->parent]) : start);
          if (opening->depth) walks_.back().take(opening->depth - 1, opening->offer.rank);
          open(*opening, sausage);
        },
        [&](uint32_t number, Offer& offer) {
          Opened& opened = opened_[number];
          if (opened.next == opened.end) return false;
          offer = children_[opened.next++];
          return true;
        },
        [&](int depth, const Offer& offer) { return sausage.slot_ids(depth)[offer.rank]; });
  }

 private:
  struct Opened {
    size_t next, end;  // children not yet offered
  };

  // Sorts the children of a prefix.
  void open(const Opening& opening, const Sausage& sausage) {
    const double* logq = walks_[opening.number].row(opening.depth);
    const size_t first = children_.size();
    for (int rank = 0; rank < sausage.candidates(opening.depth); ++rank)
      if (logq[rank] != -std::numeric_limits<double>::infinity())
        children_.push_back({opening.offer.cost + to_fixed(std::max(-logq[rank], 0.0)), static_cast<uint32_t>(rank), 0});
    opened_.push_back({first, children_.size()});
    std::sort(children_.begin() + first, children_.end(),
              [](const Offer& a, const Offer& b) { return a.cost != b.cost ? a.cost < b.cost : a.rank < b.rank; });
  }

  BestPrefixes best_;
  // Of the prefixes that were opened.
  std::vector<Walk> walks_;
  std::vector<Opened> opened_;
  std::vector<Offer> children_;
};

}  // namespace rescore
