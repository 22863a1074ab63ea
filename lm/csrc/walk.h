// Reads a text with the automaton, token by token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "automaton.h"

namespace rescore {

struct Walk {
  float* cost;      // [count]
  uint8_t* order;   // [count], of the n-gram that gave the cost, 1 for a unigram
  uint32_t* state;  // [count], before each token
};

// Reads `count` tokens < vocab_size from a state; returns the state after them.
uint32_t walk(const Automaton& lm, uint32_t state, const int32_t* tokens, size_t count, Walk out);

}  // namespace rescore
