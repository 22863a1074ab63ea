#include "completions.h"

#include <algorithm>

namespace rescore {

void Completions::run(const FailureLattice& lattice, const Slots& slots, int length) {
  lattice_ = &lattice;
  of_arc_.resize(lattice.arcs.size() + kRowStep);
  of_node_.resize(lattice.nodes.size());
  of_node_[lattice.begin[0][length].node] = 0;  // the only node after the last slot
  for (int t = length - 1; t >= 0; --t) layer(t, slots[t].count);
}

void Completions::layer(int t, int width) {
  const auto arcs = [&](uint32_t first, uint32_t end) {
    for (uint32_t arc = first; arc < end; ++arc) {
      const FailureLattice::Arc& one = lattice_->arcs[arc];
      of_arc_[arc] = possible(one.weight) ? one.weight + of_node_[one.target] : kImpossible;
    }
  };
  layer_rows(*lattice_, t, width, rows_, arcs, [&](uint32_t node, const Fixed* shorter, Fixed* row) {
    const Fixed least = fill(lattice_->nodes[node], shorter, width, row);
    of_node_[node] = possible(least) ? least : kImpossible;
  });
}

// Computes the row of a node; returns its least weight.
Fixed Completions::fill(const FailureLattice::Node& node, const Fixed* shorter, int width, Fixed* row) const {
  const Fixed* arc = &of_arc_[node.first_arc];
  if (node.backoff != kNone) return back_off(shorter, node.backoff_weight, node.tokens, arc, width, row);
  whole_row(arc, width, row);
  return *std::min_element(row, row + width);
}

void Completions::totals(uint32_t node, Fixed weight, int width, Fixed* total) const {
  std::array<Fixed, kMaxCandidates> row;
  std::fill_n(row.begin(), width, kImpossible);  // for kNone: failure arcs that together cannot be paid
  lattice_->suffixes(node, [&](uint32_t n) { fill(lattice_->nodes[n], row.data(), width, row.data()); });
  for (int i = 0; i < width; ++i) total[i] = std::min(kImpossible, weight + row[i]);
}

}  // namespace rescore
