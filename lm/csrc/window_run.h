// A run: ascending windows with their counts, as bytes.
//
// Each window is stored as its difference to the previous one, six bits in the first byte and seven in each following
// byte (0x80: more follow). If the first byte has 0x40, the count is 1; else the count minus two follows, seven bits
// per byte. A run is cut into slices by the last but one token; differences restart from zero in each slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "window_key.h"

namespace rescore {

constexpr size_t kMaxItemBytes = 40;    // of one window: at most 28 for a key of three words, and 10 for a count
constexpr size_t kReadBytes = 1 << 18;  // of a file at a time

template <int W>
class RunWriter {
 public:
  std::vector<uint8_t> bytes;

  void begin_slice() { before_ = {}; }

  void add(const WindowKey<W>& key, uint64_t count) {
    WindowKey<W> left = key;
    left.subtract(before_);
    before_ = key;
    uint8_t first = left.word[W - 1] & 0x3F;
    left.shift_right(6);
    if (count == 1) first |= 0x40;
    if (!left.zero()) first |= 0x80;
    bytes.push_back(first);
    while (!left.zero()) {
      const uint8_t low = left.word[W - 1] & 0x7F;
      left.shift_right(7);
      bytes.push_back(left.zero() ? low : low | 0x80);
    }
    if (count == 1) return;
    for (count -= 2; count >= 0x80; count >>= 7) bytes.push_back(count | 0x80);
    bytes.push_back(count);
  }

 private:
  WindowKey<W> before_{};
};

// The bytes of one slice of a run: a part of a file, read through a buffer, or a view of memory.
class RunBytes {
 public:
  RunBytes(const uint8_t* data, size_t length) : at_(data), end_(data + length) {}
  RunBytes(const std::string& path, uint64_t begin, uint64_t end);
  RunBytes(RunBytes&&) = default;

  // Makes `wanted` bytes available at at(), or all that are left; returns the number available.
  size_t fill(size_t wanted) { return static_cast<size_t>(end_ - at_) >= wanted ? end_ - at_ : refill(wanted); }
  const uint8_t* at() const { return at_; }
  void skip(size_t bytes) { at_ += bytes; }

 private:
  struct File {
    int descriptor;
    ~File();
  };
  size_t refill(size_t wanted);

  std::unique_ptr<File> file_;
  std::string path_;
  uint64_t next_ = 0, stop_ = 0;
  std::vector<uint8_t> buffer_;
  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
};

template <int W>
class RunReader {
 public:
  WindowKey<W> key{};
  uint64_t count = 0;

  explicit RunReader(RunBytes bytes) : bytes_(std::move(bytes)) {}

  // Moves to the next window; false at the end.
  bool next() {
    const size_t have = bytes_.fill(kMaxItemBytes);
    if (have == 0) return false;
    const uint8_t* at = bytes_.at();
    const uint8_t* const end = at + have;
    const uint8_t first = *at++;
    WindowKey<W> step{};
    step.place(first & 0x3F, 0);
    bool more = first & 0x80;
    for (int shift = 6; more; shift += 7) {
      if (at == end || shift >= 64 * W) damaged();
      more = *at & 0x80;
      step.place(*at++ & 0x7F, shift);
    }
    key.add(step);
    count = 1;
    if (!(first & 0x40)) {
      count = 2;
      more = true;
      for (int shift = 0; more; shift += 7) {
        if (at == end || shift >= 64) damaged();
        more = *at & 0x80;
        count += static_cast<uint64_t>(*at++ & 0x7F) << shift;
        if (count > kMostTokens) damaged();
      }
    }
    bytes_.skip(at - bytes_.at());
    return true;
  }

 private:
  [[noreturn]] static void damaged() {
    throw std::invalid_argument(
        "a run of counts: expected whole windows and counts of at most 2^53; the file is damaged");
  }

  RunBytes bytes_;
};

}  // namespace rescore
