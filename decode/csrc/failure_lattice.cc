#include "failure_lattice.h"

#include <algorithm>

namespace rescore {

// A layer is read in steps, each for all nodes, or all of a length, before the next one, so that the memory that a step
// needs has been asked for by the one before.
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
    match(slot);
    expect_transitions(out.arcs.size(), kMaxTransitions, t);
    read_codes();
    std::array<Fixed, kMaxCandidates> head{};
    if (weighting.heads)
      for (int i = 0; i < slot.count; ++i) head[i] = to_fixed(sausage.slot_cost(t)[slot.rank[i]]);
    weigh(weighting.alpha[t], head.data());
    add({0, 0}, kNone);  // the next layer's root, or what stands for all nodes after the last slot
    if (t + 1 < length || ends) lead_on(slot);
    begin_ = end_;
  }
  end_ = out.nodes.size();
  out.first[length] = begin_;
  out.first[length + 1] = end_;
  if (!ends) return;
  read_codes();
  weigh(weighting.alpha[length - 1], nullptr);
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

void Composer::match(const Slot& slot) {
  const size_t most = static_cast<size_t>(end_ - begin_) * slot.count;
  if (matches_.size() < most) matches_.resize(most);
  match_root(slot);
  uint32_t node = begin_ + 1;
  for (uint32_t length = 1; length < lm_->order; ++length) node = match_length(length, node, slot);
}

void Composer::match_root(const Slot& slot) {
  out_->nodes[begin_].tokens = slot.tokens.all();
  out_->nodes[begin_].first_arc = out_->arcs.size();
  std::copy(slot.tokens.begin(), slot.tokens.end(), matches_.begin());
  out_->arcs.resize(out_->arcs.size() + slot.count);
}

// The nodes of one length, from `node` on; returns the first one behind them. A context has arcs only for tokens for which the
// next shorter one has arcs: where that has none, nothing is read.
uint32_t Composer::match_length(uint32_t length, uint32_t node, const Slot& slot) {
  const size_t first_arc = out_->nodes[begin_].first_arc;
  uint32_t arc = out_->arcs.size();
  lists_.clear();
  for (; node < end_ && places_[node].length == length; ++node) {
    if (!out_->nodes[out_->nodes[node].backoff].tokens) continue;
    lm_->prefetch_begin(length, places_[node].index);
    lists_.push_back({node, {}, nullptr});
  }
  for (List& list : lists_) {
    const uint32_t index = places_[list.node].index;
    list.arcs = lm_->arcs(length, index);
    if (length == 1) list.dense = lm_->dense(index, list.arcs);
    if (list.dense)
      for (const uint32_t token : slot.tokens) list.dense->prefetch(token);
    else
      lm_->prefetch_tokens(list.arcs);
  }
  for (const auto& [own, arcs, dense] : lists_) {
    FailureLattice::Node& from = out_->nodes[own];
    uint64_t* match = &matches_[arc - first_arc];
    from.first_arc = arc;
    from.tokens = dense ? dense->match(slot.tokens, arcs.begin, match) : lm_->match(arcs, slot.tokens, out_->nodes[from.backoff].tokens, match);
    for (uint64_t left = from.tokens; left; left &= left - 1, ++arc) lm_->prefetch_arc(length, *match++);
  }
  out_->arcs.resize(arc);
  return node;
}

void Composer::read_codes() {
  const size_t most = end_ - begin_ + out_->arcs.size() - out_->nodes[begin_].first_arc;
  if (codes_.size() < most) codes_.resize(most);
  uint32_t* code = codes_.data();
  const uint64_t* match = matches_.data();
  for (uint32_t node = begin_; node < end_; ++node) {
    const auto [length, index] = places_[node];
    *code++ = length ? lm_->level(length).backoff.code(index) : 0;
    for (int left = count_ones(out_->nodes[node].tokens); left; --left) *code++ = lm_->cost_code(length, *match++);
  }
}

void Composer::weigh(double alpha, const Fixed* head) {
  const uint32_t* code = codes_.data();
  FailureLattice::Arc* arc = &out_->arcs[out_->nodes[begin_].first_arc];
  for (uint32_t node = begin_; node < end_; ++node) {
    FailureLattice::Node& own = out_->nodes[node];
    const uint32_t length = places_[node].length;
    if (length) own.backoff_weight = to_fixed(alpha * static_cast<double>(lm_->level(length).backoff.cost(*code)));
    ++code;
    for (uint64_t left = own.tokens; left; left &= left - 1, ++arc)
      *arc = {std::min(head[__builtin_ctzll(left)] + to_fixed(alpha * static_cast<double>(lm_->coded_cost(length, *code++))), kImpossible), end_};
  }
}

// Where the arcs lead. If context and token are a state together, the arc is the only one to it, and the state backs
// off to where the arc of the next shorter context leads; else the arc itself leads there.
void Composer::lead_on(const Slot& slot) {
  const uint64_t* match = matches_.data();
  uint32_t arc = out_->nodes[begin_].first_arc;
  for (uint32_t node = begin_; node < end_; ++node) {
    const uint32_t length = places_[node].length;
    const FailureLattice::Node own = out_->nodes[node];
    if (!own.tokens) continue;
    const bool root = own.backoff == kNone;
    const FailureLattice::Node shorter = out_->nodes[root ? node : own.backoff];
    for (uint64_t left = own.tokens; left; left &= left - 1, ++arc, ++match) {
      const int token = __builtin_ctzll(left);
      uint32_t target = root ? end_ : out_->arcs[out_->arc(shorter, token)].target;
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
