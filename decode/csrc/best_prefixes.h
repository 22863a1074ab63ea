// Token trees: the n most probable prefixes, found best-first.
//
// A prefix is never more probable than its parent, so the first n prefixes in the order (probability,
// depth, ranks) form a tree, and the tree of n is the beginning of the tree of n + 1.
#pragma once

#include <algorithm>
#include <limits>

#include "best_first.h"

namespace rescore {

struct TreeOutput {
  int32_t* tokens;   // [nodes], padding -1
  int32_t* parents;  // [nodes], -1: a child of the certain token; padding -1
  int32_t* depths;   // [nodes], from 1; padding 0
  float* logq;       // [nodes], padding -inf
  int nodes;
};

struct LessProbableLater {
  const PrefixTree* tree;
  bool operator()(const Child& a, const Child& b) const {
    if (a.cost != b.cost) return a.cost < b.cost;
    if (a.depth != b.depth) return a.depth < b.depth;
    return tree->ranks_before(a, b);
  }
};

inline void clear(TreeOutput out) {
  std::fill(out.tokens, out.tokens + out.nodes, -1);
  std::fill(out.parents, out.parents + out.nodes, -1);
  std::fill(out.depths, out.depths + out.nodes, 0);
  std::fill(out.logq, out.logq + out.nodes, -std::numeric_limits<float>::infinity());
}

// Takes the best child over and over. Prefix 0 is empty; prefix i + 1 is node i.
class BestPrefixes {
 public:
  PrefixTree tree;

  // open(prefix, cost, child): makes a prefix's children known; `child` is the prefix as it was offered.
  // next(prefix, child): sets `child` to the prefix's best child that it has not been set to before, false if there is none.
  // token(child): names its token.
  template <typename Open, typename Next, typename Token>
  int run(int length, TreeOutput out, Open open, Next next, Token token) {
    tree.clear();
    queue_.clear();
    Child child{0, kNone, 0, 0, 0};
    const auto offer = [&](uint32_t prefix) {
      if (Child offered; next(prefix, offered)) queue_.push(offered);
    };
    open(tree.add(kNone, 0, 0), child);
    offer(0);
    int found = 0;
    while (found < out.nodes && !queue_.empty()) {
      child = queue_.pop();
      offer(child.parent);
      out.tokens[found] = token(child);
      out.parents[found] = static_cast<int32_t>(child.parent) - 1;
      out.depths[found] = child.depth;
      out.logq[found] = -to_cost(child.cost);
      ++found;
      const uint32_t prefix = tree.add(child.parent, child.rank, child.depth);
      if (child.depth < length && found < out.nodes) {
        open(prefix, child);
        offer(prefix);
      }
    }
    return found;
  }

 private:
  ChildQueue<LessProbableLater> queue_{LessProbableLater{&tree}};
};

}  // namespace rescore
