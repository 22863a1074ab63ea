// An automaton in plain arrays to the compact ones of `automaton.h`, and back.
#pragma once

#include <functional>

#include "automaton.h"

namespace rescore {

// The automaton as one would write it down first; `NGram` in Python says what each array means.
struct Plain {
  Span<uint64_t> arc_begin;           // [states + 1]
  const uint16_t* token16 = nullptr;  // [arcs], or null: then token32 holds them
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

// The books of costs of arcs, of backoff costs, of an order n > 1 each: empty ones for costs that are to be floats.
using ChooseBook = std::function<std::vector<float>(const float* cost, uint64_t size)>;

// Each array is the section of its name.
struct Encoded {
  std::vector<uint64_t> sizes;  // [order, 6]
  std::vector<uint8_t> arc_token, arcs;
  std::vector<float> arc_book;
  std::vector<uint8_t> contexts;
  std::vector<float> backoff_book;
  std::vector<uint32_t> wide, first_state, jumps;
  std::vector<uint64_t> backoff_state;
};

// In one pass over the arcs for each array. std::invalid_argument, naming the entry, unless the states are in
// canonical order and the arcs lead to suffixes. next_bits as in `Automaton`.
Encoded encode(const Plain& plain, uint32_t next_bits, const ChooseBook& choose_book);

// The arrays of the arcs and states that `encode` took, costs included.
struct Decoded {
  uint64_t* arc_begin;  // [states + 1]
  uint16_t* token16;    // [arcs], or null: then token32 gets them
  uint32_t* token32;
  float* arc_cost;          // [arcs]
  uint32_t* arc_next;       // [arcs]
  uint32_t* backoff_state;  // [states]
  float* backoff_cost;      // [states]
};
void decode(const Automaton& lm, Decoded out);

}  // namespace rescore
