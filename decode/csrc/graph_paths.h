// The p best strings of an acyclic graph composed with n-gram automata, exactly.
//
// Composition: from the first state on, in topological order, the tuples of automaton states with which each state of
// the graph is reached (label_rows.h); backward, the weight of every node's best completion; best-first search over
// prefixes, in the order of their weight with the best completion.
//
// A failure arc that all words after a state of the graph take is paid on the way in: contexts that differ in nothing
// that follows are one node.
//
// The graph need not be deterministic, and arcs may read nothing: a prefix leads to several nodes, each with the weight
// of the cheapest way. So the graph is made deterministic where the search goes, and nowhere else; as a whole it may
// not be, within any memory, if each of a word's many times has its own cost. Completions are exact, so only prefixes
// of the answer are opened.
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
  const int32_t* tokens;               // [arcs], of strings; -1: none
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
  // lms, alpha: of every model. Ties are broken by tokens, from the first on, ends before all. std::length_error if the
  // composition has more than `most` transitions.
  GraphPaths run(const std::vector<const Automaton*>& lms, const double* alpha, const Graph& graph,
                 const uint32_t* starts, int paths, size_t most);

 private:
  // A node that a prefix leads to, by the cheapest way: behind an arc, from one that another prefix reached, or this
  // one.
  struct Reached {
    uint32_t node, state;  // of the composition, of the graph
    Fixed weight;
    uint32_t from;
    int64_t arc;
  };
  // Children by their best completions, with which they cost `weight` more than said. The rank of a child is its token
  // + 1, that of the end is 0.
  struct Children {
    size_t begin, end;
  };
  // What a prefix reached, and its children, of which those before `begin` were offered.
  struct Opened {
    uint32_t begin, end;
    Fixed weight;
    Children children;
  };
  struct Before {
    const PrefixTree* tree;
    bool operator()(uint32_t a, uint32_t b) const { return tree->ranks_before(a, b); }
  };

  void sort_by_target();
  void compose(const uint32_t* starts, size_t most);
  uint32_t tuple(const uint32_t* states);
  void enter(uint32_t state);
  void settle(uint32_t state);
  void leave(uint32_t state);
  void expect_weights() const;
  void complete();
  GraphPaths search(int paths, size_t most);
  void reach(Reached one);
  uint32_t open(uint32_t parent, uint32_t rank);
  void offer(uint32_t at, Fixed weight);
  Children sorted_children(size_t begin);
  void follow(uint32_t prefix, uint32_t rank);
  Reached behind(uint32_t at, int64_t arc) const;
  bool next(uint32_t prefix);
  void spell(const Opened& opened, GraphPaths& out) const;
  [[noreturn]] void refuse_size(size_t most) const;
  // Calls `use` with every step that leads to a state of the graph.
  template <typename Use>
  void each_step_to(uint32_t state, Use use) const {
    for (int64_t n = into_first_[state]; n < into_first_[state + 1]; ++n) {
      const uint32_t from = source_[into_[n]], width = graph_->width(from);
      for (size_t step = first_step_[from] + (into_[n] - graph_->first[from]); step < first_step_[from + 1];
           step += width)
        use(step);
    }
  }
  auto later() const {
    return [this](uint32_t a, uint32_t b) { return reached_[a].node > reached_[b].node; };
  }

  // Of a node, the step along the first arc of its state of the graph.
  size_t first_step(const Reached& one) const {
    return first_step_[one.state] + size_t{one.node - first_node_[one.state]} * graph_->width(one.state);
  }

  const Graph* graph_;
  size_t models_;
  std::vector<Fixed> own_;                  // of the graph's arcs
  std::vector<int64_t> into_first_, into_;  // arcs by target
  std::vector<uint32_t> source_;            // of arcs
  std::vector<LabelRows> rows_;             // by model
  Layers tuples_;                           // of rows, with which one state is reached; one model's are its rows
  std::vector<uint32_t> node_;              // by tuple
  std::vector<Fixed> paid_;                 // by tuple, for failure arcs on the way to its node
  Fixed start_;                             // what was paid to the first node
  std::vector<uint32_t> row_;               // by node of one state and model
  Layers layers_;                           // the nodes of every state of the graph
  std::vector<uint32_t> first_node_;        // by state
  std::vector<size_t> first_step_;          // by state
  Room<Fixed> weight_;                      // of steps, by state, node and arc
  Room<uint32_t> target_;                   // of steps: a node
  Room<uint32_t> next_;                     // by step and model, its next state
  std::vector<Fixed> of_node_;              // its best completion
  PrefixTree tree_;
  std::vector<Reached> reached_;
  std::vector<Opened> opened_;
  Room<Offer> children_;
  std::vector<Children> of_one_;  // by node: the children of prefixes that reach it alone, once they are known
  std::vector<uint32_t> slot_;    // by node: where it is among the reached, + 1
  std::vector<uint32_t> heap_;    // reached by the newest prefix, whose arcs are to be followed
  PrefixQueue<Before> queue_{Before{&tree_}};
};

}  // namespace rescore
