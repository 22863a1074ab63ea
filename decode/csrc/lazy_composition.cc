#include "lazy_composition.h"

#include <algorithm>

namespace rescore {

uint32_t LazyComposition::start(const Automaton& lm, const Slots& slots, size_t width, uint32_t state) {
  lm_ = &lm;
  slots_ = &slots;
  width_ = width;
  matches_.resize(kMaxOrder * width + 1);
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
  std::array<Match*, kMaxOrder> end;
  Match* match = matches_.data();
  for (int n = count; n--; end[n] = match) match = this->match(nodes_[unread[n]], match);
  Match* one = matches_.data();
  for (int n = count; n--;) {
    const Level& level = lm_->level(nodes_[unread[n]].length);
    for (; one < end[n]; ++one) one->code = level.cost.code(one->arc - level.first_arc);
  }
  one = matches_.data();
  for (int n = count; n--; one = end[n]) weigh(unread[n], one, end[n]);
}

void LazyComposition::find_list(Node& node) {
  node.arcs = lm_->arcs(node.length, node.index);
  lm_->prefetch_list(node.length, node.index, node.arcs, (*slots_)[node.slot].tokens);
}

// Appends what a node's list has of the slot's tokens.
LazyComposition::Match* LazyComposition::match(Node& node, Match* match) {
  // A context has arcs only for tokens for which the next shorter one has arcs.
  if (!nodes_[node.backoff].tokens) return match;
  const Slot& slot = (*slots_)[node.slot];
  Match* first = match;
  uint64_t found = 0;
  const auto sink = [&](bool here, int i, uint64_t arc) {
    const uint64_t is_new = here & ~(found >> (i & 63));  // twice in the list of a damaged model
    *match = {arc, i, 0};
    match += is_new;
    found |= is_new << (i & 63);
  };
  lm_->match(node.length, node.index, node.arcs, slot.tokens, sink);
  node.tokens = found;
  for (; first < match; ++first) lm_->prefetch_arc(node.length, first->arc);
  return match;
}

// The row of a node: that of the shorter context at the backoff cost, with its own arcs in their places.
void LazyComposition::weigh(uint32_t at, const Match* first, const Match* end) {
  Node& node = nodes_[at];
  const Level& level = lm_->level(node.length);
  const double backoff = level.backoff[node.index];
  const double* shorter = &cost_[node.backoff * width_];
  double* cost = &cost_[at * width_];
  Arc* arcs = &arcs_[at * width_];
  for (int i = 0, size = (*slots_)[node.slot].count; i < size; ++i) cost[i] = shorter[i] + backoff;
  for (; first < end; ++first) {
    cost[first->i] = level.cost.cost(first->code);
    arcs[first->i] = {first->arc, kNoNode};
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
  const uint32_t extension = lm_->extension(node.length, arcs_[place].arc, (*slots_)[node.slot].tokens[i]);
  if (extension != Automaton::kNoState) target = add(node.length + 1, extension, target, node.slot + 1);
  arcs_[place].target = target;
  return target;
}

}  // namespace rescore
