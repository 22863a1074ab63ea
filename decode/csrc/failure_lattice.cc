#include "failure_lattice.h"

#include <algorithm>

namespace rescore {

// A layer is read in steps, each for all of its nodes before the next one, so that the memory that a step needs has been
// asked for by the one before.
void Composer::run(const Automaton& lm, const Sausage& sausage, const Slots& slots, uint32_t start, Weighting weighting, bool ends, FailureLattice& out) {
  lm_ = &lm;
  out_ = &out;
  out.nodes.clear();
  out.arcs.clear();
  places_.clear();
  const int length = sausage.length();
  out.first[0] = 0;
  enter(start);
  out.start = out.nodes.size() - 1;
  for (int t = 0; t < length; ++t) {
    const Slot& slot = slots[t];
    const uint32_t first = out.first[t], end = out.first[t + 1] = out.nodes.size();
    std::array<Fixed, kMaxCandidates> head{};
    if (weighting.heads)
      for (int i = 0; i < slot.count; ++i) head[i] = to_fixed(sausage.slot_cost(t)[slot.rank[i]]);
    find_lists(slot, first, end);
    match(slot, first, end);
    expect_transitions(out.arcs.size(), kMaxTransitions, t);
    read_codes(first, end);
    weigh(first, end, weighting.alpha[t], head.data());
    add({0, 0}, kNone);  // the next layer's root, or what stands for all nodes after the last slot
    if (t + 1 < length || ends) lead_on(first, end, slot, end);
  }
  const uint32_t first = out.first[length], end = out.first[length + 1] = out.nodes.size();
  for (uint32_t node = first + 1; node < end; ++node)
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

void Composer::find_lists(const Slot& slot, uint32_t first, uint32_t end) {
  lists_.assign(1, {{0, lm_->vocab_size}, nullptr});  // the root's
  for (uint32_t node = first + 1; node < end; ++node) lm_->prefetch_begin(places_[node].length, places_[node].index);
  for (uint32_t node = first + 1; node < end; ++node) {
    const Place place = places_[node];
    const Automaton::Arcs arcs = lm_->arcs(place.length, place.index);
    const DenseList* dense = place.length == 1 ? lm_->dense(place.index, arcs) : nullptr;
    lists_.push_back({arcs, dense});
    if (dense)
      for (const uint32_t token : slot.tokens) dense->prefetch(token);
    else
      lm_->prefetch_tokens(arcs);
  }
}

void Composer::match(const Slot& slot, uint32_t first, uint32_t end) {
  const size_t arcs = out_->arcs.size(), most = static_cast<size_t>(end - first) * slot.count;
  if (matches_.size() < most) matches_.resize(most);
  uint64_t* match = matches_.data();
  for (uint32_t node = first; node < end; ++node) {
    FailureLattice::Node& own = out_->nodes[node];
    const auto& [list, dense] = lists_[node - first];
    own.first_arc = arcs + (match - matches_.data());
    own.tokens = dense ? dense->match(slot.tokens, list.begin, match) : lm_->match(list, slot.tokens, match);
    for (uint64_t left = own.tokens; left; left &= left - 1) lm_->prefetch_arc(places_[node].length, *match++);
  }
  out_->arcs.resize(arcs + (match - matches_.data()), {kImpossible, end});
}

void Composer::read_codes(uint32_t first, uint32_t end) {
  codes_.clear();
  const uint64_t* match = matches_.data();
  for (uint32_t node = first; node < end; ++node) {
    const auto [length, index] = places_[node];
    for (int left = count_ones(out_->nodes[node].tokens); left; --left) codes_.push_back(lm_->cost_code(length, *match++));
    codes_.push_back(length ? lm_->level(length).backoff.code(index) : 0);
  }
}

void Composer::weigh(uint32_t first, uint32_t end, double alpha, const Fixed* head) {
  const uint32_t* code = codes_.data();
  FailureLattice::Arc* arc = &out_->arcs[out_->nodes[first].first_arc];
  for (uint32_t node = first; node < end; ++node) {
    FailureLattice::Node& own = out_->nodes[node];
    const uint32_t length = places_[node].length;
    for (uint64_t left = own.tokens; left; left &= left - 1, ++arc)
      arc->weight = std::min(head[__builtin_ctzll(left)] + to_fixed(alpha * static_cast<double>(lm_->coded_cost(length, *code++))), kImpossible);
    if (length) own.backoff_weight = to_fixed(alpha * static_cast<double>(lm_->level(length).backoff.cost(*code)));
    ++code;
  }
}

// Where the arcs lead. If context and token are a state together, the arc is the only one to it, and the state backs
// off to where the arc of the next shorter context leads; else the arc itself leads there. root: of the next layer.
void Composer::lead_on(uint32_t first, uint32_t end, const Slot& slot, uint32_t root) {
  const uint64_t* match = matches_.data();
  uint32_t arc = out_->nodes[first].first_arc;
  for (uint32_t node = first; node < end; ++node) {
    const uint32_t length = places_[node].length;
    const FailureLattice::Node own = out_->nodes[node];
    const FailureLattice::Node shorter = out_->nodes[own.backoff == kNone ? node : own.backoff];
    if (own.tokens & ~shorter.tokens) corrupt("arc_token", *match);
    for (uint64_t left = own.tokens; left; left &= left - 1, ++arc, ++match) {
      const int token = __builtin_ctzll(left);
      uint32_t target = own.backoff == kNone ? root : out_->arcs[out_->arc(shorter, token)].target;
      const uint32_t extension = lm_->extension(length, *match, slot.tokens[token]);
      if (extension != Automaton::kNoState) {
        add({length + 1, extension}, target);
        target = out_->nodes.size() - 1;
      }
      out_->arcs[arc].target = target;
    }
  }
}

}  // namespace rescore
