#pragma once

#include <algorithm>
#include <cstdint>

namespace rescore {

// The first index in [low, high) whose token is not below `token`, else `high`: doubling steps, then a binary search.
template <typename Tokens>
uint64_t gallop(Tokens tokens, uint64_t low, uint64_t high, uint32_t token) {
  uint64_t step = 1;
  uint64_t bound = low;
  while (bound < high && tokens[bound] < token) {
    low = bound + 1;
    bound += step;
    step *= 2;
  }
  for (bound = std::min(bound, high); low < bound;) {
    const uint64_t middle = low + (bound - low) / 2;
    if (tokens[middle] < token) {
      low = middle + 1;
    } else {
      bound = middle;
    }
  }
  return low;
}

}  // namespace rescore
