// The p best paths of a sausage composed with n-gram automata, exactly.
//
// Three passes: composition, with failure arcs kept (failure_lattice.h); backward, the weight of every node's best
// completion (completions.h); best-first search over prefixes, in the order of their weight with the best completion.
// Completions are exact, so the first p whole paths are the answer, and only their prefixes are opened.
//
// Under failure semantics a prefix leads to one node. Under epsilon semantics it may lead to several; it then carries
// every such node with its least weight, and counts once.
#pragma once

#include "completions.h"
#include "prefix_queue.h"
#include "prefix_tree.h"
#include "product_lattice.h"

namespace rescore {

constexpr int kMaxPaths = 1024;  // per lattice

struct PathOutput {
  int32_t* tokens;  // [paths, slots], padding -1
  float* cost;      // [paths], padding +inf
  int paths;
};

class PathSearch {
 public:
  // Writes the best paths, sorted by cost, then by ranks, and returns their number.
  int run(const Models& models, const Sausage& sausage, const Starts& starts, Semantics semantics, PathOutput out);

 private:
  struct Member {  // a node that a prefix leads to, and the weight of the prefix
    uint32_t node;
    Fixed weight;
  };
  struct Opened {  // a prefix's members, and the totals of its children by rank, kImpossible once taken
    size_t first_member, members;
    size_t first_total;
  };
  struct Before {
    const PrefixTree* tree;
    bool operator()(uint32_t a, uint32_t b) const { return tree->ranks_before(a, b); }
  };

  int search(const Sausage& sausage, PathOutput out);
  void open(uint32_t prefix, int t);
  bool next(uint32_t prefix);
  void follow(uint32_t from, int token);
  void add_member(size_t first, Member member);
  void spell(uint32_t prefix, const Sausage& sausage, int32_t* tokens) const;

  Semantics semantics_;
  Slots slots_;
  Product product_;
  FailureLattice lattice_;
  Completions completions_;
  // Prefixes.
  PrefixTree tree_;
  std::vector<Opened> opened_;
  std::vector<Member> members_;
  std::vector<Fixed> totals_;
  PrefixQueue<Before> queue_{Before{&tree_}};
};

}  // namespace rescore
