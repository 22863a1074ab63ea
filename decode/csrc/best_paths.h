// The p best paths of a sausage composed with n-gram automata, exactly.
//
// Three passes: composition, with failure arcs kept (failure_lattice.h); backward, the weight of every node's best
// completion (completions.h); best-first search over prefixes, in the order of their weight with the best completion.
// Completions are exact, so the first p whole paths are the answer, and only their prefixes are opened.
//
// A prefix leads to one node, so paths and token sequences are the same.
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
  int run(const Models& models, const Sausage& sausage, const Starts& starts, PathOutput out);

 private:
  struct Opened {
    uint32_t node;       // that the prefix leads to
    Fixed weight;        // of the prefix
    size_t first_total;  // of the totals of its children by rank, kImpossible once taken
  };
  struct Before {
    const PrefixTree* tree;
    bool operator()(uint32_t a, uint32_t b) const { return tree->ranks_before(a, b); }
  };

  int search(const Sausage& sausage, PathOutput out);
  void open(uint32_t prefix, int t);
  bool next(uint32_t prefix);
  void follow(uint32_t from, int token);
  void spell(uint32_t prefix, const Sausage& sausage, int32_t* tokens) const;

  Slots slots_;
  Product product_;
  FailureLattice lattice_;
  Completions completions_;
  // Prefixes.
  PrefixTree tree_;
  std::vector<Opened> opened_;
  std::vector<Fixed> totals_;
  PrefixQueue<Before> queue_{Before{&tree_}};
};

}  // namespace rescore
