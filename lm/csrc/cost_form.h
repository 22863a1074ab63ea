// How costs are written: as floats, or as the numbers, of 1 or 2 bytes, of entries of a book of floats that ascend.
//
// Katz models repeat their costs, p(w | h) being made of two counts: a book of all the costs of an order is often
// exact. A book of 256 is the quantised form.
#pragma once

#include <algorithm>
#include <vector>

#include "bits.h"

namespace rescore {

struct CostForm {
  const char* name = "";
  const float* book = nullptr;  // or null: floats
  uint64_t entries = 0;
  uint32_t bytes = 4;

  static bool valid(uint64_t bytes, uint64_t entries) {
    return bytes == 4 ? entries == 0
                      : (bytes == 1 || bytes == 2) && entries >= 1 && entries <= uint64_t{1} << 8 * bytes;
  }

  // The cost at an address; i: which of its array it is, should it be damaged.
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

// A book of all the costs [size], if it has at most 2^16 entries and saves a quarter of the space at least; else an
// empty one.
std::vector<float> exact_book(const float* cost, uint64_t size);

// Writes costs in one of the forms: with a book, each as the nearest of its entries. No other cost becomes 0, which
// says of a context that it has no backoff weight, while the book has another entry.
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
