// The least weight with which a composition can be completed from each of its nodes.
#pragma once

#include <vector>

#include "failure_lattice.h"

namespace rescore {

// When arcs are backed off to: with tokens that have no arc, or with any token (whichever is cheaper).
enum class Semantics { kFailure, kEpsilon };

class Completions {
 public:
  void run(const FailureLattice& lattice, const Slots& slots, int length, Semantics semantics);

  // For each token of the slot, by its place in the ascending order, the weight of the node's arc, backing off included,
  // and of the best completion behind it; kImpossible at most. Precondition: not a node after the last slot.
  const Fixed* row(uint32_t node) const { return &rows_[row_[node]]; }

 private:
  void last_layer(const FailureLattice& lattice, int length, Semantics semantics);
  void fill(const FailureLattice& lattice, uint32_t node, int width, Semantics semantics);

  std::vector<size_t> row_;  // where each node's begins
  std::vector<Fixed> rows_;
  std::vector<Fixed> best_;  // of each node
};

}  // namespace rescore
