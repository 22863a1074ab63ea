// The composition of a sausage with any number of automata. Unless it is one, there is a node for each tuple of nodes
// of the compositions with one, with an arc for every token.
#pragma once

#include <vector>

#include "expansion.h"
#include "failure_lattice.h"
#include "layers.h"

namespace rescore {

class Product {
 public:
  // ends, most: as Composer's; `ends` of one automaton.
  void run(const Models& models, const Sausage& sausage, const Slots& slots, const Starts& starts, bool ends,
           size_t most, FailureLattice& out);

 private:
  struct Row {
    std::array<Fixed, kMaxCandidates> weight;
    std::array<States, kMaxCandidates> target;
  };
  void multiply(const Models& models, const Sausage& sausage, const Slots& slots, const Starts& starts, size_t most,
                FailureLattice& out);
  void expand(const Sausage& sausage, const Slot& slot, int t, const States& states);

  Composer composer_;
  std::vector<FailureLattice> factors_;  // one for each model
  Layers layers_;
  Row row_;
};

}  // namespace rescore
