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

// Takes the best child over and over: `open(prefix, cost, states of child)` sorts a prefix's children,
// `token(child)` names a child's token. Prefix 0 is empty and already open; prefix i + 1 is node i.
template <typename Opened, typename Open, typename Token>
int enumerate(PrefixTree& tree, std::vector<Opened>& opened, const std::vector<Child>& children, int length,
              TreeOutput out, Open open, Token token) {
  ChildQueue<LessProbableLater> queue(LessProbableLater{&tree});
  const auto offer = [&](uint32_t prefix, size_t place) {
    if (place < opened[prefix].children) queue.push(children[opened[prefix].first_child + place]);
  };
  offer(0, 0);
  int found = 0;
  while (found < out.nodes && !queue.empty()) {
    const Child child = queue.pop();
    offer(child.parent, child.place + 1);
    const size_t at = opened[child.parent].first_child + child.place;
    out.tokens[found] = token(child);
    out.parents[found] = static_cast<int32_t>(child.parent) - 1;
    out.depths[found] = child.depth;
    out.logq[found] = -to_cost(child.cost);
    ++found;
    const uint32_t prefix = tree.add(child.parent, child.rank, child.depth);
    opened.push_back({});
    if (child.depth < length && found < out.nodes) {
      open(prefix, child.cost, at);
      offer(prefix, 0);
    }
  }
  return found;
}

}  // namespace rescore
