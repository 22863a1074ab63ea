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
    tree_.clear();
    children_.clear();
    walks_.clear();
    walks_.push_back(start);
    opened_.assign(1, {0, 0, 0});
    open(tree_.add(kNone, 0, 0), 0, sausage);
    return enumerate(
        tree_, opened_, children_, length, out,
        [&](uint32_t prefix, Fixed cost, size_t) {
          const Prefix& last = tree_.prefixes[prefix];
          opened_[prefix].walk = walks_.size();
          walks_.push_back(Walk(walks_[opened_[last.parent].walk]));
          walks_.back().take(last.depth - 1, last.rank);
          open(prefix, cost, sausage);
        },
        [&](const Child& child) { return sausage.slot_ids(child.depth - 1)[child.rank]; });
  }

 private:
  struct Opened {
    size_t walk, first_child, children;
  };

  // Sorts the children of a prefix that costs so much.
  void open(uint32_t prefix, Fixed cost, const Sausage& sausage) {
    Opened& opened = opened_[prefix];
    const int t = tree_.prefixes[prefix].depth;
    const double* logq = walks_[opened.walk].row(t);
    opened.first_child = children_.size();
    for (int rank = 0; rank < sausage.candidates(t); ++rank)
      if (logq[rank] != -std::numeric_limits<double>::infinity())
        children_.push_back({cost + to_fixed(std::max(-logq[rank], 0.0)), prefix, 0, static_cast<uint32_t>(rank), t + 1});
    opened.children = children_.size() - opened.first_child;
    std::sort(children_.begin() + opened.first_child, children_.end(),
              [](const Child& a, const Child& b) { return a.cost != b.cost ? a.cost < b.cost : a.rank < b.rank; });
    for (size_t i = 0; i < opened.children; ++i) children_[opened.first_child + i].place = static_cast<uint32_t>(i);
  }

  PrefixTree tree_;
  std::vector<Walk> walks_;  // of the prefixes that were opened
  std::vector<Opened> opened_;
  std::vector<Child> children_;
};

}  // namespace rescore
