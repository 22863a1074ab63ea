// The contexts of one length: the range of arcs and the backoff cost of each, in one cache line.
//
// A block of 64 bytes holds 10, 15 or 30 contexts, for backoff costs of 4, 2 or 1 bytes:
//
//     uint32  where the arcs of the first context begin
//     uint16  where the arcs of each context end, relative to that; uint8 if costs have 1 byte
//     costs
//
// If the contexts of a block have too many arcs for this, the first number is 2^32 - 1. The next 32 bits are then an
// index into `wide`, from which the begins of all contexts of the block and the end of the last are stored.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "cost_form.h"

namespace rescore {

class ContextBlocks {
 public:
  static constexpr uint32_t kBytes = 64;

  ContextBlocks() = default;
  // A view of blocks and of `wide_size` numbers.
  ContextBlocks(const uint8_t* blocks, uint64_t arcs, CostForm form, const uint32_t* wide, uint64_t wide_size)
      : blocks_(blocks),
        arcs_(arcs),
        form_(form),
        wide_(wide),
        wide_size_(wide_size),
        end_bytes_(end_bytes(form.bytes)),
        each_(contexts(form.bytes)),
        shift_(31 + bit_length(each_)),
        reciprocal_((uint64_t{1} << shift_) / each_ + 1) {}

  // The number of contexts per block, and the number of blocks of `size` contexts.
  static uint32_t contexts(uint32_t cost_bytes) { return (kBytes - 4) / (end_bytes(cost_bytes) + cost_bytes); }
  static uint64_t blocks(uint64_t size, uint32_t cost_bytes) {
    return (size + contexts(cost_bytes) - 1) / contexts(cost_bytes);
  }

  void prefetch(uint32_t i) const { prefetch_line(block(i)); }
  const CostForm& form() const { return form_; }

  // The arcs (begin, end) of context i, among those of all contexts of this length.
  std::pair<uint32_t, uint32_t> arcs(uint32_t i) const {
    const uint8_t* own = block(i);
    const uint32_t place = this->place(i), begin = load32(own);
    if (begin == kWide) return wide_arcs(i);
    const uint64_t from = uint64_t{begin} + (place ? end(own, place - 1) : 0), to = uint64_t{begin} + end(own, place);
    if (from > to || to > arcs_) corrupt("contexts", i);
    return {static_cast<uint32_t>(from), static_cast<uint32_t>(to)};
  }
  float backoff(uint32_t i) const { return form_.read(block(i) + 4 + end_bytes_ * each_ + form_.bytes * place(i), i); }

  // Appends the blocks of `size` contexts: arcs begin(i) to begin(i + 1) - 1, and costs cost[i].
  template <typename Begin>
  static void encode(uint64_t size, Begin begin, const float* cost, const CostWriter& writer,
                     std::vector<uint8_t>& blocks, std::vector<uint32_t>& wide) {
    const uint32_t bytes = writer.bytes(), ends = end_bytes(bytes), each = contexts(bytes);
    uint64_t at = blocks.size();
    blocks.resize(at + kBytes * ContextBlocks::blocks(size, bytes));
    for (uint64_t first = 0; first < size; first += each, at += kBytes) {
      uint8_t* own = &blocks[at];
      const uint32_t count = std::min<uint64_t>(each, size - first);
      uint32_t from = begin(first);
      if ((begin(first + count) - from) >> 8 * ends == 0) {
        for (uint32_t i = 0; i < count; ++i) store(begin(first + i + 1) - from, own + 4 + ends * i, ends);
      } else {
        store(wide.size(), own + 4, 4);
        for (uint32_t i = 0; i <= each; ++i) wide.push_back(begin(first + std::min(i, count)));
        from = kWide;
      }
      store(from, own, 4);
      for (uint32_t i = 0; i < count; ++i) writer.write(cost[first + i], own + 4 + ends * each + bytes * i);
    }
  }

 private:
  static constexpr uint32_t kWide = UINT32_MAX;

  static uint32_t end_bytes(uint32_t cost_bytes) { return cost_bytes == 1 ? 1 : 2; }
  static void store(uint32_t value, uint8_t* to, uint32_t bytes) { std::memcpy(to, &value, bytes); }

  uint32_t end(const uint8_t* block, uint32_t place) const {
    return end_bytes_ == 1 ? block[4 + place] : load16(block + 4 + 2 * place);
  }
  // i / each_: exact for 10, 15 and 30, without a division.
  uint32_t number(uint32_t i) const { return static_cast<uint32_t>(i * reciprocal_ >> shift_); }
  uint32_t place(uint32_t i) const { return i - each_ * number(i); }
  const uint8_t* block(uint32_t i) const { return blocks_ + uint64_t{kBytes} * number(i); }
  std::pair<uint32_t, uint32_t> wide_arcs(uint32_t i) const {
    const uint64_t at = uint64_t{load32(block(i) + 4)} + place(i);
    if (at + 1 >= wide_size_ || wide_[at] > wide_[at + 1] || wide_[at + 1] > arcs_) corrupt("wide", at);
    return {wide_[at], wide_[at + 1]};
  }

  const uint8_t* blocks_ = nullptr;
  uint64_t arcs_ = 0;
  CostForm form_;
  const uint32_t* wide_ = nullptr;
  uint64_t wide_size_ = 0;
  uint32_t end_bytes_ = 2, each_ = 10, shift_ = 0;
  uint64_t reciprocal_ = 0;
};

}  // namespace rescore
