// Which of a few tokens are in an ascending list of tokens.
//
// Each of the functions appends, for each of the wanted tokens that is in the list, its number there and its place in the set,
// ascending, and returns which ones they are, a bit for each place. A list that a damaged model has out of order gives other
// tokens, but each once at most.
//
// Nothing branches on what is found, as that is hard to foretell: a wrong guess takes as long as twenty comparisons.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "bits.h"
#include "token_set.h"

namespace rescore {

// Where to append numbers and places, and what is added to them. Up to kMatchRoom entries more than are found are overwritten.
constexpr size_t kMatchRoom = 16;
struct Found {
  uint32_t* at;
  uint32_t* place;
  uint32_t first_place = 0, first = 0;

  void add(bool here, uint32_t number, int own) {
    *at = first + number;
    *place = first_place + own;
    at += here;
    place += here;
  }
#ifdef __AVX512VL__
  // Those of eight, by bits; `own` is the place of the first.
  void append(__mmask8 here, __m256i numbers, int own) {
    const __m256i eight = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm256_maskz_compress_epi32(here, _mm256_add_epi32(numbers, _mm256_set1_epi32(first))));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(place), _mm256_maskz_compress_epi32(here, _mm256_add_epi32(eight, _mm256_set1_epi32(first_place + own))));
    at += count_ones(here);
    place += count_ones(here);
  }
#endif
};

// The same, of wanted tokens, each once.
struct FoundOnce {
  Found out;
  uint64_t wanted, tokens = 0;

  void add(bool here, uint32_t number, int place) {
    const uint64_t is_new = here & (wanted & ~tokens) >> (place & 63);
    out.add(is_new, number, place);
    tokens |= is_new << (place & 63);
  }
};

// Binary searches for eight tokens, each step for all of them before the next: their reads do not wait for each other. A
// search for a token of the list ends where it is.
template <typename List>
inline void search_eight(List list, uint32_t size, const uint32_t* tokens, uint32_t* ended) {
  std::array<uint32_t, 8> low{};
  while (size > 1) {
    const uint32_t half = size / 2;
    for (int i = 0; i < 8; ++i) {
      const uint32_t beyond = low[i] + half;
      low[i] = list[beyond - 1] < tokens[i] ? beyond : low[i];
    }
    size -= half;
  }
  for (int i = 0; i < 8; ++i) ended[i] = low[i];
}

template <typename List>
inline uint64_t search_list(List list, uint32_t size, const TokenSet& tokens, uint64_t wanted, Found out) {
  FoundOnce found{out, wanted};
  std::array<uint32_t, 8> ended;
  for (int first = 0; first < tokens.size(); first += 8) {
    search_eight(list, size, tokens.begin() + first, ended.data());
    for (int i = first; i < tokens.size() && i < first + 8; ++i) found.add(list[ended[i - first]] == tokens[i], ended[i - first], i);
  }
  return found.tokens;
}

template <typename List>
inline uint64_t scan_list(List list, uint32_t size, const TokenSet& tokens, uint64_t wanted, Found out) {
  FoundOnce found{out, wanted};
  for (uint32_t n = 0; n < size; ++n) {
    const int i = tokens.find(list[n]);
    found.add(i != TokenSet::kMissing, n, i);
  }
  return found.tokens;
}

#ifdef __AVX512BW__
// Where the machine that this is compiled for allows: sixteen entries with sixteen tokens at once.

// Which of a's values are among b's, and which of b's among a's.
inline void intersect(__m512i a, __m512i b, __mmask16& of_a, __mmask16& of_b) {
#ifdef __AVX512VP2INTERSECT__
  _mm512_2intersect_epi32(a, b, &of_a, &of_b);
#else
  alignas(64) std::array<uint32_t, 16> each;
  _mm512_store_si512(each.data(), b);
  of_a = of_b = 0;
  for (int i = 0; i < 16; ++i) {
    const __mmask16 equal = _mm512_cmpeq_epi32_mask(a, _mm512_set1_epi32(each[i]));
    of_a |= equal;
    of_b |= (equal != 0) << i;
  }
#endif
}

inline uint64_t compare_list(const uint16_t* list, uint32_t size, const TokenSet& tokens, uint64_t wanted, Found out) {
  const __m512i sixteen = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i no_token = _mm512_set1_epi32(-1), no_entry = _mm512_set1_epi32(-2);
  uint64_t all = 0;
  for (int first = 0; first < tokens.size(); first += 16) {
    const __m512i set = _mm512_mask_loadu_epi32(no_token, wanted >> first, tokens.begin() + first);
    const __m512i places = _mm512_add_epi32(sixteen, _mm512_set1_epi32(out.first_place + first));
    __mmask16 found = 0;
    for (uint32_t n = 0; n < size; n += 16) {
      const __mmask16 here = static_cast<__mmask16>((uint32_t{1} << std::min<uint32_t>(size - n, 16)) - 1);
      const __m512i entries = _mm512_mask_cvtepu16_epi32(no_entry, here, _mm256_maskz_loadu_epi16(here, list + n));
      __mmask16 of_list, of_set;
      intersect(entries, set, of_list, of_set);
      of_set &= ~found;
      _mm512_storeu_si512(out.at, _mm512_maskz_compress_epi32(of_list, _mm512_add_epi32(sixteen, _mm512_set1_epi32(out.first + n))));
      _mm512_storeu_si512(out.place, _mm512_maskz_compress_epi32(of_set, places));
      const int count = __builtin_popcount(of_set);
      out.at += count;
      out.place += count;
      found |= of_set;
    }
    all |= static_cast<uint64_t>(found) << first;
  }
  return all;
}
#endif

template <typename List>
inline uint64_t match_list(List list, uint32_t size, const TokenSet& tokens, uint64_t wanted, Found out) {
#ifdef __AVX512BW__
  if constexpr (std::is_same_v<List, const uint16_t*>)
    if (size <= 512) return compare_list(list, size, tokens, wanted, out);
#endif
  if (size > 2 * static_cast<uint32_t>(tokens.size())) return search_list(list, size, tokens, wanted, out);
  return scan_list(list, size, tokens, wanted, out);
}

}  // namespace rescore
