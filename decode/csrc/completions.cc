#include "completions.h"

#include <algorithm>

namespace rescore {

void Completions::run(const FailureLattice& lattice, const Slots& slots, int length, Semantics semantics) {
  lattice_ = &lattice;
  semantics_ = semantics;
  of_arc_.resize(lattice.arcs.size());
  of_node_.resize(lattice.nodes.size());
  row_.resize(lattice.nodes.size());
  rows_.clear();
  last_layer(length);
  uint32_t arc = lattice.arcs.size();
  for (int t = length - 1; t >= 0; --t) {
    const uint32_t first = lattice.nodes[lattice.first[t]].first_arc;
    while (arc-- > first) {
      const FailureLattice::Arc& one = lattice.arcs[arc];
      of_arc_[arc] = one.weight < kImpossible ? one.weight + of_node_[one.target].total : kImpossible;
    }
    ++arc;
    for (uint32_t node = lattice.first[t]; node < lattice.first[t + 1]; ++node) of_node_[node] = best(node, slots[t].count);
  }
}

void Completions::last_layer(int length) {
  for (uint32_t node = lattice_->first[length]; node < lattice_->first[length + 1]; ++node) {
    // Under epsilon semantics a negative weight may be had behind the last token too.
    const FailureLattice::Node& own = lattice_->nodes[node];
    const bool more = semantics_ == Semantics::kEpsilon && own.backoff != kNone;
    of_node_[node] = {more ? std::min<Fixed>(0, own.backoff_weight + of_node_[own.backoff].total) : 0, kMaxCandidates};
  }
}

Completions::Best Completions::best(uint32_t node, int width) {
  const FailureLattice::Node& own = lattice_->nodes[node];
  row_[node] = kNone;
  if (own.backoff == kNone || lattice_->nodes[own.backoff].backoff == kNone) return begin_row(node, width);
  Best best{kImpossible, 0};
  const Fixed* total = &of_arc_[own.first_arc];
  for (uint64_t left = own.tokens; left; left &= left - 1, ++total)
    if (*total < best.total) best = {*total, __builtin_ctzll(left)};
  if (own.backoff_weight == kImpossible) return best;
  Best behind = of_node_[own.backoff];
  if (semantics_ == Semantics::kFailure && own.tokens >> behind.token & 1) behind = visible(own.backoff, own.tokens, width);
  behind.total += own.backoff_weight;
  return behind.total < best.total ? behind : best;
}

Completions::Best Completions::begin_row(uint32_t node, int width) {
  const uint32_t at = row_[node] = rows_.size();
  rows_.resize(at + width, kImpossible);
  row_[node] = kNone;  // until it is whole
  lower(node, 0, width, &rows_[at]);
  row_[node] = at;
  const auto least = std::min_element(rows_.begin() + at, rows_.end());
  return {*least, static_cast<int>(least - rows_.begin() - at)};
}

// The best that begins with a token that is not hidden.
Completions::Best Completions::visible(uint32_t node, uint64_t hidden, int width) const {
  Best best{kImpossible, 0};
  Fixed paid = 0;
  for (; row_[node] == kNone; node = lattice_->nodes[node].backoff) {
    const FailureLattice::Node& own = lattice_->nodes[node];
    const Fixed* total = &of_arc_[own.first_arc];
    for (uint64_t left = own.tokens; left; left &= left - 1, ++total)
      if (!(hidden & left & -left) && paid + *total < best.total) best = {paid + *total, __builtin_ctzll(left)};
    hidden |= own.tokens;
    paid += own.backoff_weight;
    if (paid >= kImpossible) return best;
  }
  const Fixed* row = &rows_[row_[node]];
  for (int i = 0; i < width; ++i)
    if (!(hidden >> i & 1) && paid + row[i] < best.total) best = {paid + row[i], i};
  return best;
}

void Completions::lower(uint32_t node, Fixed weight, int width, Fixed* total) const {
  uint64_t hidden = 0;
  for (; node != kNone && weight < kImpossible; node = lattice_->nodes[node].backoff) {
    if (row_[node] != kNone) {
      const Fixed* row = &rows_[row_[node]];
      for (int i = 0; i < width; ++i)
        if (!(hidden >> i & 1)) total[i] = std::min(total[i], weight + row[i]);
      return;
    }
    const FailureLattice::Node& own = lattice_->nodes[node];
    const Fixed* of_arc = &of_arc_[own.first_arc];
    for (uint64_t left = own.tokens; left; left &= left - 1, ++of_arc)
      if (!(hidden & left & -left)) total[__builtin_ctzll(left)] = std::min(total[__builtin_ctzll(left)], weight + *of_arc);
    if (semantics_ == Semantics::kFailure) hidden |= own.tokens;
    weight += own.backoff_weight;
  }
}

}  // namespace rescore
