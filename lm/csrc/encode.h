// Encodes an automaton in plain arrays as the compact arrays of `automaton.h`, and decodes it.
#pragma once

#include <functional>

#include "automaton.h"

namespace rescore {

// The automaton in plain arrays; `NGram.arrays` in Python describes each.
struct Plain {
  Span<uint64_t> arc_begin;           // [states + 1]
  const uint16_t* token16 = nullptr;  // [arcs], null if token32 is used
  const uint32_t* token32 = nullptr;
  uint64_t arcs = 0;
  const float* cost = nullptr;              // [arcs]
  const uint32_t* next = nullptr;           // [arcs]
  const uint32_t* backoff_state = nullptr;  // [states]
  const float* backoff_cost = nullptr;      // [states]
  uint32_t vocab_size = 0;
  uint32_t order = 0;

  uint64_t states() const { return arc_begin.size - 1; }
  uint32_t token(uint64_t arc) const { return token16 ? token16[arc] : token32[arc]; }
};

// Chooses the codebook of the arc costs, or of the backoff costs, of an order n > 1; empty for floats.
using ChooseBook = std::function<std::vector<float>(const float* cost, uint64_t size)>;

// Each array is the section of the same name.
struct Encoded {
  std::vector<uint64_t> sizes;  // [order, 6]
  std::vector<uint8_t> arc_token, arcs;
  std::vector<float> arc_book;
  std::vector<uint8_t> contexts;
  std::vector<float> backoff_book;
  std::vector<uint32_t> wide, first_state, jumps;
  std::vector<uint64_t> backoff_state;
};

// Makes one pass over the arcs per array. std::invalid_argument names the entry unless states are in canonical order
// and arcs lead to suffixes. next_bits as in `Automaton`.
Encoded encode(const Plain& plain, uint32_t next_bits, const ChooseBook& choose_book);

// Output arrays of `decode`, those that `encode` takes.
struct Decoded {
  uint64_t* arc_begin;  // [states + 1]
  uint16_t* token16;    // [arcs], null if token32 is used
  uint32_t* token32;
  float* arc_cost;          // [arcs]
  uint32_t* arc_next;       // [arcs]
  uint32_t* backoff_state;  // [states]
  float* backoff_cost;      // [states]
};
void decode(const Automaton& lm, Decoded out);

}  // namespace rescore
