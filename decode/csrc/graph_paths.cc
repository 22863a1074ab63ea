#include "graph_paths.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>

namespace rescore {

GraphPaths GraphSearch::run(const std::vector<const Automaton*>& lms, const double* alpha, const Graph& graph,
                            const uint32_t* starts, int paths, size_t most) {
  graph_ = &graph;
  models_ = lms.size();
  rows_.resize(models_);
  for (size_t j = 0; j < models_; ++j) rows_[j].use(*lms[j], alpha[j]);
  own_.resize(graph.arcs());
  std::transform(graph.cost, graph.cost + graph.arcs(), own_.begin(), to_fixed);
  sort_by_target();
  compose(starts, most);
  expect_weights();
  complete();
  return search(paths, most);
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
  first_step_.assign(1, 0);
  weight_.clear();
  target_.clear();
  next_.clear();
  for (int64_t state = 0; state < graph_->states; ++state) {
    for (size_t j = 0; j < models_; ++j) rows_[j].begin(graph_->labels[j] + graph_->first[state], graph_->width(state));
    tuples_.clear(static_cast<int>(models_));
    tuples_.begin();
    if (state == 0) tuple(starts);
    enter(static_cast<uint32_t>(state));
    settle(static_cast<uint32_t>(state));
    first_node_.push_back(layers_.size());
    const size_t nodes = first_node_[state + 1] - first_node_[state];
    first_step_.push_back(weight_.size() + nodes * graph_->width(state));
    if (first_step_.back() > most) refuse_size(most);
    weight_.resize(first_step_.back());
    target_.resize(first_step_.back());
    next_.resize(first_step_.back() * models_);
    if (nodes && graph_->width(state)) leave(static_cast<uint32_t>(state));
  }
}

// The number of a tuple of automaton states, and of the rows of these.
uint32_t GraphSearch::tuple(const uint32_t* states) {
  if (models_ == 1) return rows_[0].row(states[0]);
  States row{};
  for (size_t j = 0; j < models_; ++j) row[j] = rows_[j].row(states[j]);
  return tuples_.intern(row);
}

// Finds the tuples with which a state of the graph is reached. One stands for all ends.
void GraphSearch::enter(uint32_t state) {
  const bool last = state + 1 == graph_->states;
  States states{};
  uint32_t known = kNone;
  each_step_to(state, [&](size_t step) {
    // Most of a word's steps back off to the same states as the step before.
    bool same = known != kNone;
    for (size_t j = 0; j < models_ && !last; ++j) {
      same &= states[j] == next_[step * models_ + j];
      states[j] = next_[step * models_ + j];
    }
    target_[step] = known = same ? known : tuple(states.data());
  });
}

// Makes nodes of the tuples, and leads the steps there.
void GraphSearch::settle(uint32_t state) {
  const uint32_t tuples = models_ == 1 ? rows_[0].rows() : tuples_.size();
  for (size_t j = 0; j < models_; ++j) rows_[j].fill();
  row_.resize(tuples * models_);
  layers_.begin();
  paid_.assign(tuples, 0);
  node_.resize(tuples);
  const uint32_t first = layers_.size();
  for (uint32_t tuple = 0; tuple < tuples; ++tuple) {
    States states{}, row{};
    for (size_t j = 0; j < models_; ++j) {
      const uint32_t own = models_ == 1 ? tuple : tuples_.states(tuple)[j];
      paid_[tuple] = std::min(paid_[tuple] + rows_[j].paid(own), kImpossible);
      row[j] = rows_[j].settled(own);
      states[j] = rows_[j].state(row[j]);
    }
    node_[tuple] = layers_.intern(states);
    std::copy_n(row.begin(), models_, row_.data() + (node_[tuple] - first) * models_);
  }
  if (!state) start_ = paid_[0];
  each_step_to(state, [&](size_t step) {
    weight_[step] = std::min(weight_[step] + paid_[target_[step]], kImpossible);
    target_[step] = node_[target_[step]];
  });
}

void GraphSearch::refuse_size(size_t most) const {
  throw std::length_error("expected a composition of at most " + std::to_string(most) +
                          " transitions, got more at state " + std::to_string(first_node_.size() - 2) + " of " +
                          std::to_string(graph_->states) + "; prune the lattice, or use models of lower order");
}

// Weighs the steps from a state's nodes.
void GraphSearch::leave(uint32_t state) {
  const int64_t first = graph_->first[state];
  const uint32_t width = graph_->width(state);
  for (size_t step = first_step_[state]; step < first_step_[state + 1]; step += width)
    std::copy_n(&own_[first], width, &weight_[step]);
  for (size_t j = 0; j < models_; ++j) {
    size_t step = first_step_[state];
    for (size_t at = j; step < first_step_[state + 1]; at += models_)
      for (uint32_t i = 0; i < width; ++i, ++step) {
        weight_[step] = std::min(weight_[step] + rows_[j].weight(row_[at], i), kImpossible);
        next_[step * models_ + j] = rows_[j].next(row_[at], i);
      }
  }
}

void GraphSearch::complete() {
  of_node_.assign(layers_.size(), kImpossible);
  if (first_node_[graph_->states] > first_node_[graph_->states - 1]) of_node_.back() = 0;
  size_t step = weight_.size();
  for (int64_t state = graph_->states - 1; state-- > 0;)
    for (uint32_t node = first_node_[state + 1]; node-- > first_node_[state];)
      for (uint32_t i = graph_->width(state); i-- > 0;) {
        --step;
        of_node_[node] = std::min(of_node_[node], weight_[step] + of_node_[target_[step]]);
      }
}

// Sums of weights must stay within what a Fixed holds.
void GraphSearch::expect_weights() const {
  double greatest = 0;
  for (size_t j = 0; j < models_; ++j) greatest += rows_[j].greatest();
  std::vector<double> most(graph_->states, 0);  // of the paths to each state, in magnitude
  for (int64_t arc = 0; arc < graph_->arcs(); ++arc) {
    if (!possible(own_[arc])) continue;
    double& reached = most[graph_->targets[arc]];
    reached = std::max(reached, most[source_[arc]] + std::fabs(static_cast<double>(own_[arc])) + greatest);
  }
  const double longest = *std::max_element(most.begin(), most.end());
  if (longest > static_cast<double>(kImpossible / 4))
    throw std::invalid_argument("cost: expected paths of at most " +
                                std::to_string(kImpossible / 4 / static_cast<Fixed>(kFixedOne)) +
                                " nats, got one of up to " + std::to_string(longest / kFixedOne));
}

GraphPaths GraphSearch::search(int paths, size_t most) {
  GraphPaths out;
  tree_.clear();
  queue_.clear();
  reached_.clear();
  opened_.clear();
  children_.clear();
  slot_.assign(layers_.size(), 0);
  of_one_.assign(layers_.size(), {0, 0});
  reach({0, 0, start_, kNone, 0});
  uint32_t parent = open(kNone, 0);
  if (!next(parent)) return out;
  for (;;) {
    const Offer taken = tree_.offers[parent];
    if (static_cast<int>(out.cost.size()) + 1 < paths && next(parent)) queue_.push(tree_.offers[parent].cost, parent);
    if (taken.rank) {
      follow(parent, taken.rank);
      parent = open(parent, taken.rank);
      if (reached_.size() > most) refuse_size(most);
      // Completions are exact, so the best child of a prefix costs the same: nothing queued precedes it.
      if (!next(parent)) throw std::runtime_error("graph: a completion is lost");
      continue;
    }
    out.cost.push_back(static_cast<double>(taken.cost) / kFixedOne);
    spell(opened_[parent], out);
    if (static_cast<int>(out.cost.size()) == paths || !queue_.size()) return out;
    parent = queue_.top();
    queue_.pop();
  }
}

// Adds a node to those that the newest prefix reaches, or the cheaper way to it.
void GraphSearch::reach(Reached one) {
  uint32_t& slot = slot_[one.node];
  const uint32_t first = opened_.empty() ? 0 : opened_.back().end;
  if (slot <= first || slot > reached_.size() || reached_[slot - 1].node != one.node) {
    reached_.push_back(one);
    slot = static_cast<uint32_t>(reached_.size());
    heap_.push_back(slot - 1);
    std::push_heap(heap_.begin(), heap_.end(), later());
  } else if (one.weight < reached_[slot - 1].weight) {
    reached_[slot - 1] = one;
  }
}

// Makes a prefix of the nodes that were reached: follows the arcs that read nothing, in topological order, which is
// that of nodes, so that each is followed once; then finds the children.
uint32_t GraphSearch::open(uint32_t parent, uint32_t rank) {
  const uint32_t prefix = tree_.add(parent, rank, parent == kNone ? 0 : tree_.prefixes[parent].depth + 1);
  const auto begin = opened_.empty() ? 0 : opened_.back().end;
  const size_t first = children_.size();
  const Reached one = reached_[begin];
  const bool alone = heap_.size() == 1;
  Opened opened{begin, begin + 1, alone ? one.weight : 0, alone ? of_one_[one.node] : Children{0, 0}};
  if (opened.children.end) {
    heap_.clear();
  } else {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), later());
      const uint32_t at = heap_.back();
      heap_.pop_back();
      offer(at, opened.weight);
    }
    opened.end = static_cast<uint32_t>(reached_.size());
    opened.children = sorted_children(first);
    if (alone && opened.end == begin + 1) of_one_[one.node] = opened.children;
  }
  opened_.push_back(opened);
  return prefix;
}

// Adds what follows a node that the newest prefix reached: children, less a weight, and nodes.
void GraphSearch::offer(uint32_t at, Fixed weight) {
  const Reached one = reached_[at];
  const int64_t first = graph_->first[one.state];
  const size_t step = first_step(one);
  if (one.state + 1 == graph_->states) children_.emplace_back(one.weight - weight, 0u, 0u);
  for (uint32_t i = 0; i < graph_->width(one.state); ++i) {
    const Fixed more = weight_[step + i] + of_node_[target_[step + i]];
    if (!possible(more)) continue;
    if (graph_->tokens[first + i] < 0)
      reach(behind(at, first + i));
    else
      children_.emplace_back(one.weight - weight + more, static_cast<uint32_t>(graph_->tokens[first + i]) + 1, 0u);
  }
}

// Those from `begin` on, each once.
GraphSearch::Children GraphSearch::sorted_children(size_t begin) {
  const auto first = children_.begin() + begin;
  const auto by_rank = [](const Offer& a, const Offer& b) {
    return std::tie(a.rank, a.cost) < std::tie(b.rank, b.cost);
  };
  const auto same = [](const Offer& a, const Offer& b) { return a.rank == b.rank; };
  const auto cheaper = [](const Offer& a, const Offer& b) {
    return std::tie(a.cost, a.rank) < std::tie(b.cost, b.rank);
  };
  if (!std::is_sorted(first, children_.end(), by_rank)) std::sort(first, children_.end(), by_rank);
  children_.erase(std::unique(first, children_.end(), same), children_.end());
  std::sort(children_.begin() + begin, children_.end(), cheaper);
  return {begin, children_.size()};
}

// Reaches what a token leads to from the nodes of a prefix.
void GraphSearch::follow(uint32_t prefix, uint32_t rank) {
  for (uint32_t at = opened_[prefix].begin; at < opened_[prefix].end; ++at)
    for (int64_t arc = graph_->first[reached_[at].state]; arc < graph_->first[reached_[at].state + 1]; ++arc)
      if (static_cast<uint32_t>(graph_->tokens[arc] + 1) == rank)
        if (const Reached one = behind(at, arc); possible(one.weight)) reach(one);
}

GraphSearch::Reached GraphSearch::behind(uint32_t at, int64_t arc) const {
  const Reached& from = reached_[at];
  const size_t step = first_step(from) + (arc - graph_->first[from.state]);
  return {target_[step], static_cast<uint32_t>(graph_->targets[arc]),
          std::min(from.weight + weight_[step], kImpossible), at, arc};
}

// Offers the best child of a prefix that was not offered yet; false if there is none.
bool GraphSearch::next(uint32_t prefix) {
  Opened& opened = opened_[prefix];
  if (opened.children.begin == opened.children.end) return false;
  tree_.offers[prefix] = children_[opened.children.begin++];
  tree_.offers[prefix].cost += opened.weight;
  return true;
}

// The cheapest path of a string that ends with a prefix.
void GraphSearch::spell(const Opened& opened, GraphPaths& out) const {
  const size_t begin = out.arcs.size();
  uint32_t at = opened.begin;
  while (reached_[at].state + 1 != graph_->states) ++at;  // one node stands for all ends
  for (; reached_[at].from != kNone; at = reached_[at].from) out.arcs.push_back(reached_[at].arc);
  std::reverse(out.arcs.begin() + begin, out.arcs.end());
  out.first.push_back(static_cast<int64_t>(out.arcs.size()));
}

}  // namespace rescore
