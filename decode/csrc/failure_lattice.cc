#include "failure_lattice.h"

#include <algorithm>

namespace rescore {
namespace {

// Nodes read together: enough for their reads to overlap, few enough for their workspace to stay in the cache.
constexpr uint32_t kTogether = 384;

}  // namespace

void Composer::run(const Automaton& lm, const Sausage& sausage, const Slots& slots, const Suffixes& start,
                   Weighting weighting, size_t most, FailureLattice& out) {
  lm_ = &lm;
  slots_ = &slots;
  layers_ = sausage.length();
  width_ = sausage.width;
  most_ = most;
  start_ = start;
  out_ = &out;
  for (int t = 0; t < layers_; ++t) {
    alpha_[t] = weighting.alpha[t] * kFixedOne;
    for (int i = 0; i < slots[t].count; ++i)
      head_[t * kMaxCandidates + i] = weighting.heads ? to_fixed(sausage.slot_cost(t)[slots[t].rank[i]]) : 0;
  }
  // A root per layer; the last one stands for all nodes after the last slot.
  out.nodes.assign(layers_ + 1, {0, 0, kNone, kImpossible});
  states_.assign(layers_ + 1, 0);
  for (int t = 0; t <= layers_ + 1; ++t) out.begin[0][t].node = t;
  out.arcs.clear();
  out.lengths = lm.order;
  out.start = 0;
  for (uint32_t l = 0; l < lm.order; ++l) read_length(l);
}

// Contexts of one length depend only on the slots and on shorter contexts. They are therefore read together, whatever
// their layer, in steps: each step runs for some hundreds of them and prefetches the memory of the next step. The loops
// are long and simple, so branches are well predicted.
void Composer::read_length(uint32_t length) {
  begin_length(length);
  const auto& begin = out_->begin[length];
  Part part{length, begin[0].node, begin[0].node, begin[0].arc, 0};
  while ((part.first = part.end) < begin[layers_].node) {
    part.end = std::min(part.first + kTogether, begin[layers_].node);
    part.first_arc = out_->arcs.size();
    part.arcs = 0;
    expect_room(static_cast<size_t>(part.end - part.first) * width_);
    if (length) {
      find_lists(part);
      match_lists(part);
    } else {
      match_roots(part);
    }
    expect_transitions(part.first_arc + part.arcs, most_, arc_layer_);
    out_->arcs.resize(part.first_arc + part.arcs);
    weigh(part);
    if (length) weigh_failures(part);
    if (length + 1 < lm_->order) add_longer_contexts(part);
  }
  end_length(length);
}

void Composer::begin_length(uint32_t length) {
  arc_layer_ = node_layer_ = 0;
  out_->begin[length][0].arc = out_->arcs.size();
  if (length + 1 == lm_->order) return;
  for (int t = 0; t < layers_ - 1; ++t)
    for (int i = 0; i < (*slots_)[t].count; ++i)
      ending_[t * kMaxCandidates + i] = lm_->ending(length + 1, (*slots_)[t].tokens[i]);
  out_->begin[length + 1][0].node = out_->nodes.size();
  // The first layer: the start state and all that it backs off to.
  if (length + 1 > start_.length) return;
  states_.push_back(start_.index[length + 1]);
  out_->nodes.push_back({0, 0, out_->start, kImpossible});
  out_->start = out_->nodes.size() - 1;
}

void Composer::end_length(uint32_t length) {
  auto& begin = out_->begin[length];
  while (arc_layer_ <= layers_) begin[++arc_layer_].arc = out_->arcs.size();
  if (length + 1 < lm_->order)
    while (node_layer_ <= layers_) out_->begin[length + 1][++node_layer_].node = out_->nodes.size();
}

void Composer::expect_room(size_t arcs) {
  for (auto* room : {&arc_, &place_, &node_, &longer_})
    if (room->size() < arcs + kMatchStep) room->resize(arcs + kMatchStep);
}

// A context has arcs only for tokens that have arcs in the next shorter context; if there are none, nothing is read.
void Composer::find_lists(const Part& part) {
  if (lists_.size() < kTogether + 1) lists_.resize(kTogether + 1);
  for (uint32_t node = part.first; node < part.end; ++node) lm_->prefetch_state(part.length, states_[node]);
  size_t count = 0;
  for (uint32_t node = part.first; node < part.end; ++node) {
    lists_[count].node = node;
    count += out_->nodes[out_->nodes[node].backoff].tokens != 0;
  }
  lists_[count].node = kNone;
  const auto& begin = out_->begin[part.length];
  int t = arc_layer_;
  for (size_t n = 0; n < count; ++n) {
    auto& [node, list] = lists_[n];
    while (node >= begin[t + 1].node) ++t;
    list = lm_->list(part.length, states_[node]);
    lm_->prefetch_list(part.length, list, (*slots_)[t].tokens);
  }
}

void Composer::match_lists(Part& part) {
  auto& begin = out_->begin[part.length];
  for (const NodeList* one = lists_.data(); one->node < part.end; ++one) {
    while (one->node >= begin[arc_layer_ + 1].node) begin[++arc_layer_].arc = part.first_arc + part.arcs;
    const Slot& slot = (*slots_)[arc_layer_];
    FailureLattice::Node& own = out_->nodes[one->node];
    own.first_arc = part.first_arc + part.arcs;
    const PackedMatches matches{&arc_[part.arcs], &place_[part.arcs], one->list.begin,
                                static_cast<uint32_t>(arc_layer_ * kMaxCandidates)};
    own.tokens = lm_->match(part.length, one->list, slot.tokens, out_->nodes[own.backoff].tokens, matches);
    // Always the maximal number, so that no loop depends on the actual one.
    std::fill_n(&node_[part.arcs], kMatchStep, one->node);
    if (slot.count > static_cast<int>(kMatchStep))
      std::fill_n(&node_[part.arcs + kMatchStep], slot.count - kMatchStep, one->node);
    part.arcs += count_ones(own.tokens);
  }
  for (uint32_t n = 0; n < part.arcs; ++n) lm_->prefetch_arc(part.length, arc_[n]);
}

void Composer::match_roots(Part& part) {
  for (uint32_t t = part.first; t < part.end; ++t) {
    const Slot& slot = (*slots_)[t];
    out_->begin[0][t].arc = out_->nodes[t].first_arc = part.first_arc + part.arcs;
    out_->nodes[t].tokens = slot.tokens.all();
    for (int i = 0; i < slot.count; ++i, ++part.arcs) {
      arc_[part.arcs] = slot.tokens[i];
      place_[part.arcs] = t * kMaxCandidates + i;
      node_[part.arcs] = t;
    }
  }
  arc_layer_ = part.end - 1;
}

void Composer::weigh(const Part& part) {
  const ArcRecords& records = lm_->level(part.length).records;
  FailureLattice::Arc* arc = &out_->arcs[part.first_arc];
  for (uint32_t n = 0; n < part.arcs; ++n) {
    const uint32_t t = place_[n] / kMaxCandidates, i = place_[n] % kMaxCandidates;
    arc[n] = {head_[place_[n]] + round_weight(alpha_[t] * records.cost(arc_[n])),
              part.length ? behind(node_[n], i) : t + 1};
  }
}

void Composer::weigh_failures(const Part& part) {
  const ContextBlocks& contexts = lm_->level(part.length).contexts;
  int t = 0;
  for (uint32_t node = part.first; node < part.end; ++node) {
    while (node >= out_->begin[part.length][t + 1].node) ++t;
    out_->nodes[node].backoff_weight = round_weight(alpha_[t] * contexts.backoff(states_[node]));
  }
}

// Targets of arcs that differ from those of the next shorter context: if context and token together are a state, this
// is the only arc to it, and the state backs off to the shorter context's target.
void Composer::add_longer_contexts(const Part& part) {
  const uint32_t end = (layers_ - 1) * kMaxCandidates, first = out_->begin[part.length][0].node;
  uint32_t count = 0;
  for (uint32_t n = 0; n < part.arcs; ++n) {
    longer_[count] = n;
    count += place_[n] < end && lm_->extends(part.length, arc_[n], ending_[place_[n]]);
  }
  auto& begin = out_->begin[part.length + 1];
  uint32_t node = out_->nodes.size();
  out_->nodes.resize(node + count);
  states_.resize(node + count);
  for (uint32_t i = 0; i < count; ++i, ++node) {
    const uint32_t n = longer_[i];
    const int layer = place_[n] / kMaxCandidates + 1;
    while (node_layer_ < layer) begin[++node_layer_].node = node;
    uint32_t& target = out_->arcs[part.first_arc + n].target;
    if (target < first) lm_->corrupt_arc(part.length, arc_[n]);  // the state lacks its suffix
    states_[node] = lm_->extension(part.length, arc_[n], ending_[place_[n]]);
    out_->nodes[node] = {0, 0, target, kImpossible};
    target = node;
  }
}

}  // namespace rescore
