// A non-decreasing sequence, in about two bits per value more than its entropy (Elias 1974; Fano 1971).
//
// The low l bits of each of n values up to `greatest` are packed. The high bits h of value i are a one at position
// h + i of a bit vector, so value i is at the i-th one. Samples of every 32nd value tell where to start counting. One
// block of 64-bit words holds all of it:
//
//     samples  h of values 0, 32, 64, .., two per word; l is chosen so that they fit 32 bits
//     low      n l bits, and one more word if l > 0, so that a value may be read together with the next word
//     high     n + (greatest >> l) bits and at least one more
#pragma once

#include <algorithm>
#include <vector>

#include "bits.h"

namespace rescore {

class EliasFano {
 public:
  static constexpr uint64_t kSampled = 32;

  EliasFano() = default;
  // A view of words(count, greatest) words.
  EliasFano(const char* name, const uint64_t* block, uint64_t count, uint64_t greatest)
      : name_(name), count_(count), greatest_(greatest), low_bits_(low_bits(count, greatest)), samples_(block) {
    low_ = block + samples(count);
    high_ = low_ + low_words(count, low_bits_);
    high_words_ = high_words(count, greatest, low_bits_);
  }

  static uint32_t low_bits(uint64_t count, uint64_t greatest) { return count ? bit_length(greatest / count) : 0; }
  static uint64_t words(uint64_t count, uint64_t greatest) {
    const uint32_t low = low_bits(count, greatest);
    return count ? samples(count) + low_words(count, low) + high_words(count, greatest, low) : 0;
  }

  // Value i < count.
  uint64_t operator[](uint64_t i) const { return value(i, select(i)); }
  // Of what reading it loads, what is known without loading.
  void prefetch(uint64_t i) const {
    prefetch_line(samples_ + i / kSampled / 2);
    prefetch_line(low_ + i * low_bits_ / 64);
  }

  // Whether the words hold `count` non-decreasing values and the right samples; O(count).
  bool well_formed() const {
    if (!count_) return true;
    uint64_t number = 0, before = 0;
    for (uint64_t at = 0; at < high_words_; ++at) {
      for (uint64_t word = high_[at]; word; word &= word - 1, ++number) {
        const uint64_t position = at * 64 + __builtin_ctzll(word);
        if (number == count_ || position < number || (number % kSampled == 0 && sample(number) != position))
          return false;
        const uint64_t found = ((position - number) << low_bits_) | low(number);
        if (found < before || found > greatest_) return false;
        before = found;
      }
    }
    return number == count_;
  }

  // Appends the block of `count` non-decreasing values value(i).
  template <typename Value>
  static void encode(uint64_t count, uint64_t greatest, Value value, std::vector<uint64_t>& block) {
    const uint32_t bits = low_bits(count, greatest);
    const uint64_t begin = block.size();
    block.resize(begin + words(count, greatest));
    uint64_t* samples = block.data() + begin;
    uint64_t* low = samples + EliasFano::samples(count);
    uint64_t* high = low + low_words(count, bits);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t own = value(i), position = (own >> bits) + i, at = i * bits;
      if (i % kSampled == 0) samples[i / kSampled / 2] |= (own >> bits) << (i / kSampled % 2 * 32);
      high[position / 64] |= uint64_t{1} << position % 64;
      if (!bits) continue;
      const uint64_t kept = own & ((uint64_t{1} << bits) - 1);
      low[at / 64] |= kept << at % 64;
      if (at % 64 + bits > 64) low[at / 64 + 1] |= kept >> (64 - at % 64);
    }
  }

 private:
  static uint64_t samples(uint64_t count) { return (count + 2 * kSampled - 1) / (2 * kSampled); }
  static uint64_t low_words(uint64_t count, uint32_t bits) { return bits ? (count * bits + 63) / 64 + 1 : 0; }
  static uint64_t high_words(uint64_t count, uint64_t greatest, uint32_t bits) {
    return (count + (greatest >> bits)) / 64 + 1;
  }

  uint64_t low(uint64_t i) const {
    if (!low_bits_) return 0;
    const uint64_t at = i * low_bits_, shift = at % 64;
    const uint64_t word = low_[at / 64] >> shift | (low_[at / 64 + 1] << 1) << (63 - shift);
    return word & ((uint64_t{1} << low_bits_) - 1);
  }

  uint64_t value(uint64_t i, uint64_t position) const {
    const uint64_t found = ((position - i) << low_bits_) | low(i);
    if (position < i || found > greatest_) corrupt(name_, i);
    return found;
  }

  // The position of the one of value i - i % kSampled.
  uint64_t sample(uint64_t i) const {
    const uint64_t number = i / kSampled;
    uint32_t high;
    std::memcpy(&high, reinterpret_cast<const uint8_t*>(samples_) + 4 * number, 4);
    return high + number * kSampled;
  }

  // The position of the one of value i.
  uint64_t select(uint64_t i) const {
    const uint64_t start = sample(i);
    uint64_t at = start / 64;
    if (at >= high_words_) corrupt(name_, i);
    uint64_t word = high_[at] & (~uint64_t{0} << start % 64);
    uint32_t rank = i % kSampled;
    for (;;) {
      if (const uint32_t place = select_in_word(word, rank); place < 64) return at * 64 + place;
      if (++at >= high_words_) corrupt(name_, i);
      word = high_[at];
    }
  }

  const char* name_ = "";
  uint64_t count_ = 0, greatest_ = 0;
  uint32_t low_bits_ = 0;
  uint64_t high_words_ = 0;
  const uint64_t* samples_ = nullptr;
  const uint64_t* low_ = nullptr;
  const uint64_t* high_ = nullptr;
};

}  // namespace rescore
