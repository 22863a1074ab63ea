// A sausage composed with an n-gram automaton on demand.
//
// A node is a state after some of the slots. Successors are computed on demand and cached. Nodes are unique by
// construction, since only one arc leads to a context and token that together are a state; there is no look-up.
//
// A node has rows by the candidates' places in the slot: costs, arcs, targets. Whatever is written as a vector is also
// read as one, and scalars as scalars (lanes.h).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "automaton.h"
#include "room.h"
#include "slot.h"

namespace rescore {

class LazyComposition {
 public:
  // Clears everything; returns the node of the longest suffix before the first slot, not yet read. The slots must
  // outlive the composition; width: the most candidates of a slot.
  uint32_t start(const Automaton& lm, const Slots& slots, int width, const Suffixes& start);

  // The successor of a node under candidate i. Precondition: the node was read, and there is another slot.
  uint32_t next(uint32_t node, int i);

  // Steps that read all new nodes. Each runs for all nodes before the next, so that their reads overlap, also with
  // those of other compositions whose steps are interleaved.
  void find_lists();
  void match_lists();
  void read_costs();

  // The cost of each of the slot's candidates under failure semantics, backing off included, in the slot's order, with
  // arbitrary values up to row_size(width). Precondition: the node was read. Valid until the next call.
  const double* costs(uint32_t node) const { return &cost_[node * stride_]; }

 private:
  static constexpr uint32_t kNoNode = UINT32_MAX;

  // A state. Nodes 0 to kMaxSlots - 1 are the roots, by slot.
  struct Node {
    uint64_t tokens;         // a bit for each token with an arc, by its place in the slot
    uint32_t length, index;  // of the state, and its index among the states of that length
    uint32_t backoff;        // kNoNode: a root
    uint32_t slot;
  };

  const Slot& slot(const Node& node) const { return (*slots_)[node.slot]; }
  void expect_room(size_t nodes);
  uint32_t root(int slot);
  uint32_t add(uint32_t length, uint32_t index, uint32_t backoff, int slot);

  const Automaton* lm_;
  const Slots* slots_;
  size_t stride_;  // of rows
  int roots_;      // made so far
  size_t read_;    // nodes
  std::vector<Node> nodes_;
  Room<Automaton::List> lists_;  // [new nodes]
  // [nodes, stride]: costs; arcs, as indices among those of their length; targets, kNoNode if not computed yet.
  Room<double> cost_;
  Room<uint32_t> arc_, target_;
};

}  // namespace rescore
