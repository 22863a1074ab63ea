// A cache of the costs of a slot's candidates in recently read contexts.
//
// The row of a context is that of its backoff context plus the backoff cost, overwritten by the context's own arcs.
// Most contexts of a slot back off to the same few, whose rows are cached.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "automaton.h"
#include "slot.h"

namespace rescore {

class MatchCache {
 public:
  // Clears the cache, before another lattice or automaton.
  void clear();

  // The arc of each of the slot's candidates in `state` under failure semantics, and its cost, backing off included, in
  // ascending order of token. t: the slot's index.
  void match(const Automaton& lm, uint32_t state, const Slot& slot, int t, uint64_t* arc, double* cost);

 private:
  static constexpr int kBits = 8;

  struct Row {
    uint64_t tokens;  // a bit for each candidate with an arc in the context, by its place
    std::array<uint64_t, kMaxCandidates> arc;
    std::array<double, kMaxCandidates> cost;
  };
  static size_t place(uint64_t key) { return key * 0x9E3779B97F4A7C15ull >> (64 - kBits); }
  void keep(uint64_t key, int count, uint64_t tokens, const uint64_t* arc, const double* cost);

  std::array<uint64_t, 1 << kBits> key_;  // 0: none
  std::unique_ptr<Row[]> row_;            // [1 << kBits]
};

}  // namespace rescore
