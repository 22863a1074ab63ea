// A lattice as flat arrays: in each of T slots up to K candidates, best first.
//
// In a sausage every candidate leads to the slot behind its own. In other lattices a slot is any state, in topological
// order, and each candidate leads to a state of its own, or to none, behind which nothing is known.
#pragma once

#include <cstdint>

namespace rescore {

constexpr int kMaxSlots = 32;        // of a sausage
constexpr int kMaxStates = 1 << 12;  // of another lattice
constexpr int kMaxCandidates = 64;   // a set of candidates fits a 64-bit word

struct Sausage {
  const int32_t* ids;             // [slots, width]; padding is -1
  const float* cost;              // [slots, width]; -ln p of the head
  int slots;                      // T
  int width;                      // K
  const int32_t* next = nullptr;  // [slots, width]: the state that a candidate leads to, -1: none; null: a sausage

  const int32_t* slot_ids(int t) const { return ids + static_cast<int64_t>(t) * width; }
  const float* slot_cost(int t) const { return cost + static_cast<int64_t>(t) * width; }

  // Number of candidates of slot t: the ids before the first padding.
  int candidates(int t) const {
    int count = 0;
    while (count < width && slot_ids(t)[count] >= 0) ++count;
    return count;
  }

  // Number of slots before the first empty one; of a lattice that is no sausage, all states.
  int length() const {
    if (next) return slots;
    int t = 0;
    while (t < slots && slot_ids(t)[0] >= 0) ++t;
    return t;
  }
};

}  // namespace rescore
