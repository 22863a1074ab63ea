// Finds which of a few tokens are in an ascending list of tokens.
//
// Each function returns a bit per place in the set for the wanted tokens that are in the list, and passes their indices
// in the list to `out`. For an unsorted list of a damaged model the indices are arbitrary, with at most one per token.
//
// The code is branch-free with respect to matches: a misprediction costs about 20 comparisons.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "bits.h"
#include "token_set.h"

// The number of list entries compared at once: sixteen if the processor has an instruction for it.
#if defined(__AVX512VP2INTERSECT__) && defined(__AVX512BW__)
#include <immintrin.h>
#define RESCORE_SIXTEEN_ENTRIES
#elif defined(__AVX2__)
#include <immintrin.h>
#define RESCORE_EIGHT_ENTRIES
#elif defined(__aarch64__)
#include <arm_neon.h>
#define RESCORE_EIGHT_ENTRIES
#endif

namespace rescore {

constexpr int kMatchStep = 16;
constexpr uint64_t kMatchSpare = 8;  // entries after a list that may be read with it

#ifdef RESCORE_EIGHT_ENTRIES
// For every byte the positions of its ones, ascending, each in a byte.
constexpr std::array<uint64_t, 256> ones_of_bytes() {
  std::array<uint64_t, 256> ones{};
  for (int byte = 0; byte < 256; ++byte)
    for (int bit = 0, found = 0; bit < 8; ++bit)
      if (byte >> bit & 1) ones[byte] |= static_cast<uint64_t>(bit) << 8 * found++;
  return ones;
}
inline constexpr std::array<uint64_t, 256> kOnes = ones_of_bytes();

// Writes the positions of a byte's ones plus `first`. Always writes eight entries; returns the number of valid ones.
[[gnu::always_inline]] inline int write_ones(uint32_t byte, uint32_t first, uint32_t* to) {
#ifdef __aarch64__
  const uint16x8_t ones = vmovl_u8(vcreate_u8(kOnes[byte]));
  const uint32x4_t added = vdupq_n_u32(first);
  vst1q_u32(to, vaddw_u16(added, vget_low_u16(ones)));
  vst1q_u32(to + 4, vaddw_u16(added, vget_high_u16(ones)));
#else
  const __m256i ones = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kOnes[byte])));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_add_epi32(ones, _mm256_set1_epi32(first)));
#endif
  return count_ones(byte);
}
#endif

// Stores indices by place, with `first` added. Whole steps of places may be written.
struct MatchRow {
  uint32_t* number;
  uint32_t first, nothing = 0;

  void add(bool here, uint32_t own, int place) { *(here ? number + place : &nothing) = first + own; }
#ifdef RESCORE_EIGHT_ENTRIES
  void add(uint32_t entries, uint32_t own, uint32_t places, int place) {
    for (; places; places &= places - 1, entries &= entries - 1)
      number[place + __builtin_ctz(places)] = first + own + __builtin_ctz(entries);
  }
#endif
#ifdef __AVX512F__
  void add(__mmask16, __m512i own, int place) {
    _mm512_storeu_si512(number + place, _mm512_add_epi32(own, _mm512_set1_epi32(first)));
  }
#endif
};

// Stores matches densely, ascending by place: indices plus `first`, and places plus `first_place`. Up to one step more
// may be written.
struct PackedMatches {
  uint32_t *number, *place;
  uint32_t first, first_place;

  void add(bool here, uint32_t own, int at) {
    *number = first + own;
    *place = first_place + at;
    number += here;
    place += here;
  }
#ifdef RESCORE_EIGHT_ENTRIES
  // Matches as bits: `entries` of eight from `own` on, and equally many `places` of sixteen from `at` on.
  void add(uint32_t entries, uint32_t own, uint32_t places, int at) {
    number += write_ones(entries, first + own, number);
    place += write_ones(places & 0xFF, first_place + at, place);
    place += write_ones(places >> 8, first_place + at + 8, place);
  }
#endif
#ifdef __AVX512F__
  void add(__mmask16 here, __m512i own, int at) {
    const __m512i sixteen = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_storeu_si512(number, _mm512_maskz_compress_epi32(here, _mm512_add_epi32(own, _mm512_set1_epi32(first))));
    _mm512_storeu_si512(
        place, _mm512_maskz_compress_epi32(here, _mm512_add_epi32(sixteen, _mm512_set1_epi32(first_place + at))));
    number += count_ones(here);
    place += count_ones(here);
  }
#endif
};

// Passes matches of wanted tokens to `out`, each token once.
template <typename Out>
struct Wanted {
  Out& out;
  uint64_t wanted, tokens = 0;

  void add(bool here, uint32_t number, int place) {
    const uint64_t is_new = here & (wanted & ~tokens) >> (place & 63);
    out.add(is_new, number, place & 63);
    tokens |= is_new << (place & 63);
  }
};

// Eight interleaved binary searches, so that their reads do not wait for each other. A search for a token of the list
// ends at its index.
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

template <typename List, typename Out>
inline uint64_t search_list(List list, uint32_t size, const TokenSet& tokens, uint64_t wanted, Out& out) {
  Wanted<Out> found{out, wanted};
  std::array<uint32_t, 8> ended;
  for (int first = 0; first < tokens.size(); first += 8) {
    search_eight(list, size, tokens.begin() + first, ended.data());
    for (int i = first; i < tokens.size() && i < first + 8; ++i)
      found.add(list[ended[i - first]] == tokens[i], ended[i - first], i);
  }
  return found.tokens;
}

template <typename List, typename Out>
inline uint64_t scan_list(List list, uint32_t size, const TokenSet& tokens, uint64_t wanted, Out& out) {
  Wanted<Out> found{out, wanted};
  for (uint32_t n = 0; n < size; ++n) {
    const int i = tokens.find(list[n]);
    found.add(i != TokenSet::kMissing, n, i);
  }
  return found.tokens;
}

#ifdef RESCORE_SIXTEEN_ENTRIES
// Compares sixteen entries with sixteen tokens at once.
template <typename Out>
inline uint64_t compare_list(const uint16_t* list, uint32_t size, const TokenSet& tokens, uint64_t wanted, Out& out) {
  const __m512i no_token = _mm512_set1_epi32(-1), no_entry = _mm512_set1_epi32(-2);
  uint64_t all = 0;
  for (int first = 0; first < tokens.size(); first += kMatchStep) {
    const __m512i set = _mm512_mask_loadu_epi32(no_token, wanted >> first, tokens.begin() + first);
    __m512i numbers = _mm512_setzero_si512(),
            at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __mmask16 found = 0;
    for (uint32_t n = 0; n < size; n += 16) {
      const __mmask16 here = static_cast<__mmask16>((uint32_t{1} << std::min<uint32_t>(size - n, 16)) - 1);
      const __m512i entries = _mm512_mask_cvtepu16_epi32(no_entry, here, _mm256_maskz_loadu_epi16(here, list + n));
      __mmask16 of_list, of_set;
      _mm512_2intersect_epi32(entries, set, &of_list, &of_set);
      numbers = _mm512_mask_expand_epi32(numbers, of_set, _mm512_maskz_compress_epi32(of_list, at));
      at = _mm512_add_epi32(at, _mm512_set1_epi32(16));
      found |= of_set;
    }
    out.add(found, numbers, first);
    all |= static_cast<uint64_t>(found) << first;
  }
  return all;
}
#endif

#ifdef RESCORE_EIGHT_ENTRIES
// Sizes of lists to compare: for shorter lists a scan takes fewer instructions, for longer ones a search.
#ifdef __aarch64__
constexpr uint32_t kComparedFrom = 8;
#else
constexpr uint32_t kComparedFrom = 0;
#endif
constexpr uint32_t kCompared = 64;

// A mask of those of eight entries that are after the end of the list.
struct Behind {
  alignas(16) std::array<int16_t, 16> entry{0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1};
  const int16_t* of(uint32_t here) const { return &entry[8 - here]; }
};
inline constexpr Behind kBehind;

#ifdef __aarch64__
using Sixteen = uint16x8x2_t;
using Eight = uint16x8_t;

[[gnu::always_inline]] inline Sixteen sixteen_of(const uint16_t* tokens) {
  return {vld1q_u16(tokens), vld1q_u16(tokens + 8)};
}

[[gnu::always_inline]] inline Eight eight_of(const uint16_t* list, uint32_t here) {
  const uint16x8_t read = vld1q_u16(list);
  return vbslq_u16(vreinterpretq_u16_s16(vld1q_s16(kBehind.of(here))), vdupq_laneq_u16(read, 0), read);
}

// Compares eight entries with sixteen tokens: which tokens are among the entries, and which entries among the tokens.
// Entry by entry; pairwise maxima combine the eight comparisons into one vector.
[[gnu::always_inline]] inline void intersect(Sixteen tokens, Eight entries, uint32_t& of_tokens, uint32_t& of_entries) {
  uint16x8_t low = vdupq_n_u16(0), high = low;
  std::array<uint16x8_t, 8> any;
  for (int i = 0; i < 8; ++i) {
    const uint16x8_t entry = vdupq_n_u16(entries[i]);
    const uint16x8_t in_low = vceqq_u16(tokens.val[0], entry), in_high = vceqq_u16(tokens.val[1], entry);
    low = vorrq_u16(low, in_low);
    high = vorrq_u16(high, in_high);
    any[i] = vorrq_u16(in_low, in_high);
  }
  for (int left = 4; left; left /= 2)
    for (int i = 0; i < left; ++i) any[i] = vpmaxq_u16(any[2 * i], any[2 * i + 1]);
  // Each token and entry has a byte with a distinct bit; pairwise sums collect the bits: two bytes for tokens, one for
  // entries.
  const auto bytes = [](uint16x8_t a, uint16x8_t b) {
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    return vandq_u8(vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b)), bit);
  };
  uint8x16_t sums = vpaddq_u8(bytes(low, high), bytes(any[0], any[0]));
  sums = vpaddq_u8(sums, sums);
  const uint32_t bits = vgetq_lane_u32(vreinterpretq_u32_u8(vpaddq_u8(sums, sums)), 0);
  of_tokens = bits & 0xFFFF;
  of_entries = bits >> 16 & 0xFF;
}
#else
using Sixteen = __m256i;
using Eight = __m128i;

[[gnu::always_inline]] inline Sixteen sixteen_of(const uint16_t* tokens) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tokens));
}

[[gnu::always_inline]] inline Eight eight_of(const uint16_t* list, uint32_t here) {
  const __m128i read = _mm_loadu_si128(reinterpret_cast<const __m128i*>(list));
  const __m128i behind = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kBehind.of(here)));
  return _mm_blendv_epi8(read, _mm_broadcastw_epi16(read), behind);
}

// Compares eight entries with sixteen tokens: which tokens are among the entries, and which entries among the tokens.
// The entries are rotated past the tokens, one place at a time, and the matches are rotated back.
[[gnu::always_inline]] inline void intersect(__m256i tokens, __m128i entries, uint32_t& of_tokens,
                                             uint32_t& of_entries) {
  const __m256i turning = _mm256_broadcastsi128_si256(entries);
  __m256i found = _mm256_cmpeq_epi16(tokens, turning), back = found;
  const auto turned = [&](auto by) {
    constexpr int kBytes = 2 * decltype(by)::value;
    const __m256i equal = _mm256_cmpeq_epi16(tokens, _mm256_alignr_epi8(turning, turning, kBytes));
    found = _mm256_or_si256(found, equal);
    back = _mm256_or_si256(back, _mm256_alignr_epi8(equal, equal, 16 - kBytes));
  };
  turned(std::integral_constant<int, 1>());
  turned(std::integral_constant<int, 2>());
  turned(std::integral_constant<int, 3>());
  turned(std::integral_constant<int, 4>());
  turned(std::integral_constant<int, 5>());
  turned(std::integral_constant<int, 6>());
  turned(std::integral_constant<int, 7>());
  const auto low = [](__m256i lanes) { return _mm256_castsi256_si128(lanes); };
  const auto high = [](__m256i lanes) { return _mm256_extracti128_si256(lanes, 1); };
  of_tokens = _mm_movemask_epi8(_mm_packs_epi16(low(found), high(found)));
  of_entries = _mm_movemask_epi8(_mm_packs_epi16(_mm_or_si128(low(back), high(back)), _mm_setzero_si128()));
}
#endif

// Reads up to kMatchSpare entries after the list; they are replaced by the first of the eight.
template <typename Out>
inline uint64_t compare_list(const uint16_t* list, uint32_t size, const TokenSet& tokens, uint64_t wanted, Out& out) {
  const Out before = out;
  uint64_t all = 0;
  for (int first = 0; first < tokens.size(); first += kMatchStep) {
    const Sixteen set = sixteen_of(tokens.low() + first);
    for (uint32_t n = 0; n < size; n += 8) {
      const uint32_t here = std::min<uint32_t>(size - n, 8);
      uint32_t of_tokens, of_entries;
      intersect(set, eight_of(list + n, here), of_tokens, of_entries);
      of_entries &= (uint32_t{1} << here) - 1;
      const uint64_t found = static_cast<uint64_t>(of_tokens) << first;
      // A match of an unwanted token, or a token that a damaged list holds twice: fall back to a scan.
      if ((found & (all | ~wanted)) | (count_ones(of_tokens) ^ count_ones(of_entries))) {
        out = before;
        return scan_list(list, size, tokens, wanted, out);
      }
      out.add(of_entries, n, of_tokens, first);
      all |= found;
    }
  }
  return all;
}
#endif

// spare: whether kMatchSpare entries after the list may be read.
template <typename List, typename Out>
inline uint64_t match_list(List list, uint32_t size, const TokenSet& tokens, uint64_t wanted,
                           [[maybe_unused]] bool spare, Out& out) {
#ifdef RESCORE_EIGHT_ENTRIES
  if constexpr (std::is_same_v<List, const uint16_t*>)
    if (size - kComparedFrom <= kCompared - kComparedFrom && spare)
      return compare_list(list, size, tokens, wanted, out);
#endif
#ifdef RESCORE_SIXTEEN_ENTRIES
  if constexpr (std::is_same_v<List, const uint16_t*>)
    if (size <= 512) return compare_list(list, size, tokens, wanted, out);
#endif
  if (size > 2 * static_cast<uint32_t>(tokens.size())) return search_list(list, size, tokens, wanted, out);
  return scan_list(list, size, tokens, wanted, out);
}

}  // namespace rescore
