// Which of a few tokens are in an ascending list of tokens.
//
// Each of the functions calls sink(here, i, at) for each token of the set, or some, by its place i: whether it is in the list,
// and where. Ascending in i as far as tokens are there. Nothing branches on what is found, as that is hard to foretell: a
// wrong guess takes as long as twenty comparisons.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "bits.h"
#include "token_set.h"

namespace rescore {

// Binary searches for eight tokens, each step for all of them before the next: their reads do not wait for each other. A
// search for a token of the list ends where it is.
template <typename List>
inline void search_eight(List list, uint64_t begin, uint64_t size, const uint32_t* tokens, uint64_t* ended) {
  std::array<uint64_t, 8> low;
  low.fill(begin);
  while (size > 1) {
    const uint64_t half = size / 2;
    for (int i = 0; i < 8; ++i) {
      const uint64_t beyond = low[i] + half;
      low[i] = list[beyond - 1] < tokens[i] ? beyond : low[i];
    }
    size -= half;
  }
  for (int i = 0; i < 8; ++i) ended[i] = low[i];
}

template <typename List, typename Sink>
inline void search_list(List list, uint64_t begin, uint64_t end, const TokenSet& tokens, Sink sink) {
  std::array<uint64_t, 8> ended;
  for (int base = 0; base < tokens.size(); base += 8) {
    search_eight(list, begin, end - begin, tokens.begin() + base, ended.data());
    for (int i = base; i < tokens.size() && i < base + 8; ++i) sink(list[ended[i - base]] == tokens[i], i, ended[i - base]);
  }
}

template <typename List, typename Sink>
inline void scan_list(List list, uint64_t begin, uint64_t end, const TokenSet& tokens, Sink sink) {
  for (; begin < end; ++begin) {
    const int i = tokens.find(list[begin]);
    sink(i != TokenSet::kMissing, i, begin);
  }
}

#ifdef __AVX512BW__
// Where the machine that this is compiled for allows: thirty-two entries at once, with one token after another.
template <typename Sink>
inline void compare_list(const uint16_t* list, uint64_t begin, uint64_t end, const TokenSet& tokens, Sink sink) {
  for (; begin < end; begin += 32) {
    const uint64_t left = end - begin < 32 ? end - begin : 32;
    const __mmask32 here = static_cast<uint32_t>((uint64_t{1} << left) - 1);
    const __m512i entries = _mm512_maskz_loadu_epi16(here, list + begin);
    for (int i = 0; i < tokens.size(); ++i) {
      const uint64_t equal = _mm512_mask_cmpeq_epi16_mask(here, entries, _mm512_set1_epi16(static_cast<short>(tokens[i])));
      sink(equal != 0, i, begin + __builtin_ctzll(equal | uint64_t{1} << 32));
    }
  }
}
#endif

template <typename List, typename Sink>
inline void match_list(List list, uint64_t begin, uint64_t end, const TokenSet& tokens, Sink sink) {
#ifdef __AVX512BW__
  if constexpr (std::is_same_v<List, const uint16_t*>)
    if (end - begin <= 320) return compare_list(list, begin, end, tokens, sink);
#endif
  if (end - begin > 2 * static_cast<uint64_t>(tokens.size())) return search_list(list, begin, end, tokens, sink);
  scan_list(list, begin, end, tokens, sink);
}

}  // namespace rescore
