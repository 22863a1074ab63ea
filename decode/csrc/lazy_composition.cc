#include "lazy_composition.h"

#include <algorithm>

namespace rescore {

uint32_t LazyComposition::start(const Automaton& lm, const Slots& slots, size_t width, uint32_t state) {
  lm_ = &lm;
  slots_ = &slots;
  width_ = width;
  for (auto* room : {&arc_, &place_, &code_}) room->resize(kMaxOrder * width + kMatchRoom);
  nodes_.clear();
  roots_.fill(kNoNode);
  return enter(state);
}

uint32_t LazyComposition::enter(uint32_t state) {
  if (state == kRoot) return root(0);
  const uint32_t length = lm_->length(state), index = state - lm_->level(length).first_state;
  const uint32_t backoff = enter(lm_->backoff(state));
  return add(length, index, backoff, 0);
}

uint32_t LazyComposition::root(int slot) {
  if (roots_[slot] == kNoNode) {
    roots_[slot] = add(0, 0, kNoNode, slot);
    read_root(roots_[slot]);
  }
  return roots_[slot];
}

uint32_t LazyComposition::add(uint32_t length, uint32_t index, uint32_t backoff, int slot) {
  if (length) lm_->prefetch_state(length, index);
  nodes_.push_back({{}, 0, length, index, backoff, static_cast<uint16_t>(slot), false});
  const size_t room = nodes_.size() * width_;
  if (cost_.size() < room) {
    cost_.resize(2 * room);
    arcs_.resize(2 * room);
  }
  return static_cast<uint32_t>(nodes_.size() - 1);
}

void LazyComposition::read_root(uint32_t at) {
  Node& node = nodes_[at];
  const Slot& slot = (*slots_)[node.slot];
  const size_t row = at * width_;
  for (int i = 0; i < slot.count; ++i) {
    cost_[row + i] = lm_->cost(0, slot.tokens[i]);
    arcs_[row + i] = {slot.tokens[i], kNoNode};
  }
  node.tokens = slot.tokens.all();
  node.read = true;
}

// Each step is taken for all the contexts that the node backs off to before the next: their reads do not wait for each other.
void LazyComposition::read(uint32_t at) {
  std::array<uint32_t, kMaxOrder> unread;
  int count = 0;
  for (uint32_t node = at; !nodes_[node].read; node = nodes_[node].backoff) {
    lm_->prefetch_begin(nodes_[node].length, nodes_[node].index);
    unread[count++] = node;
  }
  for (int n = count; n--;) find_list(nodes_[unread[n]]);
  std::array<size_t, kMaxOrder> end;
  size_t found = 0;
  for (int n = count; n--; end[n] = found) found = match(nodes_[unread[n]], found);
  size_t one = 0;
  for (int n = count; n--;) {
    const CostColumn& cost = lm_->level(nodes_[unread[n]].length).cost;
    for (; one < end[n]; ++one) code_[one] = cost.code(arc_[one]);
  }
  one = 0;
  for (int n = count; n--; one = end[n]) weigh(unread[n], one, end[n]);
}

void LazyComposition::find_list(Node& node) {
  node.list = lm_->list(node.length, node.index);
  lm_->prefetch_list(node.length, node.list, (*slots_)[node.slot].tokens);
}

// Appends what a node's list has of the slot's tokens to the `found` before.
size_t LazyComposition::match(Node& node, size_t found) {
  // A context has arcs only for tokens for which the next shorter one has arcs.
  const uint64_t wanted = nodes_[node.backoff].tokens;
  if (!wanted) return found;
  node.tokens = lm_->match(node.length, node.list, (*slots_)[node.slot].tokens, wanted, {&arc_[found], &place_[found]});
  const size_t end = found + count_ones(node.tokens);
  for (; found < end; ++found) lm_->prefetch_arc(node.length, arc_[found]);
  return end;
}

// The row of a node: that of the shorter context at the backoff cost, with its own arcs in their places.
void LazyComposition::weigh(uint32_t at, size_t first, size_t end) {
  Node& node = nodes_[at];
  const StateLevel& level = lm_->level(node.length);
  const double backoff = level.backoff[node.index];
  const double* shorter = &cost_[node.backoff * width_];
  double* cost = &cost_[at * width_];
  Arc* arcs = &arcs_[at * width_];
  for (int i = 0, size = (*slots_)[node.slot].count; i < size; ++i) cost[i] = shorter[i] + backoff;
  for (; first < end; ++first) {
    cost[place_[first]] = level.cost.cost(code_[first]);
    arcs[place_[first]] = {arc_[first], kNoNode};
  }
  node.read = true;
}

// If context and token are a state together, the arc is the only one to it, and the state backs off to where the arc of the
// next shorter context leads; else the arc itself leads there.
uint32_t LazyComposition::next(uint32_t at, int i) {
  while (!(nodes_[at].tokens >> i & 1)) at = nodes_[at].backoff;
  const size_t place = at * width_ + i;
  if (arcs_[place].target != kNoNode) return arcs_[place].target;
  const Node node = nodes_[at];
  uint32_t target = node.backoff == kNoNode ? root(node.slot + 1) : next(node.backoff, i);
  if (node.length + 1 < lm_->order) {
    const uint32_t arc = arcs_[place].arc;
    const Automaton::Ending ending = lm_->ending(node.length + 1, (*slots_)[node.slot].tokens[i]);
    if (lm_->extends(node.length, arc, ending)) target = add(node.length + 1, lm_->extension(node.length, arc, ending), target, node.slot + 1);
  }
  arcs_[place].target = target;
  return target;
}

}  // namespace rescore
