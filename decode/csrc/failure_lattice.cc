#include "failure_lattice.h"

#include <algorithm>

namespace rescore {

// A layer is read in steps, each for all nodes, or all of a length, before the next one: the memory that a step needs has
// been asked for by the one before, and the loops are long and simple, which processors foretell well.
void Composer::run(const Automaton& lm, const Sausage& sausage, const Slots& slots, uint32_t start, Weighting weighting, bool ends, FailureLattice& out) {
  lm_ = &lm;
  out_ = &out;
  out.nodes.clear();
  out.arcs.clear();
  places_.clear();
  const int length = sausage.length();
  begin_ = 0;
  enter(start);
  out.start = out.nodes.size() - 1;
  for (int t = 0; t < length; ++t) {
    const Slot& slot = slots[t];
    end_ = out.nodes.size();
    out.first[t] = begin_;
    match_root(slot);
    nodes_of_[1] = begin_ + 1;
    for (uint32_t l = 1; l < lm.order; ++l) nodes_of_[l + 1] = match_length(l, nodes_of_[l], slot);
    expect_transitions(out.arcs.size(), kMaxTransitions, t);
    std::array<Fixed, kMaxCandidates> head{};
    if (weighting.heads)
      for (int i = 0; i < slot.count; ++i) head[i] = to_fixed(sausage.slot_cost(t)[slot.rank[i]]);
    for (uint32_t l = 0; l < lm.order; ++l) {
      weigh(l, weighting.alpha[t], head.data());
      weigh_failures(l, weighting.alpha[t]);
    }
    add({0, 0}, kNone);  // the next layer's root, or what stands for all nodes after the last slot
    if (t + 1 < length || ends)
      for (uint32_t l = 0; l < lm.order; ++l) lead_on(l, slot);
    begin_ = end_;
  }
  end_ = out.nodes.size();
  out.first[length] = begin_;
  out.first[length + 1] = end_;
  if (!ends) return;
  for (uint32_t node = begin_ + 1; node < end_; ++node)
    out.nodes[node].backoff_weight = to_fixed(weighting.alpha[length - 1] * static_cast<double>(lm.level(places_[node].length).backoff[places_[node].index]));
}

// The first layer: a state and all that it backs off to.
void Composer::enter(uint32_t state) {
  if (state != kRoot) enter(lm_->backoff(state));
  const uint32_t length = lm_->length(state);
  add({length, static_cast<uint32_t>(state - lm_->level(length).first_state)}, state == kRoot ? kNone : out_->nodes.size() - 1);
}

void Composer::add(Place place, uint32_t backoff) {
  if (place.length) lm_->prefetch_state(place.length, place.index);
  places_.push_back(place);
  out_->nodes.push_back({0, 0, backoff, kImpossible});
}

void Composer::match_root(const Slot& slot) {
  nodes_of_[0] = begin_;
  arcs_of_[0] = out_->arcs.size();
  arcs_of_[1] = arcs_of_[0] + slot.count;
  const size_t most = static_cast<size_t>(end_ - begin_) * slot.count + 1;
  if (matches_.size() < most) matches_.resize(most);
  out_->nodes[begin_].tokens = slot.tokens.all();
  out_->nodes[begin_].first_arc = arcs_of_[0];
  for (int i = 0; i < slot.count; ++i) matches_[i] = {slot.tokens[i], begin_, i};
  out_->arcs.resize(arcs_of_[1]);
}

// The nodes of one length, from `first` on; returns the first one behind them.
uint32_t Composer::match_length(uint32_t length, uint32_t first, const Slot& slot) {
  uint32_t end = first;
  while (end < end_ && places_[end].length == length) ++end;
  find_lists(length, first, end, slot);
  match_lists(length, slot);
  return end;
}

// A context has arcs only for tokens for which the next shorter one has arcs: where that has none, nothing is read.
void Composer::find_lists(uint32_t length, uint32_t first, uint32_t end, const Slot& slot) {
  if (lists_.size() < end - first + 1) lists_.resize(end - first + 1);
  size_t count = 0;
  for (uint32_t node = first; node < end; ++node) {
    lists_[count].node = node;
    count += out_->nodes[out_->nodes[node].backoff].tokens != 0;
    lm_->prefetch_begin(length, places_[node].index);
  }
  found_ = count;
  for (size_t n = 0; n < count; ++n) {
    List& list = lists_[n];
    list.arcs = lm_->arcs(length, places_[list.node].index);
    lm_->prefetch_list(length, places_[list.node].index, list.arcs, slot.tokens);
  }
}

void Composer::match_lists(uint32_t length, const Slot& slot) {
  Match* const all = matches_.data() - arcs_of_[0];  // by number of arc
  Match* match = all + arcs_of_[length];
  for (size_t n = 0; n < found_; ++n) {
    const auto& [node, arcs] = lists_[n];
    FailureLattice::Node& own = out_->nodes[node];
    const uint64_t wanted = out_->nodes[own.backoff].tokens;
    uint64_t found = 0;
    own.first_arc = match - all;
    const auto sink = [&, node = node](bool is_in, int i, uint64_t arc) {
      const uint64_t here = is_in & (wanted & ~found) >> (i & 63);  // damaged lists may have a token twice
      *match = {arc, node, i};
      match += here;
      found |= here << (i & 63);
    };
    lm_->match(length, places_[node].index, arcs, slot.tokens, sink);
    own.tokens = found;
  }
  arcs_of_[length + 1] = match - all;
  out_->arcs.resize(arcs_of_[length + 1]);
  for (Match* one = all + arcs_of_[length]; one < match; ++one) lm_->prefetch_arc(length, one->arc);
}

void Composer::weigh(uint32_t length, double alpha, const Fixed* head) {
  const uint32_t first = arcs_of_[length], count = arcs_of_[length + 1] - first;
  const Match* match = &matches_[first - arcs_of_[0]];
  FailureLattice::Arc* arc = out_->arcs.data() + first;
  const auto take = [&](uint32_t n, float cost) {
    const Fixed weight = head[match[n].token] + to_fixed(alpha * static_cast<double>(cost));
    arc[n] = {std::min(weight, kImpossible), end_};
  };
  if (!length) {
    for (uint32_t n = 0; n < count; ++n) take(n, lm_->cost(match[n].arc));
    return;
  }
  const Level& level = lm_->level(length);
  if (codes_.size() < count) codes_.resize(count);
  for (uint32_t n = 0; n < count; ++n) codes_[n] = level.cost.code(match[n].arc - level.first_arc);
  for (uint32_t n = 0; n < count; ++n) take(n, level.cost.cost(codes_[n]));
}

void Composer::weigh_failures(uint32_t length, double alpha) {
  if (!length) return;
  const uint32_t first = nodes_of_[length], count = nodes_of_[length + 1] - first;
  const CostColumn& backoff = lm_->level(length).backoff;
  if (codes_.size() < count) codes_.resize(count);
  for (uint32_t n = 0; n < count; ++n) codes_[n] = backoff.code(places_[first + n].index);
  for (uint32_t n = 0; n < count; ++n) out_->nodes[first + n].backoff_weight = to_fixed(alpha * static_cast<double>(backoff.cost(codes_[n])));
}

// Where the arcs lead. If context and token are a state together, the arc is the only one to it, and the state backs
// off to where the arc of the next shorter context leads; else the arc itself leads there.
void Composer::lead_on(uint32_t length, const Slot& slot) {
  for (uint32_t arc = arcs_of_[length]; arc < arcs_of_[length + 1]; ++arc) {
    const Match& match = matches_[arc - arcs_of_[0]];
    uint32_t target = end_;
    if (length) target = out_->arcs[out_->arc(out_->nodes[out_->nodes[match.node].backoff], match.token)].target;
    const uint32_t extension = lm_->extension(length, match.arc, slot.tokens[match.token]);
    if (extension != Automaton::kNoState) {
      add({length + 1, extension}, target);
      target = out_->nodes.size() - 1;
    }
    out_->arcs[arc].target = target;
  }
}

}  // namespace rescore
