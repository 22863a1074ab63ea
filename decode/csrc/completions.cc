#include "completions.h"

#include <algorithm>

namespace rescore {

// Arcs lie in the order of their nodes, so those of a layer are the ones between the first arcs of two layers.
void Completions::run(const FailureLattice& lattice, int length, Semantics semantics) {
  of_arc_.resize(lattice.arcs.size());
  of_node_.resize(lattice.nodes.size());
  for (uint32_t node = lattice.first[length]; node < lattice.nodes.size(); ++node) {
    of_node_[node] = {0, kMaxCandidates};
    // Under epsilon semantics a negative weight may be had behind the last token too.
    const FailureLattice::Node& own = lattice.nodes[node];
    if (semantics == Semantics::kEpsilon && own.backoff != kNone)
      of_node_[node].total = std::min<Fixed>(0, own.backoff_weight + of_node_[own.backoff].total);
  }
  for (int t = length - 1; t >= 0; --t) {
    const uint32_t first = lattice.first[t], end = lattice.first[t + 1];
    const uint32_t last_arc = t + 1 < length ? lattice.nodes[end].first_arc : lattice.arcs.size();
    for (uint32_t at = lattice.nodes[first].first_arc; at < last_arc; ++at) {
      const FailureLattice::Arc& arc = lattice.arcs[at];
      of_arc_[at] = arc.weight < kImpossible ? std::min(arc.weight + of_node_[arc.target].total, kImpossible) : kImpossible;
    }
    for (uint32_t node = first; node < end; ++node) of_node_[node] = of_node(lattice, node, semantics);
  }
}

Completions::Best Completions::of_node(const FailureLattice& lattice, uint32_t at, Semantics semantics) const {
  const FailureLattice::Node& own = lattice.nodes[at];
  Best best{kImpossible, kMaxCandidates};
  uint32_t arc = own.first_arc;
  for (uint64_t left = own.tokens; left; left &= left - 1, ++arc)
    if (of_arc_[arc] < best.total) best = {of_arc_[arc], __builtin_ctzll(left)};
  if (own.backoff == kNone || own.backoff_weight == kImpossible) return best;
  const Best& behind = of_node_[own.backoff];
  if (own.backoff_weight + behind.total >= best.total) return best;
  // The best of the shorter context, unless an arc hides it: then the best of what is not hidden.
  if (semantics == Semantics::kEpsilon || behind.token == kMaxCandidates || !(own.tokens >> behind.token & 1)) return {own.backoff_weight + behind.total, behind.token};
  lattice.read(at, true, [&](int token, uint32_t one, Fixed paid) {
    if (paid + of_arc_[one] < best.total) best = {paid + of_arc_[one], token};
  });
  return best;
}

}  // namespace rescore
