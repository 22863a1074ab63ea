// Merges runs: yields windows in ascending order, with the summed counts of equal ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "window_run.h"

namespace rescore {

template <int W>
class RunMerge {
 public:
  explicit RunMerge(std::vector<RunBytes> runs) {
    readers_.reserve(runs.size());
    for (RunBytes& bytes : runs) {
      readers_.emplace_back(std::move(bytes));
      if (readers_.back().next()) heap_.push_back(static_cast<uint32_t>(readers_.size() - 1));
    }
    for (size_t i = heap_.size() / 2; i-- > 0;) sink(i);
  }

  // The next window and its count; false at the end.
  bool next(WindowKey<W>& key, uint64_t& count) {
    if (heap_.empty()) return false;
    key = readers_[heap_[0]].key;
    count = 0;
    while (!heap_.empty() && readers_[heap_[0]].key == key) {
      RunReader<W>& least = readers_[heap_[0]];
      count += least.count;
      if (!least.next()) {
        heap_[0] = heap_.back();
        heap_.pop_back();
      } else if (!(key < least.key)) {
        throw std::invalid_argument("a run of counts: expected ascending windows; the file is damaged");
      }
      if (!heap_.empty()) sink(0);
    }
    return true;
  }

 private:
  void sink(size_t at) {
    const uint32_t moved = heap_[at];
    for (;;) {
      size_t child = 2 * at + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && readers_[heap_[child + 1]].key < readers_[heap_[child]].key) ++child;
      if (!(readers_[heap_[child]].key < readers_[moved].key)) break;
      heap_[at] = heap_[child];
      at = child;
    }
    heap_[at] = moved;
  }

  std::vector<RunReader<W>> readers_;
  std::vector<uint32_t> heap_;
};

}  // namespace rescore
