// Long lists of arcs as bit sets: one read tells whether and where a token is in the list; a search would take a dozen.
// A bit set is built on first use of its list and cached. It takes at most 4 bytes per arc.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "bits.h"
#include "list_match.h"

namespace rescore {

#ifdef __AVX512BW__
// The number of ones in each of eight words.
[[gnu::always_inline]] inline __m512i ones_of(__m512i words) {
#ifdef __AVX512VPOPCNTDQ__
  return _mm512_popcnt_epi64(words);
#else
  // A table look-up per half byte, then sums over the bytes.
  const __m512i half = _mm512_set1_epi8(0xF),
                ones = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
  const __m512i low = _mm512_shuffle_epi8(ones, _mm512_and_si512(words, half)),
                high = _mm512_shuffle_epi8(ones, _mm512_and_si512(_mm512_srli_epi16(words, 4), half));
  return _mm512_sad_epu8(_mm512_add_epi8(low, high), _mm512_setzero_si512());
#endif
}
#endif

// A set of tokens as a bit set with ranks: for every 32 tokens their bits, and the number of members before them.
class DenseList {
 public:
  // list(i) for i < size: ascending tokens below `vocab_size`.
  template <typename List>
  DenseList(uint32_t vocab_size, uint32_t size, List list) : words_(new Word[vocab_size / 32 + 1]()) {
    for (uint32_t i = 0; i < size; ++i) {
      const uint32_t token = list(i);
      words_[token / 32] |= uint64_t{1} << token % 32;
    }
    uint64_t before = 0;
    for (uint32_t i = 0; i <= vocab_size / 32; ++i) {
      const uint32_t ones = count_ones(words_[i]);
      words_[i] |= before << 32;
      before += ones;
    }
  }

  void prefetch(const TokenSet& tokens) const {
    for (const uint32_t token : tokens) prefetch_line(&words_[token / 32]);
  }

  // Like the functions of list_match.h.
  template <typename Out>
  uint64_t match(const TokenSet& tokens, uint64_t wanted, Out& out) const {
    uint64_t found = 0;
#ifdef __AVX512BW__
    const auto eight = [&](int first) {
      const __mmask8 here = static_cast<__mmask8>(wanted >> first);
      const __m512i token = _mm512_maskz_cvtepu32_epi64(here, _mm256_maskz_loadu_epi32(here, tokens.begin() + first));
      const __m512i word =
          _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), here, _mm512_srli_epi64(token, 5), words_.get(), 8);
      const __m512i bit = _mm512_sllv_epi64(_mm512_set1_epi64(1), _mm512_and_si512(token, _mm512_set1_epi64(31)));
      const __m512i before = ones_of(_mm512_and_si512(word, _mm512_sub_epi64(bit, _mm512_set1_epi64(1))));
      found |= static_cast<uint64_t>(_mm512_mask_test_epi64_mask(here, word, bit)) << first;
      return _mm512_cvtepi64_epi32(_mm512_add_epi64(before, _mm512_srli_epi64(word, 32)));
    };
    for (int first = 0; first < tokens.size(); first += kMatchStep) {
      const __m512i numbers = _mm512_inserti64x4(_mm512_castsi256_si512(eight(first)), eight(first + 8), 1);
      out.add(static_cast<__mmask16>(found >> first), numbers, first);
    }
#else
    for (int i = 0; i < tokens.size(); ++i) {
      const Word word = words_[tokens[i] / 32], bit = uint64_t{1} << tokens[i] % 32,
                 here = ((word & bit) != 0) & (wanted >> i);
      out.add(here, static_cast<uint32_t>(word >> 32) + count_ones(word & (bit - 1)), i);
      found |= here << i;
    }
#endif
    return found;
  }

 private:
  using Word = uint64_t;  // lower half: bits; upper half: number of members before them
  std::unique_ptr<Word[]> words_;
};

// The dense lists of the contexts of one length: a hash table to which threads may add concurrently.
class DenseLists {
 public:
  DenseLists(uint64_t arcs, uint32_t vocab_size) : least_(std::max<uint64_t>(vocab_size / 16, 512)) {
    while (uint64_t{1} << bits_ < 2 * (arcs / least_)) ++bits_;
    // calloc: pages of a large zeroed block take no memory until they are written.
    entries_.reset(static_cast<Entry*>(std::calloc(size_t{1} << bits_, sizeof(Entry))));
    if (!entries_) throw std::bad_alloc();
  }
  ~DenseLists() {
    for (uint64_t i = 0; i < uint64_t{1} << bits_; ++i) delete entries_[i].list.load();
  }
  DenseLists(const DenseLists&) = delete;
  DenseLists& operator=(const DenseLists&) = delete;

  bool dense(uint64_t size) const { return size >= least_; }

  // The dense list of a context, built by make() on first use. Null if there are more long lists than the number of
  // arcs allows, in a damaged model.
  template <typename Make>
  const DenseList* at(uint32_t context, Make make) const {
    const uint64_t first = (context * 0x9E3779B97F4A7C15ull) >> (64 - bits_);
    for (uint64_t probe = 0; probe < kProbes; ++probe) {
      Entry& entry = entries_[(first + probe) & ((uint64_t{1} << bits_) - 1)];
      uint64_t key = entry.key.load(std::memory_order_relaxed);
      if (!key && entry.key.compare_exchange_strong(key, context + uint64_t{1}, std::memory_order_relaxed))
        key = context + uint64_t{1};
      if (key != context + uint64_t{1}) continue;
      const DenseList* known = entry.list.load(std::memory_order_acquire);
      if (known) return known;
      auto made = std::make_unique<DenseList>(make());
      if (entry.list.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) known = made.release();
      return known;
    }
    return nullptr;
  }

 private:
  static constexpr uint64_t kProbes = 64;
  struct Entry {
    std::atomic<uint64_t> key;  // 1 + the context; 0: free
    std::atomic<const DenseList*> list;
  };
  struct Free {
    void operator()(Entry* entries) const { std::free(entries); }
  };
  uint64_t least_;
  int bits_ = 4;
  std::unique_ptr<Entry[], Free> entries_;
};

}  // namespace rescore
