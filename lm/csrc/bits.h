// Bit operations on words, in the little-endian order of the files.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#ifdef __BMI2__
#include <immintrin.h>
#endif

namespace rescore {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "model files are little-endian and mapped without conversion");

// An inconsistent model: its file is damaged.
class CorruptModel : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void corrupt(const char* array, uint64_t index) {
  throw CorruptModel("n-gram model: " + std::string(array) + "[" + std::to_string(index) +
                     "] points outside the model; the file is damaged, check it with verify=True");
}

// The number of binary digits; 0 for 0.
inline uint32_t bit_length(uint64_t value) { return value ? 64 - __builtin_clzll(value) : 0; }

template <typename Word>
Word load_word(const uint8_t* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}
inline uint16_t load16(const uint8_t* bytes) { return load_word<uint16_t>(bytes); }
inline uint32_t load32(const uint8_t* bytes) { return load_word<uint32_t>(bytes); }

// Prefetches the cache line of an address, which need not be valid. GCC removes calls of a function that only contains
// __builtin_prefetch, as if it had no effect; the empty asm statement prevents that.
inline void prefetch_line(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}

// The number of ones in the bytes up to and including each byte, lowest byte first (Vigna 2008, Broadword
// implementation of rank/select queries). Portable, as not every x86-64 has an instruction that counts bits.
inline uint64_t ones_by_byte(uint64_t word) {
  word -= (word >> 1) & 0x5555555555555555ull;
  word = (word & 0x3333333333333333ull) + ((word >> 2) & 0x3333333333333333ull);
  return ((word + (word >> 4)) & 0x0F0F0F0F0F0F0F0Full) * 0x0101010101010101ull;
}

inline uint32_t count_ones(uint64_t word) {
#if defined(__POPCNT__) || defined(__aarch64__)
  return __builtin_popcountll(word);
#else
  return ones_by_byte(word) >> 56;
#endif
}

// [byte][rank]: the position of the one of that rank in a byte.
struct SelectTable {
  uint8_t place[256][8] = {};
  constexpr SelectTable() {
    for (int byte = 0; byte < 256; ++byte)
      for (int bit = 0, rank = 0; bit < 8; ++bit)
        if (byte >> bit & 1) place[byte][rank++] = bit;
  }
};
inline constexpr SelectTable kSelectInByte;

// The position of the one of the given rank (from 0) in a word; it must have more than `rank` ones.
inline uint32_t place_of_one(uint64_t word, uint32_t rank) {
#ifdef __BMI2__
  return __builtin_ctzll(_pdep_u64(uint64_t{1} << rank, word));
#else
  const uint64_t sums = ones_by_byte(word);
  // A byte whose sum is at most `rank` keeps its top bit: the wanted one comes after it.
  const uint64_t beyond = ((rank * 0x0101010101010101ull | 0x8080808080808080ull) - sums) & 0x8080808080808080ull;
  const uint32_t byte = static_cast<uint32_t>(((beyond >> 7) * 0x0101010101010101ull) >> 56) * 8;
  return byte + kSelectInByte.place[word >> byte & 0xFF][rank - ((sums << 8 >> byte) & 0xFF)];
#endif
}

// The same for any word. If it has too few ones, returns 64 and subtracts their number from rank.
inline uint32_t select_in_word(uint64_t word, uint32_t& rank) {
  const uint32_t ones = count_ones(word);
  if (rank < ones) return place_of_one(word, rank);
  rank -= ones;
  return 64;
}

}  // namespace rescore
