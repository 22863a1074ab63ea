// Weights by token, of all that can be done with it in a state of a backoff model: those of the next shorter context,
// after the failure arc, with the state's own arcs in their places.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bits.h"
#include "lanes.h"
#include "weight.h"

namespace rescore {

// When arcs are backed off to: with tokens that have no arc, or with any token (whichever is cheaper).
enum class Semantics { kFailure, kEpsilon };

// Rows are read and written in steps of eight; from a slot's width on their weights are impossible ones.
constexpr int kRowStep = kLanes;
inline int row_size(int width) { return (width + kRowStep - 1) / kRowStep * kRowStep; }

// The row of a state that has arcs for all of `width` tokens. As below, `arc` may be read eight entries beyond.
inline void whole_row(const Fixed* arc, int width, Fixed* row) {
  std::fill(std::copy_n(arc, width, row), row + row_size(width), kImpossible);
}

// The row of a state with arcs for some `tokens`, a bit each, from that of its next shorter context, which may be the
// same array. arc: the arcs' weights, ascending by token. Returns the least.
inline Fixed back_off(const Fixed* shorter, Fixed failure, uint64_t tokens, const Fixed* arc, int width,
                      Semantics semantics, Fixed* row) {
#ifdef __AVX512F__
  const __m512i impossible = _mm512_set1_epi64(kImpossible), paid = _mm512_set1_epi64(failure);
  const __mmask8 can = possible(failure) ? 0xFF : 0;
  __m512i least = impossible;
  for (int i = 0; i < width; i += kRowStep, tokens >>= kRowStep) {
    const __mmask8 own = static_cast<__mmask8>(tokens);
    const __m512i backed = _mm512_mask_add_epi64(impossible, can, _mm512_loadu_si512(shorter + i), paid);
    __m512i total = _mm512_mask_expand_epi64(backed, own, _mm512_loadu_si512(arc));
    if (semantics == Semantics::kEpsilon) total = _mm512_min_epi64(total, backed);
    _mm512_storeu_si512(row + i, total);
    least = _mm512_min_epi64(least, total);
    arc += count_ones(own);
  }
  return _mm512_reduce_min_epi64(least);
#else
  if (possible(failure))
    for (int i = 0; i < width; ++i) row[i] = shorter[i] + failure;
  else
    std::fill_n(row, width, kImpossible);
  for (; tokens; tokens &= tokens - 1, ++arc) {
    Fixed& total = row[__builtin_ctzll(tokens)];
    total = semantics == Semantics::kEpsilon ? std::min(total, *arc) : *arc;
  }
  return *std::min_element(row, row + width);
#endif
}

}  // namespace rescore
