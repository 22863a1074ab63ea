#include "cost_form.h"

#include <cmath>
#include <unordered_set>

namespace rescore {
namespace {

constexpr size_t kMostEntries = 1 << 16;

uint32_t book_bytes(size_t entries) { return entries == 0 ? 4 : entries <= 256 ? 1 : 2; }

}  // namespace

std::vector<float> exact_book(const float* cost, uint64_t size) {
  std::unordered_set<uint32_t> found;
  for (uint64_t i = 0; i < size; ++i) {
    uint32_t pattern;
    std::memcpy(&pattern, cost + i, 4);
    found.insert(pattern);
    if (found.size() > kMostEntries || std::isnan(cost[i])) return {};
  }
  if (book_bytes(found.size()) * size + 4 * found.size() > 3 * size) return {};
  std::vector<float> book;
  for (const uint32_t pattern : found) std::memcpy(&book.emplace_back(), &pattern, 4);
  std::sort(book.begin(), book.end());
  if (std::adjacent_find(book.begin(), book.end()) != book.end()) return {};  // 0 and -0
  return book;
}

void CostWriter::write(float cost, uint8_t* to) const {
  if (book_.empty()) {
    std::memcpy(to, &cost, 4);
    return;
  }
  const uint32_t code = nearest(cost);
  std::memcpy(to, &code, bytes());
}

uint32_t CostWriter::bytes() const { return book_bytes(book_.size()); }

uint32_t CostWriter::nearest(float cost) const {
  const uint32_t above = std::lower_bound(book_.begin(), book_.end(), cost) - book_.begin();
  if (above < book_.size() && book_[above] == cost) return above;
  if (above == 0 || above == book_.size()) return above == 0 ? not_zero(0, 1) : not_zero(above - 1, above - 2);
  const bool up = book_[above] - cost <= cost - book_[above - 1];
  return up ? not_zero(above, above - 1) : not_zero(above - 1, above);
}

uint32_t CostWriter::not_zero(uint32_t code, uint32_t other) const {
  return book_[code] == 0 && book_.size() > 1 ? other : code;
}

}  // namespace rescore
