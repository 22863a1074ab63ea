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
      // Under epsilon semantics a negative weight may be had behind the last token too.
      const FailureLattice::Node& own = lattice_->nodes[node];
      const bool more = semantics_ == Semantics::kEpsilon && own.backoff != kNone;
      of_node_[node] = more ? std::min<Fixed>(0, own.backoff_weight + of_node_[own.backoff]) : 0;
    }
}

void Completions::layer(int t, int width) {
  const size_t size = row_size(width);
  size_t shorter = 0, own = 0;  // where the rows of the next shorter contexts begin, and of these
  for (uint32_t l = 0; l < lattice_->lengths; ++l) {
    const auto [first, first_arc] = lattice_->begin[l][t];
    const auto [end, end_arc] = lattice_->begin[l][t + 1];
    for (uint32_t arc = first_arc; arc < end_arc; ++arc) {
      const FailureLattice::Arc& one = lattice_->arcs[arc];
      of_arc_[arc] = possible(one.weight) ? one.weight + of_node_[one.target] : kImpossible;
    }
    if (rows_.size() < own + (end - first) * size) rows_.resize(own + (end - first) * size);
    for (uint32_t node = first; node < end; ++node) {
      const FailureLattice::Node& one = lattice_->nodes[node];
      const size_t behind = l ? shorter + (one.backoff - lattice_->begin[l - 1][t].node) * size : 0;
      const Fixed least = fill(one, &rows_[behind], width, &rows_[own + (node - first) * size]);
      of_node_[node] = possible(least) ? least : kImpossible;
    }
    shorter = own;
    own += (end - first) * size;
  }
}

// The row of a node, and the least of it.
Fixed Completions::fill(const FailureLattice::Node& node, const Fixed* shorter, int width, Fixed* row) const {
  const Fixed* arc = &of_arc_[node.first_arc];
  if (node.backoff != kNone) return back_off(shorter, node.backoff_weight, node.tokens, arc, width, semantics_, row);
  whole_row(arc, width, row);
  return *std::min_element(row, row + width);
}

void Completions::lower(uint32_t node, Fixed weight, int width, Fixed* total) const {
  std::array<const FailureLattice::Node*, kMaxOrder> chain;
  int count = 0;
  for (; node != kNone; node = chain[count - 1]->backoff) chain[count++] = &lattice_->nodes[node];
  std::array<Fixed, kMaxCandidates> row;
  while (count--) fill(*chain[count], row.data(), width, row.data());
  for (int i = 0; i < width; ++i) total[i] = std::min(total[i], weight + row[i]);
}

}  // namespace rescore
