// A conditional distribution q(w | prefix) over the drafts of a lattice, for sampling and evaluation.
//
// q(w_1..w_T) is proportional to exp(-cost / temperature), with the path's rescored cost. The composition's weights are
// pushed towards its start in the log semiring (Mohri, "Weighted automata algorithms", 2009, section 5.3), so a prefix
// matters only through its node, and q(w | prefix) is w's share of what may follow.
#pragma once

#include <array>
#include <vector>

#include "layer_rows.h"
#include "product_lattice.h"

namespace rescore {

// The composition with pushed weights. Costs here are divided by the temperature; +inf is impossible.
struct PushedLattice {
  double temperature = 1;
  int width = 0;
  FailureLattice lattice{};
  std::vector<double> of_arc;   // an arc together with all its completions
  std::vector<double> of_node;  // all completions of a node
  std::vector<uint8_t> place;   // [slots, width]: place of each candidate, by rank, among its slot's tokens

  // Computes a node's row [row_size(width)], the cost of each token, by place, with all that may follow it, from the
  // row of the next shorter context, which may be the same array.
  void row(uint32_t node, int count, const double* shorter, double* row) const;
};

// The two passes of pushing; the workspace is reused from lattice to lattice.
class Pushing {
 public:
  // std::length_error beyond `most` arcs.
  PushedLattice run(const Models& models, const Sausage& sausage, const Starts& starts, double temperature,
                    size_t most);

 private:
  void layer(int t, PushedLattice& out);

  Slots slots_;
  Product product_;
  FailureLattice lattice_;
  std::vector<double> rows_;
};

// A path through a pushed lattice.
class PushedWalk {
 public:
  PushedWalk(const PushedLattice& lattice, const Sausage& sausage)
      : lattice_(lattice), sausage_(sausage), node_(lattice.lattice.start) {}

  // ln q of the candidates of slot t, [width], after the tokens taken so far.
  const double* row(int t);
  // Continues with a candidate whose ln q is not -inf.
  void take(int t, int rank);

 private:
  const PushedLattice& lattice_;
  const Sausage& sausage_;
  uint32_t node_;
  std::array<double, kMaxCandidates> logq_;
};

}  // namespace rescore
