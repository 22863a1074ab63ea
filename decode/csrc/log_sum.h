// Sums of exponentials, as probabilities are added whose costs are known: in a loop that is vectorised, without a branch or a call.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "backoff_row.h"

namespace rescore {

// e^-x for x >= 0, to a relative error of 1e-14; what is beyond 700 counts as 700.
//
// -x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by its Taylor series. The integer n is read from, and written to, the bits of a double.
inline double exp_of_cost(double x) {
  constexpr double kLog2E = 1.4426950408889634, kLn2High = 0.693147180369123816, kLn2Low = 1.90821492927058770e-10;
  constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52: what is added to it is rounded to an integer, in its lowest bits
  x = -std::min(x, 700.0);
  const double rounded = x * kLog2E + kRounder, n = rounded - kRounder;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 1.0 / 39916800;
  for (const double term : {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0, 1.0}) sum = sum * r + term;
  uint64_t bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  bits = (bits + 1023) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  return sum * power;
}

// Costs of a slot's candidates, and of one thing more, in steps as rows.
using CostRow = std::array<double, kMaxCandidates + kRowStep>;

// -ln of the sum of e^-cost over a row of costs [row_size(width)], at most as many as of a CostRow: +inf if they all are.
inline double log_sum(const double* cost, int width) {
  const int size = row_size(width);
  std::array<double, kRowStep> part;
  std::copy_n(cost, kRowStep, part.begin());
  for (int first = kRowStep; first < size; first += kRowStep)
    for (int i = 0; i < kRowStep; ++i) part[i] = std::min(part[i], cost[first + i]);
  const double least = *std::min_element(part.begin(), part.end());
  if (std::isinf(least)) return least;
  CostRow share;
  for (int i = 0; i < size; ++i) share[i] = exp_of_cost(cost[i] - least);
  part.fill(0);
  for (int first = 0; first < size; first += kRowStep)
    for (int i = 0; i < kRowStep; ++i) part[i] += share[first + i];
  for (int half = kRowStep / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) part[i] += part[i + half];
  return least - std::log(part[0]);
}

}  // namespace rescore
