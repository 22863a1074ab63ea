// Rows of weights by token in a state of a backoff model: the next shorter context's row plus the failure arc,
// overwritten by the state's own arcs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "bits.h"
#include "lanes.h"
#include "weight.h"

namespace rescore {

// Rows are read and written in steps of eight; entries from the slot's width on are impossible.
constexpr int kRowStep = kLanes;
inline int row_size(int width) { return (width + kRowStep - 1) / kRowStep * kRowStep; }

// The row of a state with arcs for all of `width` tokens. As below, `arc` may be read eight entries past its end.
inline void whole_row(const Fixed* arc, int width, Fixed* row) {
  std::fill(std::copy_n(arc, width, row), row + row_size(width), kImpossible);
}

#if defined(__AVX2__) && !defined(__AVX512F__)
// The lesser of each of four lanes.
[[gnu::always_inline]] inline __m256i lesser_of(__m256i a, __m256i b) {
  return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b));
}

// For every four bits, the permutation that expands packed numbers to the positions of the ones: pairs of 32-bit words.
struct FourExpanded {
  alignas(32) std::array<std::array<int32_t, 8>, 16> from{};
  constexpr FourExpanded() {
    for (int bits = 0; bits < 16; ++bits)
      for (int lane = 0, next = 0; lane < 4; ++lane)
        if (bits >> lane & 1) {
          from[bits][2 * lane] = 2 * next;
          from[bits][2 * lane + 1] = 2 * next++ + 1;
        }
  }
};
inline constexpr FourExpanded kFourExpanded;
#endif

// The row of a state from that of its next shorter context, which may be the same array. tokens: a bit for each token
// with an arc; arc: the arcs' weights, ascending by token. Returns the least weight.
inline Fixed back_off(const Fixed* shorter, Fixed failure, uint64_t tokens, const Fixed* arc, int width, Fixed* row) {
#ifdef __AVX512F__
  const __m512i impossible = _mm512_set1_epi64(kImpossible), paid = _mm512_set1_epi64(failure);
  const __mmask8 can = possible(failure) ? 0xFF : 0;
  __m512i least = impossible;
  for (int i = 0; i < width; i += kRowStep, tokens >>= kRowStep) {
    const __mmask8 own = static_cast<__mmask8>(tokens);
    const __m512i backed = _mm512_mask_add_epi64(impossible, can, _mm512_loadu_si512(shorter + i), paid);
    const __m512i total = _mm512_mask_expand_epi64(backed, own, _mm512_loadu_si512(arc));
    _mm512_storeu_si512(row + i, total);
    least = _mm512_min_epi64(least, total);
    arc += count_ones(own);
  }
  return _mm512_reduce_min_epi64(least);
#elif defined(__AVX2__)
  const auto read = [](const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); };
  const __m256i impossible = _mm256_set1_epi64x(kImpossible), paid = _mm256_set1_epi64x(failure),
                can = _mm256_set1_epi64x(possible(failure) ? -1 : 0), lane = _mm256_setr_epi64x(1, 2, 4, 8);
  __m256i least = impossible;
  for (int i = 0, size = row_size(width); i < size; i += 4, tokens >>= 4) {
    const int own = tokens & 0xF;
    const __m256i backed = _mm256_blendv_epi8(impossible, _mm256_add_epi64(read(shorter + i), paid), can);
    const __m256i expanded = _mm256_permutevar8x32_epi32(read(arc), read(kFourExpanded.from[own].data()));
    const __m256i here = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(own), lane), lane);
    const __m256i total = _mm256_blendv_epi8(backed, expanded, here);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + i), total);
    least = lesser_of(least, total);
    arc += count_ones(static_cast<uint64_t>(own));
  }
  alignas(32) std::array<Fixed, 4> each;
  _mm256_store_si256(reinterpret_cast<__m256i*>(each.data()), least);
  return std::min(std::min(each[0], each[1]), std::min(each[2], each[3]));
#else
  if (possible(failure))
    for (int i = 0; i < width; ++i) row[i] = shorter[i] + failure;
  else
    std::fill_n(row, width, kImpossible);
  for (; tokens; tokens &= tokens - 1) row[__builtin_ctzll(tokens)] = *arc++;
  return *std::min_element(row, row + width);
#endif
}

}  // namespace rescore
