// Least-significant-digit radix sort of window keys, with or without counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "window_key.h"

namespace rescore {

template <int W>
struct CountedKey {
  WindowKey<W> key;
  uint64_t count;
};

template <int W>
const WindowKey<W>& key_of(const WindowKey<W>& item) {
  return item;
}
template <int W>
const WindowKey<W>& key_of(const CountedKey<W>& item) {
  return item.key;
}

// Sorts by the lowest `bits` bits of the keys, above which all are zero. `spare` is used as the second buffer.
template <typename Item>
void radix_sort(std::vector<Item>& items, std::vector<Item>& spare, int bits) {
  spare.resize(items.size());
  for (int at = 0; at < bits; at += 8) {
    std::array<size_t, 257> begin{};
    for (const Item& item : items) ++begin[key_of(item).bits_at(at, 8) + 1];
    bool same = false;  // whether all items have the same digit
    for (size_t digit = 0; digit < 256; ++digit) {
      same |= begin[digit + 1] == items.size();
      begin[digit + 1] += begin[digit];
    }
    if (same) continue;
    for (const Item& item : items) spare[begin[key_of(item).bits_at(at, 8)]++] = item;
    items.swap(spare);
  }
}

}  // namespace rescore
