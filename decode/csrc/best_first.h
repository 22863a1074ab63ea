// Best-first enumeration of prefixes whose children are known in sorted order.
//
// Every opened prefix offers its children best first, one at a time: the queue holds one child for each
// opened prefix, and taking it puts the next sibling in its place. Queue entries are never prefixes of
// each other, so comparing (cost, ranks) orders everything that is still to come behind them.
#pragma once

#include <cstdint>
#include <algorithm>
#include <vector>

#include "composition.h"

namespace rescore {

struct Prefix {
  uint32_t parent;  // kNone for the empty prefix
  uint32_t rank;    // of the last token among its slot's candidates
  int depth;
};

struct Child {
  Fixed cost;
  uint32_t parent;
  uint32_t place;  // where a search keeps more about it
  uint32_t rank;
  int depth;
};

class PrefixTree {
 public:
  std::vector<Prefix> prefixes;

  void clear() { prefixes.clear(); }
  uint32_t add(uint32_t parent, uint32_t rank, int depth) {
    prefixes.push_back({parent, rank, depth});
    return static_cast<uint32_t>(prefixes.size() - 1);
  }

  // Whether a's ranks come before b's, compared from the first slot on.
  bool ranks_before(const Child& a, const Child& b) const {
    uint32_t parent_a = a.parent, parent_b = b.parent, rank_a = a.rank, rank_b = b.rank;
    int depth_a = a.depth, depth_b = b.depth;
    const auto climb = [this](uint32_t& parent, uint32_t& rank, int& depth) {
      rank = prefixes[parent].rank;
      parent = prefixes[parent].parent;
      --depth;
    };
    while (depth_a > depth_b) climb(parent_a, rank_a, depth_a);
    while (depth_b > depth_a) climb(parent_b, rank_b, depth_b);
    while (parent_a != parent_b) {
      climb(parent_a, rank_a, depth_a);
      climb(parent_b, rank_b, depth_b);
    }
    return rank_a < rank_b;
  }
};

// A heap of children, least first under `Before`(a, b).
template <typename Before>
class ChildQueue {
 public:
  explicit ChildQueue(Before before) : before_(before) {}
  bool empty() const { return heap_.empty(); }
  void clear() { heap_.clear(); }
  void push(const Child& child) {
    heap_.push_back(child);
    std::push_heap(heap_.begin(), heap_.end(), after());
  }
  Child pop() {
    std::pop_heap(heap_.begin(), heap_.end(), after());
    const Child child = heap_.back();
    heap_.pop_back();
    return child;
  }

 private:
  auto after() const {
    return [this](const Child& a, const Child& b) { return before_(b, a); };
  }
  Before before_;
  std::vector<Child> heap_;
};

}  // namespace rescore
