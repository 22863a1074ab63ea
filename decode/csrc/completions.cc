#include "completions.h"

#include <algorithm>

namespace rescore {

void Completions::run(const FailureLattice& lattice, const Slots& slots, int length, Semantics semantics) {
  lattice_ = &lattice;
  semantics_ = semantics;
  of_arc_.resize(lattice.arcs.size() + kRowStep);
  of_node_.resize(lattice.nodes.size());
  last_layer(length);
  for (int t = length - 1; t >= 0; --t) layer(t, slots[t].count);
}

void Completions::last_layer(int length) {
  for (uint32_t l = 0; l < lattice_->lengths; ++l)
    for (uint32_t node = lattice_->begin[l][length].node; node < lattice_->begin[l][length + 1].node; ++node) {
      // Under epsilon semantics, backing off may also pay after the last token, if its weight is negative.
      const FailureLattice::Node& own = lattice_->nodes[node];
      const bool more = semantics_ == Semantics::kEpsilon && own.backoff != kNone;
      of_node_[node] = more ? std::min<Fixed>(0, own.backoff_weight + of_node_[own.backoff]) : 0;
    }
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
  if (node.backoff != kNone) return back_off(shorter, node.backoff_weight, node.tokens, arc, width, semantics_, row);
  whole_row(arc, width, row);
  return *std::min_element(row, row + width);
}

void Completions::lower(uint32_t node, Fixed weight, int width, Fixed* total) const {
  std::array<Fixed, kMaxCandidates> row;
  lattice_->suffixes(node, [&](uint32_t n) { fill(lattice_->nodes[n], row.data(), width, row.data()); });
  for (int i = 0; i < width; ++i) total[i] = std::min(total[i], weight + row[i]);
}

}  // namespace rescore
