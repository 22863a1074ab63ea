// The records of the arcs of one order: the cost of each arc and, below the highest order, a code of its next state.
// A search reads both from one cache line. Tokens are stored separately.
#pragma once

#include <algorithm>

#include "cost_form.h"

namespace rescore {

class ArcRecords {
 public:
  static constexpr uint64_t kSpare = 4;  // bytes after the last record that may be read with it

  static uint32_t code_bytes(uint32_t next_bits) { return next_bits < 8 ? 1 : 2; }

  ArcRecords() = default;
  // A view of records, each a cost and a code of `code_bytes` bytes: 0, 1 or 2.
  ArcRecords(const uint8_t* data, CostForm form, uint32_t code_bytes)
      : data_(data), form_(form), stride_(form.bytes + code_bytes), code_mask_((uint32_t{1} << 8 * code_bytes) - 1) {}

  float cost(uint64_t i) const { return form_.read(at(i), i); }
  // 0 if records have no codes.
  uint32_t code(uint64_t i) const { return load32(at(i) + form_.bytes) & code_mask_; }
  void prefetch(uint64_t i) const { prefetch_line(at(i)); }
  const CostForm& form() const { return form_; }

  // A bit for each of arcs i .. i + count - 1 whose cost is at most `limit`; count <= 64.
  uint64_t within(uint64_t i, uint64_t count, float limit) const {
    uint64_t found = 0;
#ifdef __AVX512BW__
    for (uint64_t n = 0; n < count; n += 16) {
      const uint32_t size = std::min<uint64_t>(count - n, 16);
      const __mmask16 here = static_cast<__mmask16>((uint32_t{1} << size) - 1);
      const __m512i bits = sixteen(i + n, size);
      const __m512 costs = form_.book ? of_book(bits, here, i + n) : _mm512_castsi512_ps(bits);
      found |= static_cast<uint64_t>(_mm512_mask_cmp_ps_mask(here, costs, _mm512_set1_ps(limit), _CMP_LE_OQ)) << n;
    }
#elif defined(__AVX2__)
    const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                  offset = _mm256_mullo_epi32(place, _mm256_set1_epi32(stride_));
    for (uint64_t n = 0; n < count; n += 8) {
      const __m256i here = _mm256_cmpgt_epi32(_mm256_set1_epi32(std::min<uint64_t>(count - n, 8)), place);
      const __m256i bits =
          _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), reinterpret_cast<const int*>(at(i + n)), offset, here, 1);
      const __m256 costs = form_.book ? of_book(bits, here, i + n) : _mm256_castsi256_ps(bits);
      const __m256 cheap =
          _mm256_and_ps(_mm256_cmp_ps(costs, _mm256_set1_ps(limit), _CMP_LE_OQ), _mm256_castsi256_ps(here));
      found |= static_cast<uint64_t>(_mm256_movemask_ps(cheap)) << n;
    }
#else
    const auto look = [&](auto read) {
      for (uint64_t n = 0; n < count; ++n) found |= static_cast<uint64_t>(read(i + n) <= limit) << n;
    };
    if (form_.book)
      look([this](uint64_t arc) { return cost(arc); });
    else
      look([this](uint64_t arc) { return load_word<float>(at(arc)); });
#endif
    return found;
  }

 private:
  const uint8_t* at(uint64_t i) const { return data_ + i * stride_; }
#ifdef __AVX512BW__
  // The first 4 bytes of records i .. i + size - 1; size <= 16.
  __m512i sixteen(uint64_t i, uint32_t size) const {
    const __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                  stride = _mm512_set1_epi32(stride_);
    if (stride_ % 2)
      return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), static_cast<__mmask16>((uint32_t{1} << size) - 1),
                                         _mm512_mullo_epi32(number, stride), at(i), 1);
    // Two loads and one permutation of 16-bit words are faster than a gather.
    const uint64_t words = (uint64_t{1} << (size * stride_ + 2) / 2) - 1;
    const __m512i low = _mm512_srli_epi32(_mm512_mullo_epi32(number, stride), 1);
    const __m512i chosen = _mm512_or_si512(low, _mm512_slli_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(1)), 16));
    return _mm512_permutex2var_epi16(_mm512_maskz_loadu_epi16(static_cast<__mmask32>(words), at(i)), chosen,
                                     _mm512_maskz_loadu_epi16(static_cast<__mmask32>(words >> 32), at(i) + 64));
  }
  // The costs of codes from the codebook. first: the number of the first arc, for the error.
  __m512 of_book(__m512i bits, __mmask16 here, uint64_t first) const {
    const __m512i codes = _mm512_and_si512(bits, _mm512_set1_epi32(form_.bytes == 1 ? 0xFF : 0xFFFF));
    if (_mm512_mask_cmpge_epu32_mask(here, codes, _mm512_set1_epi32(form_.entries))) corrupt(form_.name, first);
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), here, codes, form_.book, 4);
  }
#elif defined(__AVX2__)
  __m256 of_book(__m256i bits, __m256i here, uint64_t first) const {
    const __m256i codes = _mm256_and_si256(bits, _mm256_set1_epi32(form_.bytes == 1 ? 0xFF : 0xFFFF));
    const __m256i beyond = _mm256_cmpgt_epi32(codes, _mm256_set1_epi32(static_cast<int>(form_.entries) - 1));
    if (!_mm256_testz_si256(beyond, here)) corrupt(form_.name, first);
    return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), form_.book, codes, _mm256_castsi256_ps(here), 4);
  }
#endif

  const uint8_t* data_ = nullptr;
  CostForm form_;
  uint32_t stride_ = 4;
  uint32_t code_mask_ = 0;
};

}  // namespace rescore
