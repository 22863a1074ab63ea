// Weights of paths.
//
// Weights are added as integers, in units of 2^-32 nats. Sums are exact, so equal costs are equal in whatever order
// they were added, and ties are broken by rank alone.
#pragma once

#include <cmath>
#include <cstdint>

namespace rescore {

using Fixed = int64_t;
constexpr double kFixedOne = 4294967296.0;
constexpr Fixed kImpossible = INT64_MAX / 4;
// In nats. The weight of any path, failure arcs included, stays within kImpossible / 4, and any sum that contains
// kImpossible is above these by half of kImpossible.
constexpr double kMaxWeight = 1 << 19;
inline bool possible(Fixed weight) { return weight < kImpossible / 2; }

// Rounds a weight in units of Fixed, any number.
inline Fixed round_weight(double weight) {
  return std::fabs(weight) <= kMaxWeight * kFixedOne ? std::llrint(weight) : kImpossible;
}
inline Fixed to_fixed(double nats) { return round_weight(nats * kFixedOne); }
inline float to_cost(Fixed weight) { return static_cast<float>(static_cast<double>(weight) / kFixedOne); }

}  // namespace rescore
