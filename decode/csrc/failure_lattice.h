// A sausage composed with an n-gram automaton, its failure arcs kept.
//
// Layer t of the composition holds the states that the first t tokens of some path lead to, and all that these back off to.
// A node has an arc for each of slot t's tokens for which its state has one, and a failure arc, to be taken with any other
// token. So there are as many arcs as n-grams of the model lie in the lattice, some two for each node; without failure
// arcs each node would have one for each candidate.
#pragma once

#include <array>
#include <cstdint>
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
    Fixed weight;  // kImpossible: it cannot be taken; it hides those behind failure arcs nevertheless
    uint32_t target;
  };

  std::vector<Node> nodes;  // layer by layer
  std::vector<Arc> arcs;
  std::array<uint32_t, kMaxSlots + 2> first;  // layer t: nodes first[t] to first[t + 1] - 1
  uint32_t start;

  // The arc of a token that has one.
  uint32_t arc(const Node& node, int token) const {
    return node.first_arc + count_ones(node.tokens & ((uint64_t{1} << token) - 1));
  }

  // visit(arc, weight of the failure arcs before it) for the arcs of a token in a node and in what it backs off to; with
  // `hide`, for the first alone.
  template <typename Visit>
  void find(uint32_t at, int token, bool hide, Visit visit) const {
    for (Fixed paid = 0; at != kNone && paid < kImpossible; paid += nodes[at].backoff_weight, at = nodes[at].backoff) {
      if (!(nodes[at].tokens >> token & 1)) continue;
      visit(arcs[arc(nodes[at], token)], paid);
      if (hide) return;
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
  // An arc of the model that lies in the lattice.
  struct Match {
    uint64_t arc;
    uint32_t node;
    int token;
  };
  // A list of arcs to be matched with the slot, of a node.
  struct List {
    uint32_t node;
    Automaton::Arcs arcs;
  };

  void enter(uint32_t state);
  void add(Place place, uint32_t backoff);
  void match_root(const Slot& slot);
  uint32_t match_length(uint32_t length, uint32_t first, const Slot& slot);
  void find_lists(uint32_t length, uint32_t first, uint32_t end, const Slot& slot);
  void match_lists(uint32_t length, const Slot& slot);
  void weigh(uint32_t length, double alpha, const Fixed* head);
  void weigh_failures(uint32_t length, double alpha);
  void lead_on(uint32_t length, const Slot& slot);

  const Automaton* lm_;
  FailureLattice* out_;
  uint32_t begin_, end_;  // the nodes of the newest layer, shorter states first
  // Where its nodes, and its arcs, of states of each length begin; the layer's end behind them.
  std::array<uint32_t, kMaxOrder + 1> nodes_of_, arcs_of_;
  std::vector<Place> places_;    // beside the nodes
  std::vector<List> lists_;      // of nodes of one length; and room
  size_t found_;                 // how many of them there are
  std::vector<Match> matches_;   // beside the layer's arcs; and room
  std::vector<uint32_t> codes_;  // of costs
};

}  // namespace rescore
