// Token trees of lattices and of models.
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
  std::array<Slot, kMaxSlots> slots_;
  Caches caches_;
};

// Prefixes that a model alone proposes, q(w | prefix) = p(w | prefix), at most `slots` tokens deep. The
// rank of a child is its token.
class ModelTreeSearch {
 public:
  int run(const Automaton& lm, uint32_t start, int slots, TreeOutput out);

 private:
  struct Proposal {
    Fixed cost;  // of the prefix with this token
    uint32_t token;
    uint64_t arc;
  };
  struct Opened {
    uint32_t state;
    size_t first_child, children;
  };
  void open(uint32_t prefix, Fixed cost, const Automaton& lm, size_t nodes);

  PrefixTree tree_;
  std::vector<Opened> opened_;
  std::vector<Child> children_;
  std::vector<uint64_t> arcs_;  // beside children_
  std::vector<Proposal> proposals_;
  std::vector<Automaton::Arcs> contexts_;  // of the states backed off from
  std::vector<Fixed> least_;        // a heap, the greatest first
};

}  // namespace rescore
