// Vectors of eight numbers: one hardware vector if the processor has them this wide, else several.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace rescore {

constexpr int kLanes = 8;
#ifdef __AVX512F__
constexpr int kWide = 8;  // numbers per hardware vector
#elif defined(__AVX__)
constexpr int kWide = 4;
#else
constexpr int kWide = 2;
#endif
constexpr int kParts = kLanes / kWide;
using Doubles = double __attribute__((vector_size(8 * kWide)));
using Integers = int64_t __attribute__((vector_size(8 * kWide)));
using Parts = std::array<Doubles, kParts>;  // eight numbers

template <typename Lanes, typename T>
[[gnu::always_inline]] inline Lanes load(const T* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

template <typename Lanes, typename T>
[[gnu::always_inline]] inline void store(T* to, const Lanes& lanes) {
  std::memcpy(to, &lanes, sizeof lanes);
}

[[gnu::always_inline]] inline Doubles lesser(const Doubles& a, const Doubles& b) { return a < b ? a : b; }

#ifdef __AVX512F__
[[gnu::always_inline]] inline double least_of(const Doubles& lanes) { return _mm512_reduce_min_pd(lanes); }
[[gnu::always_inline]] inline double sum_of(const Parts& parts) { return _mm512_reduce_add_pd(parts[0]); }
#else
[[gnu::always_inline]] inline double least_of(const Doubles& lanes) {
  std::array<double, kWide> part;
  store(part.data(), lanes);
  return *std::min_element(part.begin(), part.end());
}
// Adds halves until one number is left.
[[gnu::always_inline]] inline double sum_of(const Parts& parts) {
  std::array<double, kLanes> part;
  for (int i = 0; i < kParts; ++i) store(&part[i * kWide], parts[i]);
  for (int half = kLanes / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) part[i] += part[i + half];
  return part[0];
}
#endif

}  // namespace rescore
