// The costs of the arcs of one order, or of the failure arcs of one length, in one of two forms:
//
//     32 bits, no book   each cost a float
//     b bits and a book  each cost the number, of b bits, of one of at most 2^b floats, which ascend
//
// Katz models repeat their costs, p(w | h) being made of two counts: as a rule a book of all the costs of an order
// is exact and takes half the space. A book of 256 is the quantised form. Bits lie packed, least first, in bytes.
#pragma once

#include <algorithm>
#include <vector>

#include "bits.h"

namespace rescore {

class CostColumn {
 public:
  static constexpr uint32_t kMostBits = 24;

  CostColumn() = default;
  // A view of bytes(number of costs, bits) bytes and, unless `bits` is 32, a book of `entries` floats.
  CostColumn(const char* name, const uint8_t* data, uint32_t bits, const float* book, uint64_t entries)
      : name_(name), data_(data), book_(bits == 32 ? nullptr : book), entries_(entries), bits_(bits), mask_((uint64_t{1} << bits) - 1) {}

  // A multiple of 8, of which the last 8 may be read with what is before them.
  static uint64_t bytes(uint64_t size, uint32_t bits) { return size ? (size * bits + 63) / 64 * 8 + 8 : 0; }
  static bool valid(uint32_t bits, uint64_t entries) {
    return bits == 32 ? entries == 0 : bits <= kMostBits && entries >= 1 && entries <= uint64_t{1} << bits;
  }

  // Cost i.
  float operator[](uint64_t i) const { return cost(code(i)); }

  // The same in two steps, so that the memory of many costs can be asked for at once. `code` asks for that of its cost.
  uint32_t code(uint64_t i) const {
    uint32_t code;
    if (!book_) {
      std::memcpy(&code, data_ + 4 * i, 4);
      return code;
    }
    const uint64_t at = i * bits_;
    code = load64(data_ + at / 8) >> at % 8 & mask_;
    if (code >= entries_) corrupt(name_, i);
    ask_for(book_ + code);
    return code;
  }
  float cost(uint32_t code) const {
    if (book_) return book_[code];
    float cost;
    std::memcpy(&cost, &code, 4);
    return cost;
  }

  // The same of those of a row of `size`, a multiple of eight, that have a bit. Other codes may become anything, other costs stay.
  void codes(const uint32_t* i, uint64_t here, [[maybe_unused]] int size, uint32_t* code) const {
#ifdef __AVX512F__
    for (int first = 0; first < size; first += 8) {
      const __m512i number = _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(i + first)));
      const __m512i bit = _mm512_mul_epu32(number, _mm512_set1_epi64(bits_));
      const __m512i word = _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), static_cast<__mmask8>(here >> first), _mm512_srli_epi64(bit, 3), data_, 1);
      const __m512i codes = _mm512_and_si512(_mm512_srlv_epi64(word, _mm512_and_si512(bit, _mm512_set1_epi64(7))), _mm512_set1_epi64(mask_));
      if (const __mmask8 beyond = _mm512_cmpge_epu64_mask(codes, _mm512_set1_epi64(entries_)); book_ && beyond) corrupt(name_, i[first + __builtin_ctz(beyond)]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(code + first), _mm512_cvtepi64_epi32(codes));
    }
    if (book_)
      for (; here; here &= here - 1) ask_for(book_ + code[__builtin_ctzll(here)]);
#else
    for (; here; here &= here - 1) code[__builtin_ctzll(here)] = this->code(i[__builtin_ctzll(here)]);
#endif
  }
  void costs(const uint32_t* code, uint64_t here, [[maybe_unused]] int size, double* cost) const {
#ifdef __AVX512F__
    for (int first = 0; first < size; first += 8) {
      const __mmask8 own = static_cast<__mmask8>(here >> first);
      const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(code + first));
      const __m256 found = book_ ? _mm256_mmask_i32gather_ps(_mm256_setzero_ps(), own, codes, book_, 4) : _mm256_castsi256_ps(codes);
      _mm512_storeu_pd(cost + first, _mm512_mask_cvtps_pd(_mm512_loadu_pd(cost + first), own, found));
    }
#else
    for (; here; here &= here - 1) cost[__builtin_ctzll(here)] = this->cost(code[__builtin_ctzll(here)]);
#endif
  }

  void prefetch(uint64_t i) const { ask_for(data_ + i * bits_ / 8); }

  // A limit of costs, and how many costs of the book it allows: as books ascend, their numbers can be compared.
  struct Limit {
    float cost;
    uint64_t codes;
  };
  Limit limit(float cost) const { return {cost, book_ ? static_cast<uint64_t>(std::upper_bound(book_, book_ + entries_, cost) - book_) : 0}; }

  // Which of costs i .. i + count - 1 are within the limit, a bit each; count <= 64.
  uint64_t within(uint64_t i, uint64_t count, Limit limit) const {
    uint64_t found = 0;
    if (!book_) {
      for (uint64_t n = 0; n < count; ++n) found |= static_cast<uint64_t>((*this)[i + n] <= limit.cost) << n;
      return found;
    }
    const uint64_t bits = bits_, mask = mask_;
    uint64_t at = i * bits;
    for (uint64_t n = 0; n < count; ++n, at += bits) found |= static_cast<uint64_t>((load64(data_ + at / 8) >> at % 8 & mask) < limit.codes) << n;
    return found;
  }

  bool book_ascends() const {
    for (uint64_t i = 1; i < entries_; ++i)
      if (!(book_[i - 1] < book_[i])) return false;
    return true;
  }

 private:
  const char* name_ = "";
  const uint8_t* data_ = nullptr;
  const float* book_ = nullptr;
  uint64_t entries_ = 0;
  uint32_t bits_ = 32;
  uint64_t mask_ = 0;
};

struct EncodedColumn {
  uint32_t bits;
  std::vector<uint8_t> data;
  std::vector<float> book;
};

// The same costs, by a book of them if that saves a quarter of the space at least.
EncodedColumn exact_column(const float* cost, uint64_t size);

// The costs rounded to the nearest of a book of 1 to 256, which ascends; 8 bits each. No other cost becomes 0, which
// says of a context that it has no backoff weight, while the book has another entry.
EncodedColumn rounded_column(const float* cost, uint64_t size, const std::vector<float>& book);

}  // namespace rescore
