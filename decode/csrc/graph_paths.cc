#include "graph_paths.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

namespace rescore {

GraphPaths GraphSearch::run(const std::vector<const Automaton*>& lms, const double* alpha, const Graph& graph,
                            const uint32_t* starts, int paths, size_t most) {
  graph_ = &graph;
  models_ = lms.size();
  rows_.resize(models_);
  place_.resize(models_);
  for (size_t j = 0; j < models_; ++j) {
    rows_[j].clear(*lms[j], alpha[j]);
    place_[j].resize(graph.arcs());
  }
  own_.resize(graph.arcs());
  std::transform(graph.cost, graph.cost + graph.arcs(), own_.begin(), to_fixed);
  sort_by_target();
  compose(starts, most);
  expect_weights();
  complete();
  return search(paths);
}

void GraphSearch::sort_by_target() {
  into_first_.assign(graph_->states + 2, 0);
  into_.resize(graph_->arcs());
  source_.resize(graph_->arcs());
  for (int64_t arc = 0; arc < graph_->arcs(); ++arc) ++into_first_[graph_->targets[arc] + 2];
  std::partial_sum(into_first_.begin(), into_first_.end(), into_first_.begin());
  for (int64_t state = 0; state < graph_->states; ++state)
    for (int64_t arc = graph_->first[state]; arc < graph_->first[state + 1]; ++arc) {
      source_[arc] = static_cast<uint32_t>(state);
      into_[into_first_[graph_->targets[arc] + 1]++] = arc;
    }
}

void GraphSearch::compose(const uint32_t* starts, size_t most) {
  layers_.clear(static_cast<int>(models_));
  first_node_.assign(1, 0);
  first_target_.assign(1, 0);
  row_.clear();
  targets_.clear();
  States first{};
  std::copy_n(starts, models_, first.begin());
  for (int64_t state = 0; state < graph_->states; ++state) {
    layers_.begin();
    if (state == 0) layers_.add(first);
    enter(static_cast<uint32_t>(state));
    first_node_.push_back(layers_.size());
    leave(static_cast<uint32_t>(state), most);
    first_target_.push_back(targets_.size());
  }
}

// Finds the nodes of a state of the graph, from those of its predecessors. One stands for all ends.
void GraphSearch::enter(uint32_t state) {
  const bool last = state + 1 == graph_->states;
  States states{};
  for (int64_t n = into_first_[state]; n < into_first_[state + 1]; ++n) {
    const int64_t arc = into_[n];
    const uint32_t from = source_[arc], rank = static_cast<uint32_t>(arc - graph_->first[from]);
    for (uint32_t node = first_node_[from]; node < first_node_[from + 1]; ++node) {
      for (size_t j = 0; j < models_ && !last; ++j) states[j] = rows_[j].next(row_[node * models_ + j], place_[j][arc]);
      target(node, from, rank) = layers_.intern(states);
    }
  }
}

// Computes the rows of a state's nodes.
void GraphSearch::leave(uint32_t state, size_t most) {
  const uint32_t width = graph_->width(state);
  const size_t nodes = first_node_[state + 1] - first_node_[state];
  size_t transitions = targets_.size() + nodes * width;
  row_.resize(first_node_[state + 1] * models_);
  if (nodes && width)
    for (size_t j = 0; j < models_; ++j) {
      const int64_t first = graph_->first[state];
      rows_[j].begin(graph_->labels[j] + first, width, place_[j].data() + first);
      for (uint32_t node = first_node_[state]; node < first_node_[state + 1]; ++node)
        rows_[j].prefetch(layers_.states(node)[j]);
      for (uint32_t node = first_node_[state]; node < first_node_[state + 1]; ++node)
        row_[node * models_ + j] = rows_[j].row(layers_.states(node)[j]);
      rows_[j].fill();
      transitions = std::max(transitions, rows_[j].size());
    }
  if (transitions > most)
    throw std::length_error("the composition has more than " + std::to_string(most) + " transitions at state " +
                            std::to_string(state) + " of " + std::to_string(graph_->states) +
                            "; prune the lattice, or use models of lower order");
  targets_.resize(targets_.size() + nodes * width);
}

void GraphSearch::complete() {
  of_node_.assign(layers_.size() + 1, kImpossible);
  if (first_node_[graph_->states] > first_node_[graph_->states - 1]) of_node_[first_node_[graph_->states - 1]] = 0;
  for (int64_t s = graph_->states - 1; s-- > 0;) {
    const auto state = static_cast<uint32_t>(s);
    for (uint32_t node = first_node_[state]; node < first_node_[state + 1]; ++node)
      for (uint32_t rank = 0; rank < graph_->width(state); ++rank)
        of_node_[node] = std::min(of_node_[node], total(node, state, rank));
  }
}

// Sums of weights must stay within what a Fixed holds.
void GraphSearch::expect_weights() const {
  std::vector<int32_t> depth(graph_->states, 0);
  for (int64_t arc = 0; arc < graph_->arcs(); ++arc)
    depth[graph_->targets[arc]] = std::max(depth[graph_->targets[arc]], depth[source_[arc]] + 1);
  double most = 0;
  for (const Fixed own : own_)
    if (possible(own)) most = std::max(most, std::fabs(static_cast<double>(own)));
  for (size_t j = 0; j < models_; ++j) most += rows_[j].greatest();
  if (most * depth.back() > static_cast<double>(kImpossible / 4))
    throw std::invalid_argument("cost: expected paths of less than " +
                                std::to_string(kImpossible / 4 / static_cast<Fixed>(kFixedOne)) + " nats, got " +
                                std::to_string(depth.back()) + " arcs of up to " + std::to_string(most / kFixedOne));
}

GraphPaths GraphSearch::search(int paths) {
  GraphPaths out;
  tree_.clear();
  queue_.clear();
  opened_.clear();
  uint32_t parent = open(kNone, 0, {0, 0, 0});
  if (!next(parent)) return out;
  for (;;) {
    const Offer taken = tree_.offers[parent];
    const Opened from = opened_[parent];
    if (static_cast<int>(out.cost.size()) + 1 < paths && next(parent)) queue_.push(tree_.offers[parent].cost, parent);
    const int64_t arc = graph_->first[from.state] + taken.rank;
    const auto state = static_cast<uint32_t>(graph_->targets[arc]);
    parent = open(parent, taken.rank,
                  {target(from.node, from.state, taken.rank), state, from.weight + weight(from.node, arc)});
    // Completions are exact, so the best child of a prefix costs the same: nothing queued precedes it.
    if (next(parent)) continue;
    out.cost.push_back(static_cast<double>(taken.cost) / kFixedOne);
    spell(parent, out);
    if (static_cast<int>(out.cost.size()) == paths || !queue_.size()) return out;
    parent = queue_.top();
    queue_.pop();
  }
}

uint32_t GraphSearch::open(uint32_t parent, uint32_t rank, Opened opened) {
  const uint32_t prefix = tree_.add(parent, rank, parent == kNone ? 0 : tree_.prefixes[parent].depth + 1);
  tree_.offers[prefix].cost = std::numeric_limits<Fixed>::min();
  opened_.push_back(opened);
  return prefix;
}

// Offers the best child of a prefix that was not offered yet; false if there is none.
bool GraphSearch::next(uint32_t prefix) {
  const Opened& opened = opened_[prefix];
  const Offer before = tree_.offers[prefix];
  Offer best{kImpossible, 0, 0};
  for (uint32_t rank = 0; rank < graph_->width(opened.state); ++rank) {
    const Fixed cost = opened.weight + total(opened.node, opened.state, rank);
    const bool later = cost > before.cost || (cost == before.cost && rank > before.rank);
    if (later && cost < best.cost) best = {cost, rank, 0};
  }
  if (!possible(best.cost)) return false;
  tree_.offers[prefix] = best;
  return true;
}

void GraphSearch::spell(uint32_t prefix, GraphPaths& out) const {
  const size_t begin = out.arcs.size();
  out.arcs.resize(begin + tree_.prefixes[prefix].depth);
  for (; tree_.prefixes[prefix].parent != kNone; prefix = tree_.prefixes[prefix].parent) {
    const Prefix& last = tree_.prefixes[prefix];
    out.arcs[begin + last.depth - 1] = graph_->first[opened_[last.parent].state] + last.rank;
  }
  out.first.push_back(static_cast<int64_t>(out.arcs.size()));
}

}  // namespace rescore
