// A sausage lattice as flat arrays: T slots of up to K candidates, best first.
#pragma once

#include <cstdint>

namespace rescore {

constexpr int kMaxSlots = 32;
constexpr int kMaxCandidates = 64;  // a set of candidates fits a 64-bit word

struct Sausage {
  const int32_t* ids;  // [slots, width]; padding is -1
  const float* cost;   // [slots, width]; -ln p of the head
  int slots;           // T
  int width;           // K

  const int32_t* slot_ids(int t) const { return ids + static_cast<int64_t>(t) * width; }
  const float* slot_cost(int t) const { return cost + static_cast<int64_t>(t) * width; }

  // Number of candidates of slot t: the ids before the first padding.
  int candidates(int t) const {
    int count = 0;
    while (count < width && slot_ids(t)[count] >= 0) ++count;
    return count;
  }

  // Number of slots before the first empty one.
  int length() const {
    int t = 0;
    while (t < slots && slot_ids(t)[0] >= 0) ++t;
    return t;
  }
};

}  // namespace rescore
