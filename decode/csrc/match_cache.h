// A cache of the costs of a slot's candidates in recently read contexts.
//
// The row of a context is that of its backoff context plus the backoff cost, overwritten by the context's own arcs.
// Most contexts of a slot back off to the same few, whose rows are cached.
#pragma once

#include <array>
#include <cstdint>

#include "automaton.h"
#include "room.h"
#include "slot.h"

namespace rescore {

class MatchCache {
 public:
  // Clears the cache, before another lattice, whose slots have `width` candidates at most, or automaton.
  void clear(int width);

  // The arc of each of the slot's candidates in `state` under failure semantics, and its cost, backing off included, in
  // ascending order of token. t: the slot's index.
  void match(const Automaton& lm, uint32_t state, const Slot& slot, int t, uint64_t* arc, double* cost);

 private:
  static constexpr int kBits = 8;

  static size_t place(uint64_t key) { return key * 0x9E3779B97F4A7C15ull >> (64 - kBits); }
  void keep(uint64_t key, int count, uint64_t tokens, const uint64_t* arc, const double* cost);

  int width_;
  std::array<uint64_t, 1 << kBits> key_;     // 0: none
  std::array<uint64_t, 1 << kBits> tokens_;  // a bit for each candidate with an arc in the context, by its place
  Room<uint64_t> arc_;                       // [1 << kBits, width]
  Room<double> cost_;                        // the same
};

}  // namespace rescore
