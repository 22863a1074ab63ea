// The least weight with which a composition can be completed from each of its nodes.
#pragma once

#include <vector>

#include "layer_rows.h"

namespace rescore {

class Completions {
 public:
  // The lattice is looked at again by `lower`.
  void run(const FailureLattice& lattice, const Slots& slots, int length, Semantics semantics);

  // total[i] for the slot's tokens, by their places in the ascending order, becomes at most the sum of `weight`, the
  // weight of the node's arc, failure arcs included, and that of the best completion behind it.
  void lower(uint32_t node, Fixed weight, int width, Fixed* total) const;

 private:
  void last_layer(int length);
  void layer(int t, int width);
  Fixed fill(const FailureLattice::Node& node, const Fixed* shorter, int width, Fixed* row) const;

  const FailureLattice* lattice_;
  Semantics semantics_;
  std::vector<Fixed> of_arc_;  // its weight and the best completion behind it
  std::vector<Fixed> of_node_;
  std::vector<Fixed> rows_;  // of of_arc_, for one layer's nodes of one length after another
};

}  // namespace rescore
