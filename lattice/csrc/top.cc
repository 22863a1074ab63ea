#include "top.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace rescore {

namespace {

// Vectors of the processor's width. Sums always have kLanes parts, so results are bit-identical at every width.
#ifdef __AVX512F__
constexpr int kWide = 16;
#elif defined(__AVX__)
constexpr int kWide = 8;
#else
constexpr int kWide = 4;
#endif
using Floats = float __attribute__((vector_size(4 * kWide)));
using Bits = int32_t __attribute__((vector_size(4 * kWide)));
using Words = uint32_t __attribute__((vector_size(4 * kWide)));  // unsigned, since exp_of of NaN overflows
constexpr int kLanes = 32;                                       // enough that additions do not wait for each other
constexpr int kStep = std::max(kLanes, kWide);                   // logits per iteration of a sum
constexpr int kSummed = std::min(kLanes, kWide);
using Sums = float __attribute__((vector_size(4 * kSummed)));
constexpr int kBlock = 64;   // logits compared at once with the least of the top k
constexpr int kPart = 2048;  // logits summed in single precision before adding in double

Floats load(const float* from) {
  Floats lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

// bfloat16 is the upper half of a float.
Floats load(const uint16_t* from) {
  using Halves = uint16_t __attribute__((vector_size(2 * kWide)));
  Halves lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return reinterpret_cast<Floats>(__builtin_convertvector(lanes, Words) << 16);
}

float value_of(float logit) { return logit; }
float value_of(uint16_t logit) {
  const uint32_t bits = static_cast<uint32_t>(logit) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr float kNothing = -std::numeric_limits<float>::infinity();
template <typename T>
constexpr T kNoLogit = kNothing;
template <>
constexpr uint16_t kNoLogit<uint16_t> = 0xff80;

using Parts = std::array<Sums, kLanes / kSummed>;

double sum_of(const Parts& parts) {
  double sum = 0;
  for (const Sums& lanes : parts)
    for (int i = 0; i < kSummed; ++i) sum += lanes[i];
  return sum;
}

// Adds values [kStep] to the parts, kLanes at a time.
void add_to(Parts& parts, const std::array<Floats, kStep / kWide>& values) {
  std::array<Sums, kStep / kSummed> pieces;
  std::memcpy(&pieces, &values, sizeof pieces);
  for (size_t i = 0; i < pieces.size(); ++i) parts[i % parts.size()] += pieces[i];
}

constexpr float kLeast = -87;  // e^-87 is the smallest integer power of e that is a normal float

// e^x for kLeast <= x <= 0, with a relative error of at most 3e-7 + 1e-7 |x|.
//
// Computed as 2^(n + f) with |f| <= 1/2, where 2^f is the minimax polynomial of its degree (relative error 8e-8).
[[gnu::always_inline]] inline Floats exp_of(const Floats& x) {
  constexpr float kLog2E = 1.44269504f, kRounder = 12582912;  // 1.5 * 2^23
  const Floats power = x * kLog2E, rounded = power + kRounder, f = power - (rounded - kRounder);
  Floats sum = Floats{} + 1.32764701e-3f;
  for (const float term : {9.67554096e-3f, 5.55071309e-2f, 0.240221202f, 0.693146944f, 1.0f}) sum = sum * f + term;
  return sum * reinterpret_cast<Floats>((reinterpret_cast<Words>(rounded) + 127) << 23);
}

// The k greatest logits so far, descending.
struct Found {
  int k;
  int32_t* ids;
  std::array<float, kMaxTop> values;

  Found(int most, int32_t* to) : k(most), ids(to) {
    std::fill_n(ids, k, -1);
    std::fill_n(values.begin(), k, kNothing);
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

template <typename T>
bool any_above(const T* logits, float least) {
  Bits above{};
  for (int i = 0; i < kBlock; i += kWide) above |= load(logits + i) > least;
  int32_t any = 0;
  for (int i = 0; i < kWide; ++i) any |= above[i];
  return any;
}

// Sums over a row of e^x and x e^x, where x is a logit minus the greatest.
struct Mass {
  double total = 0, weighted = 0;
};

template <bool kWeighted, typename T>
Mass mass_of(const T* logits, int64_t vocab, float greatest) {
  Mass mass;
  for (int64_t start = 0; start < vocab; start += kPart) {
    const int64_t stop = std::min(start + kPart, vocab), whole = start + (stop - start) / kStep * kStep;
    Parts total{}, weighted{};
    const auto add = [&](const T* from) {
      std::array<Floats, kStep / kWide> weights, products;
      for (size_t part = 0; part < weights.size(); ++part) {
        Floats shifted = load(from + part * kWide) - greatest;
        shifted = shifted < kLeast ? Floats{} + kLeast : shifted;
        weights[part] = exp_of(shifted);
        if (kWeighted) products[part] = weights[part] * shifted;
      }
      add_to(total, weights);
      if (kWeighted) add_to(weighted, products);
    };
    for (int64_t i = start; i < whole; i += kStep) add(logits + i);
    if (whole < stop) {
      std::array<T, kStep> rest;
      rest.fill(kNoLogit<T>);
      std::copy(logits + whole, logits + stop, rest.begin());
      add(rest.data());
    }
    mass.total += sum_of(total);
    mass.weighted += sum_of(weighted);
  }
  return mass;
}

template <typename T>
Found found_in(const T* logits, int64_t vocab, int k, int32_t* ids) {
  Found found(k, ids);
  int64_t token = 0;
  for (; token + kBlock <= vocab; token += kBlock)
    if (any_above(logits + token, found.least()))
      for (int64_t i = token; i < token + kBlock; ++i) found.add(value_of(logits[i]), i);
  for (; token < vocab; ++token) found.add(value_of(logits[token]), token);
  return found;
}

// Whether no logit is NaN or +inf.
template <typename T>
bool all_below_inf(const T* logits, int64_t vocab) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const int64_t whole = vocab / kBlock * kBlock;
  Bits below = Bits{} - 1;
  for (int64_t token = 0; token < whole; token += kWide) below &= load(logits + token) <= kMost;
  bool all = true;
  for (int i = 0; i < kWide; ++i) all &= below[i] != 0;
  for (int64_t token = whole; token < vocab; ++token) all &= value_of(logits[token]) <= kMost;
  return all;
}

}  // namespace

void top_of_row(const float* logits, int64_t vocab, int k, int32_t* ids, float* logp, float* entropy) {
  const Found found = found_in(logits, vocab, k, ids);
  const float greatest = found.values[0];
  const Mass mass = mass_of<true>(logits, vocab, greatest);
  const double log_total = std::log(mass.total);
  for (int i = 0; i < k; ++i) logp[i] = static_cast<double>(found.values[i]) - greatest - log_total;
  *entropy = std::max(log_total - mass.weighted / mass.total, 0.0);
}

template <typename T>
void predictions_of_row(const T* logits, int64_t vocab, int k, int32_t* ids, float* p) {
  const Found found = found_in(logits, vocab, k, ids);
  const float greatest = found.values[0];
  const double total = mass_of<false>(logits, vocab, greatest).total;
  for (int i = 0; i < k; ++i) p[i] = std::exp(static_cast<double>(found.values[i]) - greatest) / total;
}

template <typename T>
int64_t best_of_row(const T* logits, int64_t vocab) {
  int32_t best;
  const Found found = found_in(logits, vocab, 1, &best);
  return best >= 0 && all_below_inf(logits, vocab) ? best : -1;
}

template int64_t best_of_row(const float*, int64_t);
template int64_t best_of_row(const uint16_t*, int64_t);
template void predictions_of_row(const float*, int64_t, int, int32_t*, float*);
template void predictions_of_row(const uint16_t*, int64_t, int, int32_t*, float*);

}  // namespace rescore
