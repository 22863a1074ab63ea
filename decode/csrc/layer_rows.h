// Backward pass over a composition: rows of completions, layer by layer from the last.
#pragma once

#include <cstddef>
#include <vector>

#include "backoff_row.h"
#include "failure_lattice.h"

namespace rescore {

// Visits layer t: arcs(first, end), then node(n, shorter, row), for the states of every length, shorter ones first.
// `row` has room for row_size(width) weights by token; `shorter` is the row written for the node's backoff.
template <typename Weight, typename Arcs, typename Node>
void layer_rows(const FailureLattice& lattice, int t, int width, std::vector<Weight>& rows, Arcs arcs, Node node) {
  const size_t size = row_size(width);
  size_t shorter = 0, own = 0;  // where the rows of the next shorter states begin, and those of these
  for (uint32_t l = 0; l < lattice.lengths; ++l) {
    const auto [first, first_arc] = lattice.begin[l][t];
    const auto [end, end_arc] = lattice.begin[l][t + 1];
    arcs(first_arc, end_arc);
    if (rows.size() < own + (end - first) * size) rows.resize(own + (end - first) * size);
    for (uint32_t n = first; n < end; ++n) {
      const size_t behind = l ? shorter + (lattice.nodes[n].backoff - lattice.begin[l - 1][t].node) * size : 0;
      node(n, &rows[behind], &rows[own + (n - first) * size]);
    }
    shorter = own;
    own += (end - first) * size;
  }
}

}  // namespace rescore
