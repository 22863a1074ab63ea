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

// Converts whole numbers from 0 to 2^52 - 1 to integers: they are the low bits of the number plus 2^52.
[[gnu::always_inline]] inline Integers whole(const Doubles& numbers) {
  const Doubles more = Doubles{} + 4503599627370496.0;
  return reinterpret_cast<Integers>(numbers + more) ^ reinterpret_cast<Integers>(more);
}

[[gnu::always_inline]] inline Doubles lesser(const Doubles& a, const Doubles& b) { return a < b ? a : b; }

#ifdef __AVX512F__
[[gnu::always_inline]] inline double least_of(const Doubles& lanes) { return _mm512_reduce_min_pd(lanes); }
[[gnu::always_inline]] inline double sum_of(const Parts& parts) { return _mm512_reduce_add_pd(parts[0]); }

// The minimum of a row of `size` numbers, a multiple of eight.
inline int64_t least_of(const int64_t* row, int size) {
  __m512i least = _mm512_loadu_si512(row);
  for (int i = kLanes; i < size; i += kLanes) least = _mm512_min_epi64(least, _mm512_loadu_si512(row + i));
  return _mm512_reduce_min_epi64(least);
}

// Writes one number of a row that is read as vectors. The write is a vector too: after a narrower store, a vector load
// would stall, as the store cannot be forwarded to it.
inline void store_one(int64_t* row, int i, int64_t value) {
  int64_t* eight = row + i / kLanes * kLanes;
  _mm512_storeu_si512(eight,
                      _mm512_mask_set1_epi64(_mm512_loadu_si512(eight), static_cast<__mmask8>(1 << i % kLanes), value));
}
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
inline int64_t least_of(const int64_t* row, int size) { return *std::min_element(row, row + size); }
inline void store_one(int64_t* row, int i, int64_t value) { row[i] = value; }
#endif

}  // namespace rescore
