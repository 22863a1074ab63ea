#include "completions.h"

#include <algorithm>

namespace rescore {

void Completions::run(const FailureLattice& lattice, const Slots& slots, int length, Semantics semantics) {
  best_.resize(lattice.nodes.size());
  row_.resize(lattice.nodes.size());
  size_t size = 0;
  for (int t = 0; t < length; ++t)
    for (uint32_t node = lattice.first[t]; node < lattice.first[t + 1]; ++node, size += slots[t].count) row_[node] = size;
  if (rows_.size() < size) rows_.resize(size);
  last_layer(lattice, length, semantics);
  for (int t = length - 1; t >= 0; --t)
    for (uint32_t node = lattice.first[t]; node < lattice.first[t + 1]; ++node) fill(lattice, node, slots[t].count, semantics);
}

void Completions::last_layer(const FailureLattice& lattice, int length, Semantics semantics) {
  for (uint32_t node = lattice.first[length]; node < lattice.first[length + 1]; ++node) {
    // Under epsilon semantics a negative weight may be had behind the last token too.
    const FailureLattice::Node& own = lattice.nodes[node];
    const bool more = semantics == Semantics::kEpsilon && own.backoff != kNone;
    best_[node] = more ? std::min<Fixed>(0, own.backoff_weight + best_[own.backoff]) : 0;
  }
}

// What the node backs off to, with its own arcs over it.
void Completions::fill(const FailureLattice& lattice, uint32_t node, int width, Semantics semantics) {
  const FailureLattice::Node& own = lattice.nodes[node];
  Fixed* row = &rows_[row_[node]];
  if (own.backoff == kNone) {
    std::fill(row, row + width, kImpossible);
  } else {
    const Fixed* shorter = &rows_[row_[own.backoff]];
    for (int i = 0; i < width; ++i) row[i] = std::min(shorter[i] + own.backoff_weight, kImpossible);
  }
  const FailureLattice::Arc* arc = &lattice.arcs[own.first_arc];
  for (uint64_t left = own.tokens; left; left &= left - 1, ++arc) {
    Fixed& entry = row[__builtin_ctzll(left)];
    const Fixed total = arc->weight < kImpossible ? std::min(arc->weight + best_[arc->target], kImpossible) : kImpossible;
    entry = semantics == Semantics::kFailure ? total : std::min(entry, total);
  }
  best_[node] = *std::min_element(row, row + width);
}

}  // namespace rescore
