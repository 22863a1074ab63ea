#include "cost_column.h"

#include <algorithm>
#include <unordered_map>

namespace rescore {
namespace {

constexpr uint64_t kMostEntries = uint64_t{1} << 20;  // 4 MB; a larger book would be read from memory, not from caches

uint32_t pattern(float cost) {
  uint32_t bits;
  std::memcpy(&bits, &cost, 4);
  return bits;
}

// The bits of the costs that occur; empty if they are so many that a book saves little.
std::unordered_map<uint32_t, uint32_t> distinct(const float* cost, uint64_t size) {
  std::unordered_map<uint32_t, uint32_t> found;
  const uint64_t most = std::min(kMostEntries, size / 2);
  for (uint64_t i = 0; i < size; ++i) {
    found.emplace(pattern(cost[i]), 0);
    if (found.size() > most) return {};
  }
  return found;
}

EncodedColumn raw(const float* cost, uint64_t size) {
  EncodedColumn out{32, std::vector<uint8_t>(CostColumn::bytes(size, 32)), {}};
  if (size) std::memcpy(out.data.data(), cost, 4 * size);
  return out;
}

template <typename Code>
std::vector<uint8_t> packed(uint64_t size, uint32_t bits, Code code) {
  std::vector<uint8_t> data(CostColumn::bytes(size, bits));
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t at = i * bits;
    const uint64_t word = load64(&data[at / 8]) | static_cast<uint64_t>(code(i)) << at % 8;
    std::memcpy(&data[at / 8], &word, 8);
  }
  return data;
}

}  // namespace

EncodedColumn exact_column(const float* cost, uint64_t size) {
  auto number = distinct(cost, size);
  const uint32_t bits = number.empty() ? 32 : bit_length(number.size() - 1);
  if (number.empty() || size * bits + 32 * number.size() > 24 * size) return raw(cost, size);
  std::vector<float> book(number.size());
  std::transform(number.begin(), number.end(), book.begin(), [](const auto& entry) {
    float own;
    std::memcpy(&own, &entry.first, 4);
    return own;
  });
  std::sort(book.begin(), book.end());
  for (size_t i = 0; i < book.size(); ++i) {
    if (i && !(book[i - 1] < book[i])) return raw(cost, size);  // 0 and -0, or a NaN
    number[pattern(book[i])] = i;
  }
  return {bits, packed(size, bits, [&](uint64_t i) { return number.find(pattern(cost[i]))->second; }), std::move(book)};
}

EncodedColumn rounded_column(const float* cost, uint64_t size, const std::vector<float>& book) {
  std::vector<float> border(book.size() - 1);
  for (size_t i = 0; i < border.size(); ++i) border[i] = book[i] + (book[i + 1] - book[i]) / 2;
  const auto nearest = [&](uint64_t i) -> size_t {
    const size_t code = std::upper_bound(border.begin(), border.end(), cost[i]) - border.begin();
    if (book[code] != 0 || cost[i] == 0 || book.size() == 1) return code;
    const bool up = code == 0 || (cost[i] > 0 && code + 1 < book.size());
    return up ? code + 1 : code - 1;
  };
  return {8, packed(size, 8, nearest), book};
}

}  // namespace rescore
