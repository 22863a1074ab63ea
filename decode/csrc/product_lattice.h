// The composition of a sausage with any number of automata. With several, or an acceptor, it has a node for each
// reachable tuple of the single compositions' nodes, with an arc for every token.
#pragma once

#include <vector>

#include "failure_lattice.h"
#include "layers.h"

namespace rescore {

class Product {
 public:
  // most: as in Composer.
  void run(const Models& models, const Sausage& sausage, const Slots& slots, const Starts& starts, size_t most,
           FailureLattice& out);

 private:
  struct Row {
    std::array<Fixed, kMaxCandidates> weight;
    std::array<States, kMaxCandidates> target;
  };
  void multiply(const Models& models, const Sausage& sausage, const Slots& slots, const Starts& starts, size_t most,
                FailureLattice& out);
  void expand(const Models& models, const Sausage& sausage, const Slot& slot, int t, const uint32_t* states);

  Composer composer_;
  std::vector<FailureLattice> factors_;  // one per model
  Layers layers_;
  Row row_;
};

}  // namespace rescore
