// A heap of prefixes, cheapest offer first.
#pragma once

#include <cstdint>
#include <vector>

#include "weight.h"

namespace rescore {

// Before(a, b): whether prefix a precedes b when their offers cost the same. Sinking is branch-free and always goes to
// the bottom, since comparisons of costs are hard to predict.
template <typename Before>
class PrefixQueue {
 public:
  explicit PrefixQueue(Before before) : before_(before) {}

  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  uint32_t top() const { return prefix_[0]; }

  void push(Fixed cost, uint32_t prefix) {
    if (size_ == cost_.size()) {
      cost_.push_back(0);
      prefix_.push_back(0);
    }
    rise(size_++, cost, prefix);
  }
  void pop() {
    --size_;
    sink(cost_[size_], prefix_[size_]);
  }
  // Replaces the first prefix's offer by one that costs as much or more.
  void replace(Fixed cost) { sink(cost, prefix_[0]); }

 private:
  bool precedes(size_t a, Fixed cost, uint32_t prefix) const {
    const bool cheaper = cost_[a] < cost;
    return __builtin_expect(cost_[a] == cost, false) ? before_(prefix_[a], prefix) : cheaper;
  }
  // Fills the first place by moving the lesser children up to the bottom, then inserts the prefix there.
  void sink(Fixed cost, uint32_t prefix) {
    size_t hole = 0;
    for (size_t child = 1; child < size_; child = 2 * hole + 1) {
      const size_t other = child + 1 < size_ ? child + 1 : child;
      child += (other != child) & precedes(other, cost_[child], prefix_[child]);
      move(child, hole);
      hole = child;
    }
    rise(hole, cost, prefix);
  }
  void rise(size_t hole, Fixed cost, uint32_t prefix) {
    while (hole && !precedes((hole - 1) / 2, cost, prefix)) {
      move((hole - 1) / 2, hole);
      hole = (hole - 1) / 2;
    }
    cost_[hole] = cost;
    prefix_[hole] = prefix;
  }
  void move(size_t from, size_t to) {
    cost_[to] = cost_[from];
    prefix_[to] = prefix_[from];
  }

  Before before_;
  size_t size_ = 0;
  std::vector<Fixed> cost_;  // of the offers
  std::vector<uint32_t> prefix_;
};

}  // namespace rescore
