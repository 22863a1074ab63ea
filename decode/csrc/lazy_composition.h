// A sausage composed with an n-gram automaton as far as a search looks into it.
//
// A node is a state after some of the slots. It is read when its candidates' costs are asked for, and with it what it
// backs off to; where a candidate leads is found when that is asked for. Both are kept, and nodes are shared: a context
// and a token that are a state together lead to one node, so no node is there twice and none is ever looked for.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "automaton.h"
#include "slot.h"

namespace rescore {

class LazyComposition {
 public:
  // Forgets everything; returns the node of `state` before the first slot. The slots stay the caller's; width: the most
  // candidates of one.
  uint32_t start(const Automaton& lm, const Slots& slots, size_t width, uint32_t state);

  // The cost [slot.count] of each of the slot's candidates under failure semantics, backing off included, in the slot's
  // order. Valid until the next call of anything.
  const double* costs(uint32_t node) {
    if (!nodes_[node].read) read(node);
    return &cost_[node * width_];
  }

  // Where candidate i of a node's slot leads. Precondition: the node's costs were asked for, and there is another slot.
  uint32_t next(uint32_t node, int i);

 private:
  static constexpr uint32_t kNoNode = UINT32_MAX;

  struct Node {
    Automaton::List list;  // once found
    uint64_t tokens;   // those with an arc, a bit each, by their places in the slot
    uint32_t length, index;  // of the state, and which of its length
    uint32_t backoff;  // before this one; kNoNode: a root
    uint16_t slot;
    bool read;
  };
  struct Arc {
    uint32_t arc;  // among those of its length
    uint32_t target;  // kNoNode: not yet looked for
  };

  uint32_t enter(uint32_t state);
  uint32_t root(int slot);
  uint32_t add(uint32_t length, uint32_t index, uint32_t backoff, int slot);
  void read_root(uint32_t node);
  void read(uint32_t node);
  void find_list(Node& node);
  size_t match(Node& node, size_t found);
  void weigh(uint32_t node, size_t first, size_t end);

  const Automaton* lm_;
  const Slots* slots_;
  size_t width_;  // of the rows below
  std::array<uint32_t, kMaxSlots> roots_;
  std::vector<Node> nodes_;
  std::vector<double> cost_;  // [nodes, width]
  std::vector<Arc> arcs_;     // [nodes, width], of those with a bit
  // Room for the arcs of the slot's tokens in all the contexts that are read together: which ones, the places of their
  // tokens, and the codes of their costs.
  std::vector<uint32_t> arc_, place_, code_;
};

}  // namespace rescore
