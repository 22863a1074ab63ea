// Weights of paths.
//
// They are added as integers, in units of 2^-32 nats: sums are then exact, so equal costs are equal whatever the order
// in which they were added, and ties are broken by rank alone.
#pragma once

#include <cmath>
#include <cstdint>

namespace rescore {

using Fixed = int64_t;
constexpr double kFixedOne = 4294967296.0;
constexpr Fixed kImpossible = INT64_MAX / 4;
// Nats. So the weight of any path, with its failure arcs, is within kImpossible / 4; and a sum with kImpossible in it,
// whatever else is in it, is told from those by half of kImpossible.
constexpr double kMaxWeight = 1 << 19;
inline bool possible(Fixed weight) { return weight < kImpossible / 2; }

// Of a weight in units of Fixed, which may be any number.
inline Fixed round_weight(double weight) {
  return std::fabs(weight) <= kMaxWeight * kFixedOne ? std::llrint(weight) : kImpossible;
}
inline Fixed to_fixed(double nats) { return round_weight(nats * kFixedOne); }
inline float to_cost(Fixed weight) { return static_cast<float>(static_cast<double>(weight) / kFixedOne); }

}  // namespace rescore
