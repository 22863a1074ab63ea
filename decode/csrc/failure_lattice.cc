#include "failure_lattice.h"

#include <algorithm>

namespace rescore {

void Composer::run(const Automaton& lm, const Sausage& sausage, const Slots& slots, uint32_t start, Weighting weighting, bool ends, FailureLattice& out) {
  lm_ = &lm;
  sausage_ = &sausage;
  out_ = &out;
  out.nodes.clear();
  out.arcs.clear();
  places_.clear();
  const int length = sausage.length();
  out.first[0] = 0;
  enter(start);
  out.start = out.nodes.size() - 1;
  for (int t = 0; t < length; ++t) {
    out.first[t + 1] = out.nodes.size();
    expand(t, slots[t], weighting, t + 1 == length && !ends);
  }
  out.first[length + 1] = out.nodes.size();
  if (ends) weigh_failures(weighting.alpha[length - 1], out.first[length], out.nodes.size());
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

// The arcs of the newest layer, and the layer behind it. Each step is taken for all nodes before the next one, so that
// the memory that one needs has been asked for by the one before.
void Composer::expand(int t, const Slot& slot, const Weighting& weighting, bool last) {
  const uint32_t first = out_->first[t], end = out_->first[t + 1];
  find_lists(first, end);
  match(slot, first, end);
  expect_transitions(out_->arcs.size() + matches_.size(), kMaxTransitions, t);
  weigh_failures(weighting.alpha[t], first, end);
  std::array<Fixed, kMaxCandidates> head{};
  if (weighting.heads)
    for (int i = 0; i < slot.count; ++i) head[i] = to_fixed(sausage_->slot_cost(t)[slot.rank[i]]);
  add({0, 0}, kNone);  // the root, or what stands for all nodes after the last slot
  for (const Match& found : matches_) {
    const double cost = lm_->cost(places_[found.node].length, found.arc);
    const Fixed weight = std::min(head[found.token] + to_fixed(weighting.alpha[t] * cost), kImpossible);
    out_->arcs.push_back({weight, last ? end : target(found, slot.tokens[found.token], end)});
  }
}

void Composer::find_lists(uint32_t first, uint32_t end) {
  lists_.clear();
  for (uint32_t node = first + 1; node < end; ++node) lm_->prefetch_begin(places_[node].length, places_[node].index);
  lists_.push_back({0, 0});  // the root's, which is not read
  for (uint32_t node = first + 1; node < end; ++node) {
    lists_.push_back(lm_->arcs(places_[node].length, places_[node].index));
    lm_->prefetch_tokens(lists_.back().begin);
  }
}

void Composer::match(const Slot& slot, uint32_t first, uint32_t end) {
  matches_.clear();
  const uint32_t arcs = out_->arcs.size();
  out_->nodes[first].tokens = slot.tokens.all();
  out_->nodes[first].first_arc = arcs;
  for (int i = 0; i < slot.count; ++i) matches_.push_back({first, i, slot.tokens[i]});
  for (uint32_t node = first + 1; node < end; ++node) {
    FailureLattice::Node& own = out_->nodes[node];
    const uint32_t length = places_[node].length;
    own.first_arc = arcs + matches_.size();
    lm_->match(lists_[node - first], slot.tokens, [&](int i, uint64_t arc) {
      lm_->prefetch_arc(length, arc);
      own.tokens |= uint64_t{1} << i;
      matches_.push_back({node, i, arc});
    });
  }
}

// The node after an arc. If context and token are a state together, the arc is the only one to it, and it backs off to
// where the arc of the next shorter context leads; else the arc itself leads there. root: of the next layer.
uint32_t Composer::target(const Match& found, uint32_t token, uint32_t root) {
  const FailureLattice::Node& from = out_->nodes[found.node];
  uint32_t shorter = root;
  if (from.backoff != kNone) {
    const FailureLattice::Node& next = out_->nodes[from.backoff];
    if (!(next.tokens >> found.token & 1)) corrupt("arc_token", found.arc);
    shorter = out_->arcs[out_->arc(next, found.token)].target;
  }
  const uint32_t length = places_[found.node].length, extension = lm_->extension(length, found.arc, token);
  if (extension == Automaton::kNoState) return shorter;
  add({length + 1, extension}, shorter);
  return out_->nodes.size() - 1;
}

void Composer::weigh_failures(double alpha, uint32_t first, uint32_t end) {
  for (uint32_t node = first + 1; node < end; ++node) {
    const Place& place = places_[node];
    out_->nodes[node].backoff_weight = to_fixed(alpha * static_cast<double>(lm_->level(place.length).backoff[place.index]));
  }
}

}  // namespace rescore
