// A set of up to 64 tokens, to be matched with lists of arcs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "sausage.h"

namespace rescore {

// Distinct tokens in ascending order.
class TokenSet {
 public:
  static constexpr int kMissing = -1;

  // Assigns tokens given in any order; place[i] becomes the place of token i. Returns false if a token is repeated.
  bool assign(const int32_t* tokens, int size, uint8_t* place) {
    std::array<int32_t, kMaxCandidates> given;
    given.fill(INT32_MAX);
    std::copy_n(tokens, size, given.data());
    // Counting sort by the number of smaller tokens: more comparisons than needed, but branch-free.
    uint64_t places = 0;
    for (int i = 0; i < size; ++i) {
      place[i] = static_cast<uint8_t>(lesser(given.data(), size, given[i]));
      places |= uint64_t{1} << place[i];
    }
    for (int i = 0; i < size; ++i) tokens_[place[i]] = given[i];
    std::fill_n(tokens_.data() + size, kStep - 1 - (size + kStep - 1) % kStep, INT32_MAX);
    std::copy(tokens_.begin(), tokens_.end(), low_.begin());
    size_ = size;
    filter_.fill(0);
    for (int i = 0; i < size; ++i) filter_[given[i] / 64 % kFilter] |= uint64_t{1} << given[i] % 64;
    return places == all();
  }

  int size() const { return size_; }
  const uint32_t* begin() const { return reinterpret_cast<const uint32_t*>(tokens_.data()); }
  const uint32_t* end() const { return begin() + size_; }
  // The low 16 bits of the tokens; whole steps of sixteen may be read.
  const uint16_t* low() const { return low_.data(); }
  uint32_t operator[](int i) const { return tokens_[i]; }
  uint64_t all() const { return size_ == 64 ? ~uint64_t{0} : (uint64_t{1} << size_) - 1; }

  // The place of a token, or kMissing.
  int find(uint32_t token) const {
    if (!(filter_[token / 64 % kFilter] >> token % 64 & 1)) return kMissing;
    const int place = lesser(tokens_.data(), size_, static_cast<int32_t>(token));
    return place < size_ && tokens_[place] == static_cast<int32_t>(token) ? place : kMissing;
  }

 private:
  static constexpr int kStep = 16, kFilter = 8;

  static int lesser(const int32_t* tokens, int size, int32_t token) {
    int32_t count = 0;
    for (int first = 0; first < size; first += kStep)
      for (int i = 0; i < kStep; ++i) count += tokens[first + i] < token;
    return count;
  }

  int size_ = 0;
  // A bit per token modulo the filter's size: rejects most other tokens with one read.
  std::array<uint64_t, kFilter> filter_{};
  std::array<int32_t, kMaxCandidates> tokens_{};  // the last step is padded with INT32_MAX
  std::array<uint16_t, kMaxCandidates> low_{};
};

}  // namespace rescore
