// Token trees of lattices: of closed ones, by any number of models.
#pragma once

#include "best_prefixes.h"

namespace rescore {

// Prefixes of the sausage under q(w | prefix) = softmax over the slot's candidates of -(cost + alpha * LM).
class LatticeTreeSearch {
 public:
  int run(const Models& models, const Sausage& sausage, const States& start, TreeOutput out);

 private:
  struct Opened {
    States states;
    size_t first_child, children;
  };
  void open(uint32_t prefix, Fixed cost, const Models& models, const Sausage& sausage);

  PrefixTree tree_;
  std::vector<Opened> opened_;
  std::vector<Child> children_;
  std::vector<TakenArcs> arcs_;  // beside children_
  Slots slots_;
  Caches caches_;
};

}  // namespace rescore
