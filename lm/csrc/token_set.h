// Up to 64 tokens that lists of arcs are matched with.
#pragma once

#include <array>
#include <cstdint>

#include "sausage.h"

namespace rescore {

// Tokens in ascending order, each once, and a small hash table over them: most tokens of a list are told from
// them by one look at it.
class TokenSet {
 public:
  static constexpr int kMissing = -1;

  void clear() {
    table_.fill(0);
    size_ = 0;
  }
  // Precondition: less than 64 tokens, all below this one.
  void add(uint32_t token) {
    tokens_[size_++] = token;
    uint32_t at = token % kTable;
    while (table_[at]) at = (at + 1) % kTable;
    table_[at] = static_cast<uint8_t>(size_);
  }

  int size() const { return size_; }
  const uint32_t* begin() const { return tokens_.data(); }
  const uint32_t* end() const { return tokens_.data() + size_; }
  uint32_t operator[](int i) const { return tokens_[i]; }
  uint64_t all() const { return size_ == 64 ? ~uint64_t{0} : (uint64_t{1} << size_) - 1; }

  // Which of them a token is, or kMissing.
  int find(uint32_t token) const {
    for (uint32_t at = token % kTable; table_[at]; at = (at + 1) % kTable)
      if (tokens_[table_[at] - 1] == token) return table_[at] - 1;
    return kMissing;
  }

 private:
  static constexpr uint32_t kTable = 512;

  int size_ = 0;
  std::array<uint32_t, kMaxCandidates> tokens_{};
  std::array<uint8_t, kTable> table_{};  // 1 + which of them, at the token modulo the size or behind it; 0: none
};

}  // namespace rescore
