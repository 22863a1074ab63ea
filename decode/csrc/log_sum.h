// Sums of exponentials: adds probabilities given as costs.
#pragma once

#include <array>
#include <cmath>

#include "backoff_row.h"
#include "lanes.h"
#include "sausage.h"

namespace rescore {

// e^-x for x >= 0, to a relative error of 1e-14; x beyond 700 counts as 700.
//
// -x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by its Taylor series. The integer n is read from, and written to, the
// bits of a double.
[[gnu::always_inline]] inline Doubles exp_of_cost(Doubles x) {
  constexpr double kLog2E = 1.4426950408889634, kLn2High = 0.693147180369123816, kLn2Low = 1.90821492927058770e-10;
  // 1.5 * 2^52: a number added to it is rounded to an integer, in the lowest bits.
  constexpr double kRounder = 6755399441055744.0;
  x = -lesser(x, Doubles{} + 700.0);
  const Doubles rounded = x * kLog2E + kRounder, n = rounded - kRounder;
  const Doubles r = (x - n * kLn2High) - n * kLn2Low;
  Doubles sum = Doubles{} + 1.0 / 39916800;
  for (const double term : {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24,
                            1.0 / 6, 1.0 / 2, 1.0, 1.0})
    sum = sum * r + term;
  return sum * reinterpret_cast<Doubles>((reinterpret_cast<Integers>(rounded) + 1023) << 52);
}

// Costs of a slot's candidates and one more value, padded to whole steps like rows.
using CostRow = std::array<double, kMaxCandidates + kRowStep>;

// -ln of the sum of e^-cost over a row of costs [row_size(width)], at most a CostRow; +inf if all are.
inline double log_sum(const double* cost, int width) {
  Doubles lowest = Doubles{} + INFINITY;
  for (int i = 0, size = row_size(width); i < size; i += kWide) lowest = lesser(lowest, load<Doubles>(cost + i));
  const double least = least_of(lowest);
  if (std::isinf(least)) return least;
  Parts sum{};
  for (int i = 0; i < width; i += kLanes)
    for (int part = 0; part < kParts; ++part) sum[part] += exp_of_cost(load<Doubles>(cost + i + part * kWide) - least);
  return least - std::log(sum_of(sum));
}

}  // namespace rescore
