// The least weight with which a composition can be completed from each of its nodes.
#pragma once

#include <vector>

#include "failure_lattice.h"

namespace rescore {

// How arcs are backed off to: only by tokens that have no arc, or by any token (whichever is cheaper).
enum class Semantics { kFailure, kEpsilon };

class Completions {
 public:
  void run(const FailureLattice& lattice, int length, Semantics semantics);

  // The weight of an arc and of the best completion behind it; kImpossible at most.
  Fixed of_arc(uint32_t arc) const { return of_arc_[arc]; }

 private:
  struct Best {
    Fixed total;
    int token;  // that it begins with
  };
  Best of_node(const FailureLattice& lattice, uint32_t at, Semantics semantics) const;

  std::vector<Fixed> of_arc_;
  std::vector<Best> of_node_;
};

}  // namespace rescore
