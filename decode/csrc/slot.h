// A slot of a sausage, as automata are matched with it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "sausage.h"

namespace rescore {

// A slot's candidates in ascending order of token, as the automata want them.
struct Slot {
  int count;
  std::array<uint32_t, kMaxCandidates> tokens;
  std::array<uint8_t, kMaxCandidates> rank;  // rank[i]: the place of tokens[i] among the candidates

  Slot() : count(0) {}
  uint64_t all() const { return count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }
  Slot(const Sausage& sausage, int t) : count(sausage.candidates(t)) {
    const int32_t* ids = sausage.slot_ids(t);
    for (int i = 0; i < count; ++i) rank[i] = i;
    std::sort(rank.begin(), rank.begin() + count, [ids](uint8_t a, uint8_t b) { return ids[a] < ids[b]; });
    for (int i = 0; i < count; ++i) tokens[i] = ids[rank[i]];
  }
};

}  // namespace rescore
