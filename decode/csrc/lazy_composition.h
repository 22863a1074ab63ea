// A sausage composed with an n-gram automaton as far as a search looks into it.
//
// A node is a state after some of the slots. Where a candidate leads is found when that is asked for, and kept, and
// nodes are shared: a context and a token that are a state together lead to one node, so no node is there twice and
// none is ever looked for.
//
// A node has rows, by the candidates' places in the slot: costs, arcs, and where these lead. What is written as a
// vector is read as one, and the other way round (lanes.h).
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
  // Forgets everything; returns the node of the longest suffix before the first slot, which is new. The slots stay the
  // caller's; width: the most candidates of one.
  uint32_t start(const Automaton& lm, const Slots& slots, int width, const Suffixes& start);

  // Where candidate i of a node's slot leads. Precondition: the node was read, and there is another slot.
  uint32_t next(uint32_t node, int i);

  // Reads all nodes that are new. Each step is taken for all of them before the next: their reads do not wait for each
  // other, nor for those of other compositions for which the step is taken between.
  void find_lists();
  void match_lists();
  void read_costs();

  // The cost of each of the slot's candidates under failure semantics, backing off included, in the slot's order, and
  // anything behind them up to row_size(width). Precondition: the node was read. Valid until the next call of anything.
  const double* costs(uint32_t node) const { return &cost_[node * stride_]; }

 private:
  static constexpr uint32_t kNoNode = UINT32_MAX;

  // A state. Nodes 0 to kMaxSlots - 1 are the roots, by slot.
  struct Node {
    uint64_t tokens;         // those with an arc, a bit each, by their places in the slot
    uint32_t length, index;  // of the state, and which of its length
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
  int roots_;      // how many are there
  size_t read_;    // nodes
  std::vector<Node> nodes_;
  Room<Automaton::List> lists_;  // [nodes that are new]
  // [nodes, stride]: costs; of arcs, which of those of their length, and where they lead, kNoNode where that was not
  // yet looked for.
  Room<double> cost_;
  Room<uint32_t> arc_, target_;
};

}  // namespace rescore
