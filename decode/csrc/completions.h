// The weight of the best completion from each node of a composition.
#pragma once

#include <vector>

#include "layer_rows.h"

namespace rescore {

class Completions {
 public:
  // Keeps a reference to the lattice for `totals`.
  void run(const FailureLattice& lattice, const Slots& slots, int length);

  // Writes total[i], for the slot's tokens in ascending order: `weight` + the node's arc, failure arcs included, + the
  // best completion after it, at most kImpossible.
  void totals(uint32_t node, Fixed weight, int width, Fixed* total) const;

 private:
  void layer(int t, int width);
  Fixed fill(const FailureLattice::Node& node, const Fixed* shorter, int width, Fixed* row) const;

  const FailureLattice* lattice_;
  std::vector<Fixed> of_arc_;  // an arc's weight with the best completion after it
  std::vector<Fixed> of_node_;
  std::vector<Fixed> rows_;  // of of_arc_, for one layer's nodes, by length
};

}  // namespace rescore
