// The p best strings of an acyclic deterministic graph composed with n-gram automata, exactly.
//
// Composition: from the first state on, in topological order, the tuples of automaton states with which each state of
// the graph is reached (label_rows.h); backward, the weight of every node's best completion; best-first search over
// prefixes, in the order of their weight with the best completion. Completions are exact, so only prefixes of the
// answer are opened. Graph and automata are deterministic, so paths and strings are the same.
//
// A sausage is such a graph; its own search (best_paths.h) knows that all arcs of a slot lead to the next one, shares
// targets through failure arcs, and reads all layers at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "label_rows.h"
#include "layers.h"
#include "prefix_queue.h"
#include "prefix_tree.h"

namespace rescore {

// Flat arrays: the arcs of state s are first[s] to first[s + 1] - 1. Paths lead from state 0 to the last one.
struct Graph {
  const int64_t* first;                // [states + 1]
  const int32_t* targets;              // [arcs], later states
  const double* cost;                  // [arcs]
  std::vector<const int32_t*> labels;  // by model, [arcs]: its token, or -1: the model reads nothing
  int64_t states;

  int64_t arcs() const { return first[states]; }
  uint32_t width(int64_t state) const { return static_cast<uint32_t>(first[state + 1] - first[state]); }
};

// Of every path its cost, and its arcs: those of path i are first[i] to first[i + 1] - 1.
struct GraphPaths {
  std::vector<double> cost;
  std::vector<int64_t> first{0};
  std::vector<int64_t> arcs;
};

class GraphSearch {
 public:
  // lms, alpha: of every model. Ties are broken by the order of arcs, from the first on. std::length_error if the
  // composition has more than `most` transitions.
  GraphPaths run(const std::vector<const Automaton*>& lms, const double* alpha, const Graph& graph,
                 const uint32_t* starts, int paths, size_t most);

 private:
  struct Opened {
    uint32_t node, state;  // of the composition, of the graph
    Fixed weight;
  };
  struct Before {
    const PrefixTree* tree;
    bool operator()(uint32_t a, uint32_t b) const { return tree->ranks_before(a, b); }
  };

  void sort_by_target();
  void compose(const uint32_t* starts, size_t most);
  void enter(uint32_t state);
  void leave(uint32_t state, size_t most);
  void expect_weights() const;
  void complete();
  GraphPaths search(int paths);
  bool next(uint32_t prefix);
  uint32_t open(uint32_t parent, uint32_t rank, Opened opened);
  void spell(uint32_t prefix, GraphPaths& out) const;

  // The weight of an arc of the graph in a node of its source, without and with the best completion.
  Fixed weight(uint32_t node, int64_t arc) const {
    Fixed sum = own_[arc];
    for (size_t j = 0; j < models_; ++j)
      sum = std::min(sum + rows_[j].weight(row_[node * models_ + j], place_[j][arc]), kImpossible);
    return sum;
  }
  uint32_t& target(uint32_t node, uint32_t state, uint32_t rank) {
    return targets_[first_target_[state] + size_t{node - first_node_[state]} * graph_->width(state) + rank];
  }
  Fixed total(uint32_t node, uint32_t state, uint32_t rank) {
    return std::min(weight(node, graph_->first[state] + rank) + of_node_[target(node, state, rank)], kImpossible);
  }

  const Graph* graph_;
  size_t models_;
  std::vector<Fixed> own_;                    // of the graph's arcs
  std::vector<int64_t> into_first_, into_;    // arcs by target
  std::vector<uint32_t> source_;              // of arcs
  std::vector<LabelRows> rows_;               // by model
  std::vector<std::vector<uint32_t>> place_;  // by model and arc
  Layers layers_;                             // the nodes of every state of the graph
  Room<uint32_t> row_;                        // by node and model
  std::vector<uint32_t> first_node_;          // by state
  std::vector<size_t> first_target_;          // by state
  Room<uint32_t> targets_;                    // by state, node and arc
  std::vector<Fixed> of_node_;                // its best completion
  PrefixTree tree_;
  std::vector<Opened> opened_;
  PrefixQueue<Before> queue_{Before{&tree_}};
};

}  // namespace rescore
