// The least weight with which a composition can be completed from each of its nodes.
#pragma once

#include <vector>

#include "failure_lattice.h"

namespace rescore {

// When arcs are backed off to: with tokens that have no arc, or with any token (whichever is cheaper).
enum class Semantics { kFailure, kEpsilon };

class Completions {
 public:
  // The lattice is looked at again by `lower`.
  void run(const FailureLattice& lattice, const Slots& slots, int length, Semantics semantics);

  // total[i] for the slot's tokens, by their places in the ascending order, becomes at most the sum of `weight`, the weight of
  // the node's arc, failure arcs included, and that of the best completion behind it.
  void lower(uint32_t node, Fixed weight, int width, Fixed* total) const;

 private:
  struct Best {
    Fixed total;
    int token;  // that it begins with; beyond the last for the empty one
  };
  void last_layer(int length);
  Best best(uint32_t node, int width);
  Best begin_row(uint32_t node, int width);
  Best visible(uint32_t node, uint64_t hidden, int width) const;

  const FailureLattice* lattice_;
  Semantics semantics_;
  std::vector<Fixed> of_arc_;  // its weight and the best completion behind it
  std::vector<Best> of_node_;
  // Most failure arcs lead to few nodes, the shortest contexts. Of these, all totals by token are kept.
  std::vector<uint32_t> row_;  // of each node: where its row begins; or kNone
  std::vector<Fixed> rows_;
};

}  // namespace rescore
