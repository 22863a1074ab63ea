#include "top.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace rescore {

namespace {

// Vectors as long as the processor's; sums are of kLanes parts whatever that is, so that their bits are the same.
#ifdef __AVX512F__
constexpr int kWide = 16;
#elif defined(__AVX__)
constexpr int kWide = 8;
#else
constexpr int kWide = 4;
#endif
using Floats = float __attribute__((vector_size(4 * kWide)));
using Bits = int32_t __attribute__((vector_size(4 * kWide)));
constexpr int kLanes = 8;
constexpr int kStep = std::max(kLanes, kWide);  // logits that are weighed at once
constexpr int kSummed = std::min(kLanes, kWide);
using Sums = float __attribute__((vector_size(4 * kSummed)));
constexpr int kBlock = 64;   // logits that are compared with the least of the found ones at once
constexpr int kPart = 2048;  // logits that are summed in single precision

Floats load(const float* from) {
  Floats lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

using Parts = std::array<Sums, kLanes / kSummed>;

double sum_of(const Parts& parts) {
  double sum = 0;
  for (const Sums& lanes : parts)
    for (int i = 0; i < kSummed; ++i) sum += lanes[i];
  return sum;
}

// Adds values [kStep], kLanes of them after the others.
void add_to(Parts& parts, const std::array<Floats, kStep / kWide>& values) {
  std::array<Sums, kStep / kSummed> pieces;
  std::memcpy(&pieces, &values, sizeof pieces);
  for (size_t i = 0; i < pieces.size(); ++i) parts[i % parts.size()] += pieces[i];
}

constexpr float kLeast = -87;  // of an exponent: e^-87 is the least power of e that is a normal float

// e^x for kLeast <= x <= 0, to a relative error of 3e-7.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by its Taylor series, as exp_of_cost does it for doubles.
[[gnu::always_inline]] inline Floats exp_of(const Floats& x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRounder = 12582912;  // 1.5 * 2^23
  const Floats rounded = x * kLog2E + kRounder, n = rounded - kRounder;
  const Floats r = (x - n * kLn2High) - n * kLn2Low;
  Floats sum = Floats{} + 1.0f / 720;
  for (const float term : {1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1.0f, 1.0f}) sum = sum * r + term;
  return sum * reinterpret_cast<Floats>((reinterpret_cast<Bits>(rounded) + 127) << 23);
}

// The k greatest so far, descending.
struct Found {
  int k;
  int32_t* ids;
  std::array<float, kMaxTop> values;

  Found(int most, int32_t* to) : k(most), ids(to) {
    std::fill_n(ids, k, -1);
    std::fill_n(values.begin(), k, -std::numeric_limits<float>::infinity());
  }
  float least() const { return values[k - 1]; }

  void add(float value, int32_t id) {
    if (!(value > least())) return;
    int place = k - 1;
    for (; place && value > values[place - 1]; --place) {
      values[place] = values[place - 1];
      ids[place] = ids[place - 1];
    }
    values[place] = value;
    ids[place] = id;
  }
};

bool any_above(const float* logits, float least) {
  Bits above{};
  for (int i = 0; i < kBlock; i += kWide) above |= load(logits + i) > least;
  int32_t any = 0;
  for (int i = 0; i < kWide; ++i) any |= above[i];
  return any;
}

// The sums over a row, relative to its greatest logit: of e^x, and of x e^x.
struct Mass {
  double total = 0, weighted = 0;
};

Mass mass_of(const float* logits, int64_t vocab, float greatest) {
  Mass mass;
  for (int64_t start = 0; start < vocab; start += kPart) {
    const int64_t stop = std::min(start + kPart, vocab), whole = start + (stop - start) / kStep * kStep;
    Parts total{}, weighted{};
    const auto add = [&](const float* from) {
      std::array<Floats, kStep / kWide> weights, products;
      for (size_t part = 0; part < weights.size(); ++part) {
        Floats shifted = load(from + part * kWide) - greatest;
        shifted = shifted < kLeast ? Floats{} + kLeast : shifted;
        weights[part] = exp_of(shifted);
        products[part] = weights[part] * shifted;
      }
      add_to(total, weights);
      add_to(weighted, products);
    };
    for (int64_t i = start; i < whole; i += kStep) add(logits + i);
    if (whole < stop) {
      std::array<float, kStep> rest;
      rest.fill(-std::numeric_limits<float>::infinity());
      std::copy(logits + whole, logits + stop, rest.begin());
      add(rest.data());
    }
    mass.total += sum_of(total);
    mass.weighted += sum_of(weighted);
  }
  return mass;
}

}  // namespace

void top_of_row(const float* logits, int64_t vocab, int k, int32_t* ids, float* logp, float* entropy) {
  Found found(k, ids);
  int64_t token = 0;
  for (; token + kBlock <= vocab; token += kBlock)
    if (any_above(logits + token, found.least()))
      for (int64_t i = token; i < token + kBlock; ++i) found.add(logits[i], i);
  for (; token < vocab; ++token) found.add(logits[token], token);
  const float greatest = found.values[0];
  const Mass mass = mass_of(logits, vocab, greatest);
  const double log_total = std::log(mass.total);
  for (int i = 0; i < k; ++i) logp[i] = static_cast<double>(found.values[i]) - greatest - log_total;
  *entropy = std::max(log_total - mass.weighted / mass.total, 0.0);
}

}  // namespace rescore
