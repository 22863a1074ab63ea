#include "lazy_composition.h"

#include <algorithm>

#include "lanes.h"

namespace rescore {

uint32_t LazyComposition::start(const Automaton& lm, const Slots& slots, int width, const Suffixes& start) {
  lm_ = &lm;
  slots_ = &slots;
  stride_ = (width + kMatchStep - 1) / kMatchStep * kMatchStep;
  roots_ = 0;
  nodes_.resize(kMaxSlots);
  read_ = kMaxSlots;
  expect_room(kMaxSlots);
  uint32_t node = root(0);
  for (uint32_t length = 1; length <= start.length; ++length) node = add(length, start.index[length], node, 0);
  return node;
}

void LazyComposition::expect_room(size_t nodes) {
  if (cost_.size() >= nodes * stride_) return;
  cost_.resize(2 * nodes * stride_);
  for (auto* row : {&arc_, &target_}) row->resize(cost_.size());
}

// Prefixes grow token by token, so the roots of all earlier slots exist.
uint32_t LazyComposition::root(int t) {
  if (t < roots_) return t;
  roots_ = t + 1;
  const Slot& slot = (*slots_)[t];
  nodes_[t] = {slot.tokens.all(), 0, 0, kNoNode, static_cast<uint32_t>(t)};
  const size_t row = t * stride_;
  for (int i = 0; i < slot.count; ++i) cost_[row + i] = lm_->cost(0, slot.tokens[i]);
  std::fill_n(cost_.begin() + row + slot.count, stride_ - slot.count, 0);
  std::copy_n(slot.tokens.begin(), slot.count, &arc_[row]);
  std::fill_n(&target_[row], stride_, kNoNode);
  return t;
}

uint32_t LazyComposition::add(uint32_t length, uint32_t index, uint32_t backoff, int slot) {
  lm_->prefetch_state(length, index);
  nodes_.push_back({0, length, index, backoff, static_cast<uint32_t>(slot)});
  return static_cast<uint32_t>(nodes_.size() - 1);
}

void LazyComposition::find_lists() {
  expect_room(nodes_.size());
  lists_.resize(nodes_.size() - read_);
  for (size_t n = read_; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    lists_[n - read_] = lm_->list(node.length, node.index);
    lm_->prefetch_list(node.length, lists_[n - read_], slot(node).tokens);
  }
}

void LazyComposition::match_lists() {
  for (size_t n = read_; n < nodes_.size(); ++n) {
    Node& node = nodes_[n];
    const Automaton::List& list = lists_[n - read_];
    uint32_t* arc = &arc_[n * stride_];
    // A context has arcs only for tokens that have arcs in the next shorter one.
    node.tokens =
        lm_->match(node.length, list, slot(node).tokens, nodes_[node.backoff].tokens, MatchRow{arc, list.begin});
    for (uint64_t left = node.tokens; left; left &= left - 1)
      lm_->prefetch_arc(node.length, arc[__builtin_ctzll(left)]);
    std::fill_n(&target_[n * stride_], stride_, kNoNode);
  }
}

// A row is the shorter context's plus the backoff cost, overwritten by the node's own arcs.
void LazyComposition::read_costs() {
  for (size_t n = read_; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    const StateLevel& level = lm_->level(node.length);
    const double backoff = level.contexts.backoff(node.index);
    const double* shorter = &cost_[node.backoff * stride_];
    double* cost = &cost_[n * stride_];
    for (size_t i = 0; i < stride_; i += kWide) store(cost + i, load<Doubles>(shorter + i) + backoff);
    level.records.costs(&arc_[n * stride_], node.tokens, stride_, cost);
  }
  read_ = nodes_.size();
}

// If context and token together are a state, this is the only arc to it, and the state backs off to the target of the
// next shorter context's arc. Otherwise the arc itself leads to that target.
uint32_t LazyComposition::next(uint32_t at, int i) {
  while (!(nodes_[at].tokens >> i & 1)) at = nodes_[at].backoff;
  const size_t place = at * stride_ + i;
  if (target_[place] != kNoNode) return target_[place];
  const uint32_t length = nodes_[at].length, slot = nodes_[at].slot;
  uint32_t target = nodes_[at].backoff == kNoNode ? root(slot + 1) : next(nodes_[at].backoff, i);
  if (const uint32_t state = lm_->longer(length, arc_[place], (*slots_)[slot].tokens[i]); state != kRoot)
    target = add(length + 1, state - lm_->level(length + 1).first_state, target, slot + 1);
  target_[place] = target;
  return target;
}

}  // namespace rescore
