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
    walks_.push_back(start);
    opened_.clear();
    return best_.run(
        length, out,
        [&](uint32_t prefix, const Child& child) {
          opened_.resize(prefix + 1);
          if (prefix) {
            opened_[prefix].walk = walks_.size();
            walks_.push_back(Walk(walks_[opened_[child.parent].walk]));
            walks_.back().take(child.depth - 1, child.rank);
          }
          open(prefix, child.cost, child.depth, sausage);
        },
        [&](uint32_t prefix, Child& child) {
          Opened& opened = opened_[prefix];
          if (opened.next == opened.end) return false;
          child = children_[opened.next++];
          return true;
        },
        [&](const Child& child) { return sausage.slot_ids(child.depth - 1)[child.rank]; });
  }

 private:
  struct Opened {
    size_t walk, next, end;  // children not yet offered
  };

  // Sorts the children of a prefix that costs so much.
  void open(uint32_t prefix, Fixed cost, int t, const Sausage& sausage) {
    Opened& opened = opened_[prefix];
    const double* logq = walks_[opened.walk].row(t);
    opened.next = children_.size();
    for (int rank = 0; rank < sausage.candidates(t); ++rank)
      if (logq[rank] != -std::numeric_limits<double>::infinity())
        children_.push_back({cost + to_fixed(std::max(-logq[rank], 0.0)), prefix, 0, static_cast<uint32_t>(rank), t + 1});
    opened.end = children_.size();
    std::sort(children_.begin() + opened.next, children_.end(),
              [](const Child& a, const Child& b) { return a.cost != b.cost ? a.cost < b.cost : a.rank < b.rank; });
  }

  BestPrefixes best_;
  std::vector<Walk> walks_;  // of the prefixes that were opened
  std::vector<Opened> opened_;
  std::vector<Child> children_;
};

}  // namespace rescore
