// A slot of a sausage, prepared for matching with automata.
#pragma once

#include <algorithm>
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

  // The place of a candidate, by rank, in that order.
  int place(uint32_t candidate) const { return place_[candidate]; }

  // std::invalid_argument if a token is repeated.
  void read(const Sausage& sausage, int t) {
    count = sausage.candidates(t);
    const int32_t* ids = sausage.slot_ids(t);
    if (!tokens.assign(ids, count, place_.data()))
      for (int i = 0; i < count; ++i)
        if (std::find(ids, ids + i, ids[i]) != ids + i)
          throw std::invalid_argument("slot " + std::to_string(t) + ": expected different tokens, got " +
                                      std::to_string(ids[i]) + " twice");
    for (int i = 0; i < count; ++i) rank[place_[i]] = static_cast<uint8_t>(i);
  }

 private:
  std::array<uint8_t, kMaxCandidates> place_;
};

using Slots = std::array<Slot, kMaxSlots>;

inline void read_slots(const Sausage& sausage, Slots& slots) {
  for (int t = 0, length = sausage.length(); t < length; ++t) slots[t].read(sausage, t);
}

}  // namespace rescore
