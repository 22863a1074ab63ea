// The encoding of costs: as floats, or as indices of 1 or 2 bytes into a codebook of ascending floats.
//
// In Katz models p(w | h) depends on two counts, so costs repeat and a codebook of all costs of an order is often
// exact. Quantised costs use a codebook of 256 entries.
#pragma once

#include <algorithm>
#include <vector>

#include "bits.h"

namespace rescore {

struct CostForm {
  const char* name = "";
  const float* book = nullptr;  // the codebook; null for floats
  uint64_t entries = 0;
  uint32_t bytes = 4;

  static bool valid(uint64_t bytes, uint64_t entries) {
    return bytes == 4 ? entries == 0
                      : (bytes == 1 || bytes == 2) && entries >= 1 && entries <= uint64_t{1} << 8 * bytes;
  }

  // The cost at an address. i: its index, for the error if it is damaged.
  float read(const uint8_t* at, uint64_t i) const { return book ? book[code(at, i)] : load_word<float>(at); }
  uint32_t code(const uint8_t* at, uint64_t i) const {
    const uint32_t code = bytes == 1 ? *at : load16(at);
    if (code >= entries) corrupt(name, i);
    return code;
  }

  bool book_ascends() const {
    for (uint64_t i = 1; i < entries; ++i)
      if (!(book[i - 1] < book[i])) return false;
    return true;
  }
};

// The codebook of all costs [size] if it has at most 2^16 entries and saves at least a quarter of the space; else
// empty.
std::vector<float> exact_book(const float* cost, uint64_t size);

// Encodes costs: with a codebook, each as its nearest entry; without, as floats. A nonzero cost never becomes 0, which
// would mean a context without a backoff weight, unless the codebook has no other entry.
class CostWriter {
 public:
  explicit CostWriter(std::vector<float> book) : book_(std::move(book)) {}

  uint32_t bytes() const;
  void write(float cost, uint8_t* to) const;

 private:
  uint32_t nearest(float cost) const;
  uint32_t not_zero(uint32_t code, uint32_t other) const;

  std::vector<float> book_;
};

}  // namespace rescore
