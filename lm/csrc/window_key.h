// A window, the longest n-gram that ends at a position of the text, packed into one number that sorts in context order.
//
// Fields from the most significant: the last but one token + 1, the one before it + 1, .., and finally the last token.
// A field of 0 means that the document begins after it. Windows therefore ascend by their context read backwards,
// shorter contexts first, then by their last token.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "order.h"

namespace rescore {

constexpr uint64_t kMostTokens = uint64_t{1} << 53;  // estimation uses counts in double precision

// Most significant word first, so that keys compare word by word.
template <int W>
struct WindowKey {
  uint64_t word[W];

  friend bool operator==(const WindowKey& a, const WindowKey& b) {
    for (int i = 0; i < W; ++i)
      if (a.word[i] != b.word[i]) return false;
    return true;
  }
  friend bool operator<(const WindowKey& a, const WindowKey& b) {
    for (int i = 0; i < W - 1; ++i)
      if (a.word[i] != b.word[i]) return a.word[i] < b.word[i];
    return a.word[W - 1] < b.word[W - 1];
  }

  bool zero() const {
    uint64_t any = 0;
    for (int i = 0; i < W; ++i) any |= word[i];
    return any == 0;
  }
  // Shifts require 0 < bits < 64.
  void shift_right(int bits) {
    for (int i = W - 1; i > 0; --i) word[i] = word[i] >> bits | word[i - 1] << (64 - bits);
    word[0] >>= bits;
  }
  void shift_left(int bits) {
    for (int i = 0; i < W - 1; ++i) word[i] = word[i] << bits | word[i + 1] >> (64 - bits);
    word[W - 1] <<= bits;
  }
  void subtract(const WindowKey& other) {
    uint64_t borrow = 0;
    for (int i = W - 1; i >= 0; --i) {
      const uint64_t before = word[i];
      word[i] = before - other.word[i] - borrow;
      borrow = before < other.word[i] || (before == other.word[i] && borrow);
    }
  }
  void add(const WindowKey& other) {
    uint64_t carry = 0;
    for (int i = W - 1; i >= 0; --i) {
      const uint64_t sum = word[i] + other.word[i];
      const uint64_t out = sum + carry;
      carry = (sum < word[i]) | (out < sum);
      word[i] = out;
    }
  }
  // Writes a value to bits that are zero.
  void place(uint64_t value, int at) {
    const int i = W - 1 - at / 64, shift = at % 64;
    word[i] |= value << shift;
    if (shift && i > 0) word[i - 1] |= value >> (64 - shift);
  }
  uint64_t bits_at(int at, int bits) const {
    const int i = W - 1 - at / 64, shift = at % 64;
    uint64_t value = word[i] >> shift;
    if (shift && i > 0) value |= word[i - 1] << (64 - shift);
    return value & ((uint64_t{1} << bits) - 1);
  }
};

// The packing of windows for an order and a vocabulary.
struct WindowLayout {
  int order;            // N, at least 1
  int bits;             // of a field, which holds 0..V
  uint32_t vocab_size;  // V
  uint32_t end_of_text;

  WindowLayout(int order, uint32_t vocab_size, uint32_t end_of_text)
      : order(order), bits(1), vocab_size(vocab_size), end_of_text(end_of_text) {
    if (order < 1 || order > kMaxOrder)
      throw std::invalid_argument("order: expected 1..7, got " + std::to_string(order));
    if (vocab_size == 0 || vocab_size > 1u << 24)
      throw std::invalid_argument("vocabulary size: expected 1..2^24, got " + std::to_string(vocab_size));
    if (end_of_text >= vocab_size)
      throw std::invalid_argument("end-of-text id: expected 0.." + std::to_string(vocab_size - 1) + ", got " +
                                  std::to_string(end_of_text));
    while (vocab_size >> bits) ++bits;
  }

  friend bool operator==(const WindowLayout& a, const WindowLayout& b) {
    return a.order == b.order && a.vocab_size == b.vocab_size && a.end_of_text == b.end_of_text;
  }
  int words() const { return (order * bits + 63) / 64; }
  int shift(int field) const { return (order - 1 - field) * bits; }

  // Whether a key, perhaps from a damaged file, is a window: it has a context, and no field is set after an empty one.
  template <int W>
  bool valid(const WindowKey<W>& key) const {
    const int unused = 64 * W - order * bits;
    if (unused > 0 && key.bits_at(order * bits, unused)) return false;
    bool ended = false;
    for (int i = 0; i < order - 1; ++i) {
      const uint32_t code = field(key, i);
      if (code > vocab_size || (ended && code)) return false;
      ended = code == 0;
      if (ended && i == 0) return false;
    }
    return field(key, order - 1) < vocab_size;
  }
  template <int W>
  uint32_t field(const WindowKey<W>& key, int field) const {
    return static_cast<uint32_t>(key.bits_at(shift(field), bits));
  }
};

}  // namespace rescore
