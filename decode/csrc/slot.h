// A slot of a sausage, as automata are matched with it.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "sausage.h"
#include "token_set.h"

namespace rescore {

// A slot's candidates in ascending order of token.
struct Slot {
  int count = 0;
  TokenSet tokens;
  std::array<uint8_t, kMaxCandidates> rank;  // rank[i]: the place of tokens[i] among the candidates

  // The place of a candidate in that order.
  int place(uint32_t candidate) const { return place_[candidate]; }

  // std::invalid_argument if a token is there twice.
  void read(const Sausage& sausage, int t) {
    count = sausage.candidates(t);
    std::array<uint64_t, kMaxCandidates> key, sorted;  // token, then rank
    const int32_t* ids = sausage.slot_ids(t);
    for (int i = 0; i < count; ++i) key[i] = static_cast<uint64_t>(ids[i]) << 8 | i;
    // Sorted by counting the lesser ones: more comparisons than need be, but none that a processor has to guess.
    for (int i = 0; i < count; ++i) {
      uint64_t before = 0;
      for (int j = 0; j < count; ++j) before += key[j] < key[i];
      place_[i] = static_cast<uint8_t>(before);
    }
    for (int i = 0; i < count; ++i) sorted[place_[i]] = key[i];
    tokens.clear();
    for (int i = 0; i < count; ++i) {
      const uint32_t token = static_cast<uint32_t>(sorted[i] >> 8);
      if (i && tokens[i - 1] == token)
        throw std::invalid_argument("slot " + std::to_string(t) + ": expected different tokens, got " + std::to_string(token) + " twice");
      tokens.add(token);
      rank[i] = static_cast<uint8_t>(sorted[i]);
    }
  }

 private:
  std::array<uint8_t, kMaxCandidates> place_;
};

using Slots = std::array<Slot, kMaxSlots>;

inline void read_slots(const Sausage& sausage, Slots& slots) {
  for (int t = 0, length = sausage.length(); t < length; ++t) slots[t].read(sausage, t);
}

}  // namespace rescore
