// A sausage composed with an n-gram automaton, its failure arcs kept.
//
// Layer t of the composition holds the states that the first t tokens of some path lead to, and all that these back off to.
// A node has an arc for each of slot t's tokens for which its state has one, and a failure arc, to be taken with any other
// token. So there are as many arcs as n-grams of the model lie in the lattice, some two for each node; without failure
// arcs each node would have one for each candidate.
#pragma once

#include <array>
#include <vector>

#include "composition.h"

namespace rescore {

struct FailureLattice {
  struct Node {
    uint64_t tokens;    // those with an arc, a bit each, by their places in the slot's ascending order
    uint32_t first_arc;  // of theirs, in that order
    uint32_t backoff;   // a node of the same layer and before this one; kNone: every token has an arc
    Fixed backoff_weight;
  };
  struct Arc {
    Fixed weight;  // kImpossible: it cannot be taken
    uint32_t target;
  };

  std::vector<Node> nodes;  // layer by layer
  std::vector<Arc> arcs;
  std::array<uint32_t, kMaxSlots + 2> first;  // layer t: nodes first[t] to first[t + 1] - 1
  uint32_t start;

  // The arc of a token that has one.
  uint32_t arc(const Node& node, int token) const {
    return node.first_arc + __builtin_popcountll(node.tokens & ((uint64_t{1} << token) - 1));
  }

  // visit(token, arc, weight of the failure arcs before it) for the arcs of a node and of all that it backs off to; with
  // `hide`, of each token only the first.
  template <typename Visit>
  void read(uint32_t at, bool hide, Visit visit) const {
    uint64_t hidden = 0;
    for (Fixed paid = 0; at != kNone && paid < kImpossible; paid += nodes[at].backoff_weight, at = nodes[at].backoff) {
      const Node& node = nodes[at];
      uint32_t arc = node.first_arc;
      for (uint64_t left = node.tokens; left; left &= left - 1, ++arc)
        if (!(hidden & left & -left)) visit(__builtin_ctzll(left), arc, paid);
      if (hide) hidden |= node.tokens;
    }
  }
};

// What is composed: costs weighted by alpha [slots], those of the candidates themselves added if `heads`.
struct Weighting {
  const double* alpha;
  bool heads;
};

// Composes one automaton, with room that is kept from one lattice to the next.
class Composer {
 public:
  // ends: with the nodes after the last slot; else one node stands for them all. std::length_error where it gets too large.
  void run(const Automaton& lm, const Sausage& sausage, const Slots& slots, uint32_t start, Weighting weighting, bool ends, FailureLattice& out);

 private:
  // What a node's state is: of which length, and which of its level.
  struct Place {
    uint32_t length, index;
  };
  struct Match {
    uint32_t node;
    int token;
    uint64_t arc;
  };

  void enter(uint32_t state);
  void add(Place place, uint32_t backoff);
  void expand(int t, const Slot& slot, const Weighting& weighting, bool last);
  void find_lists(uint32_t first, uint32_t end);
  void match(const Slot& slot, uint32_t first, uint32_t end);
  uint32_t target(const Match& found, uint32_t token, uint32_t root);
  void weigh_failures(double alpha, uint32_t first, uint32_t end);

  const Automaton* lm_;
  FailureLattice* out_;
  const Sausage* sausage_;
  std::vector<Place> places_;  // beside the nodes
  std::vector<Automaton::Arcs> lists_;  // of the layer's nodes
  std::vector<Match> matches_;  // of the layer
};

}  // namespace rescore
