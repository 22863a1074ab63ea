// The p best token strings of a sausage composed with n-gram automata, exactly.
//
// Three passes. Forward: the composition's nodes, one for each slot and tuple of model states that some
// prefix reaches, each expanded once. Backward: the cost of the best completion of every node (Viterbi).
// Then best-first search over prefixes with that exact completion cost, which expands only prefixes of the
// answers. Under failure semantics the composition is deterministic, so paths and strings are the same.
// Under epsilon semantics a string may have several paths; a prefix then carries every node that it reaches
// (at most one for each suffix of the history), each with its least cost, and counts once.
#pragma once

#include "best_first.h"
#include "context_cache.h"
#include "layers.h"

namespace rescore {

enum class Semantics { kFailure, kEpsilon };

struct PathOutput {
  int32_t* tokens;  // [paths, slots], padding -1
  float* cost;      // [paths], padding +inf
  int paths;
};

class PathSearch {
 public:
  // Writes the best strings, sorted by cost, then by ranks, and returns how many there are.
  int run(const Models& models, const Sausage& sausage, const States& start, Semantics semantics, PathOutput out);

 private:
  struct Member {  // a node that a prefix reaches and what reaching it costs
    uint32_t node;
    Fixed cost;
  };
  struct Opened {  // a prefix's members and its children, sorted
    size_t first_member, members;
    size_t first_child, children;
  };

  uint32_t intern(const States& states, const Models& models, Semantics semantics, int t);
  void forward(const Models& models, const Sausage& sausage, const States& start, Semantics semantics);
  void expand_node(uint32_t node, int t, const Models& models, const Sausage& sausage, Semantics semantics);
  void backward();
  void open(uint32_t prefix);
  void add_member(size_t first, uint32_t node, Fixed cost);
  void spell(uint32_t prefix, const Sausage& sausage, int32_t* tokens) const;

  int length_ = 0;
  int width_ = 0;
  std::array<Slot, kMaxSlots> slots_;
  Caches caches_;
  ContextCache contexts_;  // under epsilon semantics
  Layers layers_;
  // Node n's transition on rank k is at n * width_ + k.
  std::vector<uint32_t> target_;
  std::vector<Fixed> weight_;
  std::vector<uint32_t> epsilon_target_;  // kNone: no epsilon arc
  std::vector<Fixed> epsilon_weight_;
  std::vector<Fixed> completion_;
  // Prefixes.
  PrefixTree tree_;
  std::vector<Opened> opened_;
  std::vector<Member> members_;
  std::vector<Child> children_;
};

}  // namespace rescore
