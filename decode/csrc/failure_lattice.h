// A sausage composed with an n-gram automaton, with failure arcs.
//
// Layer t of the composition holds the states after the first t tokens of some path, and all that these back off to. A
// node has an arc for each of slot t's tokens for which its state has one, and a failure arc for all other tokens. So
// there are as many arcs as n-grams of the model in the lattice, some two per node; without failure arcs each node
// would have one per candidate.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "match_cache.h"
#include "nodes.h"
#include "room.h"
#include "weight.h"

namespace rescore {

struct FailureLattice {
  struct Node {
    uint64_t tokens;     // a bit for each token with an arc, by its place in the slot's ascending order
    uint32_t first_arc;  // of these tokens, in that order
    uint32_t backoff;    // a node of the same layer, one token shorter; kNone if every token has an arc
    Fixed backoff_weight;
  };
  struct Arc {
    Fixed weight;  // an impossible arc cannot be taken, but still hides those after failure arcs
    uint32_t target;
  };

  // Nodes by the length of their states, then by layer; arcs in the same order. Those of length l in layer t are
  // begin[l][t] up to begin[l][t + 1].
  struct Mark {
    uint32_t node, arc;
  };
  Room<Node> nodes;
  Room<Arc> arcs;
  std::array<std::array<Mark, kMaxSlots + 2>, kMaxOrder> begin;
  uint32_t lengths;  // of states: 0 to lengths - 1
  uint32_t start;

  // The arc of a token that has one.
  uint32_t arc(const Node& node, int token) const {
    return node.first_arc + count_ones(node.tokens & ((uint64_t{1} << token) - 1));
  }

  // Calls visit(node) for all that a node backs off to, shorter states first, and for the node itself.
  template <typename Visit>
  void suffixes(uint32_t at, Visit visit) const {
    std::array<uint32_t, kMaxOrder> chain;
    int count = 0;
    for (; at != kNone; at = nodes[at].backoff) chain[count++] = at;
    while (count--) visit(chain[count]);
  }

  // Calls visit(arc, weight of the failure arcs before it) for the first arc of a token in a node and in all that it
  // backs off to, if it can be reached.
  template <typename Visit>
  void find(uint32_t at, int token, Visit visit) const {
    for (Fixed paid = 0; at != kNone && possible(paid); paid += nodes[at].backoff_weight, at = nodes[at].backoff) {
      if (nodes[at].tokens >> token & 1) return visit(arcs[arc(nodes[at], token)], paid);
    }
  }
};

// What to compose: model costs weighted by alpha [slots], plus those of the candidates if `heads`.
struct Weighting {
  const double* alpha;
  bool heads;
};

// Composes one automaton; its workspace is reused from lattice to lattice.
class Composer {
 public:
  // One node stands for all after the last slot. std::length_error beyond `most` arcs.
  void run(const Automaton& lm, const Sausage& sausage, const Slots& slots, const Suffixes& start, Weighting weighting,
           size_t most, FailureLattice& out);

 private:
  // Nodes of one length that are read together, and their arcs.
  struct Part {
    uint32_t length, first, end, first_arc, arcs;
  };
  // A node's list of arcs, to match with a slot.
  struct NodeList {
    uint32_t node;
    Automaton::List list;
  };

  // The target of a token's arc in the node's backoff.
  uint32_t behind(uint32_t node, int token) const {
    return out_->arcs[out_->arc(out_->nodes[out_->nodes[node].backoff], token)].target;
  }
  void read_length(uint32_t length);
  void begin_length(uint32_t length);
  void end_length(uint32_t length);
  void expect_room(size_t arcs);
  void find_lists(const Part& part);
  void match_lists(Part& part);
  void match_roots(Part& part);
  void weigh(const Part& part);
  void weigh_failures(const Part& part);
  void add_longer_contexts(const Part& part);

  const Automaton* lm_;
  const Slots* slots_;
  int layers_;  // with arcs
  size_t width_;
  size_t most_;
  FailureLattice* out_;
  std::array<double, kMaxSlots> alpha_;  // in units of Fixed
  // By slot and ascending token: the candidates' own weights, and the states of the next length whose contexts end in
  // them.
  std::array<Fixed, kMaxSlots * kMaxCandidates> head_;
  std::array<Automaton::Ending, kMaxSlots * kMaxCandidates> ending_;
  Suffixes start_;
  Room<uint32_t> states_;       // parallel to the nodes: index among the states of their length
  int arc_layer_, node_layer_;  // of the newest arc, and of the newest node of the next length
  // The current part, and workspace.
  std::vector<NodeList> lists_;
  // For each arc: its index in the level, its candidate, its node.
  std::vector<uint32_t> arc_, place_, node_;
  std::vector<uint32_t> longer_;  // arcs to a longer context
};

}  // namespace rescore
