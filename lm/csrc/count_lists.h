// Growing lists of tokens with counts, whose greatest counts are found without reading the rest.
//
// A list is a heap: no count is greater than the count of its parent, entry (i - 1) / 2. Short lists are searched
// linearly; entries of long ones are found by a hash table that all lists share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "growing.h"

namespace rescore {

// The upper half of the product depends on both; in the lower half all keys of one token would collide.
inline size_t hash_of(uint32_t owner, uint32_t token) {
  return ((static_cast<uint64_t>(owner) << 32 | token) * 0x9E3779B97F4A7C15ull) >> 32;
}

struct CountList {
  uint32_t first = 0, size = 0;
};

class CountLists {
 public:
  static constexpr uint32_t kShort = 24;  // lists up to this size are searched linearly

  struct Entry {
    uint32_t token;
    float count;
  };

  // Adds to the count of a token; `owner` is the number of the list.
  void add(uint32_t owner, CountList& list, uint32_t token, float amount);
  // Makes an empty list one of at most kShort tokens, which are distinct, with the greatest counts first.
  void fill(CountList& list, const std::vector<Entry>& entries);
  float count(uint32_t owner, const CountList& list, uint32_t token) const {
    const uint32_t at = find(owner, list, token);
    return at == kNone ? 0 : entries_[list.first + at].count;
  }
  const Entry* entries(const CountList& list) const { return &entries_[list.first]; }

  // Calls see(token, count) for all entries whose count is at least least(), which may rise between calls.
  template <typename Least, typename See>
  void greatest(const CountList& list, Least least, See see) const {
    if (!list.size) return;
    const Entry* heap = entries(list);
    std::array<uint32_t, 64> open;  // a path down the heap, and its siblings
    int depth = 0;
    open[depth++] = 0;
    while (depth) {
      const uint32_t at = open[--depth];
      if (heap[at].count < least()) continue;
      see(heap[at].token, heap[at].count);
      for (const uint32_t child : {2 * at + 2, 2 * at + 1})
        if (child < list.size) open[depth++] = child;
    }
  }

  // Calls see(token) for the `most` entries with the greatest counts, in order. Returns the greatest count of the rest.
  template <typename See>
  float first(const CountList& list, size_t most, See see) const {
    const Entry* heap = entries(list);
    const auto lesser = [heap](uint32_t a, uint32_t b) { return heap[a].count < heap[b].count; };
    thread_local std::vector<uint32_t> open;  // a heap of entries whose parents were seen
    open.clear();
    if (list.size) open.push_back(0);
    for (size_t seen = 0; seen < most && !open.empty(); ++seen) {
      const uint32_t at = open.front();
      see(heap[at].token);
      std::pop_heap(open.begin(), open.end(), lesser);
      open.pop_back();
      for (const uint32_t child : {2 * at + 1, 2 * at + 2})
        if (child < list.size) {
          open.push_back(child);
          std::push_heap(open.begin(), open.end(), lesser);
        }
    }
    return open.empty() ? 0 : heap[open.front()].count;
  }

  size_t bytes() const { return entries_.bytes() + table_.bytes(); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Place {
    uint32_t owner, token, at;  // kNone: empty
  };

  uint32_t find(uint32_t owner, const CountList& list, uint32_t token) const;
  uint32_t append(uint32_t owner, CountList& list, uint32_t token);
  uint32_t block(int size_class);  // its first entry
  void rise(uint32_t owner, const CountList& list, uint32_t at);
  size_t place(uint32_t owner, uint32_t token) const;  // its place in the table, or the empty one where it would go
  void index(uint32_t owner, uint32_t token, uint32_t at);
  void grow();

  Growing<Entry> entries_;
  std::array<uint32_t, 64> free_ = filled();  // free lists by class of capacity: the first free block, linked
  Growing<Place> table_;                      // open addressing
  size_t indexed_ = 0;

  static constexpr std::array<uint32_t, 64> filled() {
    std::array<uint32_t, 64> none{};
    for (uint32_t& first : none) first = kNone;
    return none;
  }
};

}  // namespace rescore
