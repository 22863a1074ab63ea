#include "context_model.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace rescore {

ContextModel::ContextModel(uint32_t order) : order_(order), table_(256, kNone) {
  nodes_.push_back({});
  nodes_[kEmpty].parent = nodes_[kEmpty].token = nodes_[kEmpty].link = kNone;
  nodes_[kEmpty].depth = 0;
}

uint64_t ContextModel::bytes() const {
  return sizeof *this + nodes_.capacity() * sizeof(Node) +
         4 * (table_.capacity() + by_count_.capacity() + place_.capacity() + first_of_.capacity());
}

uint32_t ContextModel::child(uint32_t parent, uint32_t token) const {
  const size_t mask = table_.size() - 1;
  for (size_t at = hash(parent, token) & mask;; at = (at + 1) & mask) {
    const uint32_t node = table_[at];
    if (node == kNone || (nodes_[node].parent == parent && nodes_[node].token == token)) return node;
  }
}

uint32_t ContextModel::child_or_new(uint32_t parent, uint32_t token) {
  if (const uint32_t node = child(parent, token); node != kNone) return node;
  if (nodes_.size() == kNone) throw std::length_error("the context model is full");
  if (2 * nodes_.size() >= table_.size()) grow();
  const uint32_t made = static_cast<uint32_t>(nodes_.size());
  Node node{};
  node.parent = parent;
  node.token = token;
  node.depth = nodes_[parent].depth + 1;
  node.first_child = kNone;
  node.sibling = nodes_[parent].first_child;
  nodes_.push_back(node);
  nodes_[parent].first_child = made;
  ++nodes_[parent].types;
  const size_t mask = table_.size() - 1;
  size_t at = hash(parent, token) & mask;
  while (table_[at] != kNone) at = (at + 1) & mask;
  table_[at] = made;
  return made;
}

void ContextModel::grow() {
  table_.assign(2 * table_.size(), kNone);
  const size_t mask = table_.size() - 1;
  for (uint32_t node = 1; node < nodes_.size(); ++node) {
    size_t at = hash(nodes_[node].parent, nodes_[node].token) & mask;
    while (table_[at] != kNone) at = (at + 1) & mask;
    table_[at] = node;
  }
}

void ContextModel::extend(uint32_t token) {
  uint32_t shorter = kNone;  // the node of the same tokens but the first
  std::array<uint32_t, kMaxOrder> now{};
  for (uint32_t length = 0; length <= longest_; ++length) {
    const uint32_t parent = active_[length];
    const uint32_t node = child_or_new(parent, token);
    nodes_[node].link = length ? shorter : kEmpty;
    ++nodes_[node].count;
    ++nodes_[parent].followed;
    if (length + 1 < order_) now[length + 1] = node;
    shorter = node;
  }
  const uint32_t alone = child(kEmpty, token);
  rank(alone, nodes_[alone].count);
  active_ = now;
  if (longest_ + 1 < order_) ++longest_;
  greatest_ = std::max(greatest_, token);
  ++tokens_;
}

// Tokens that came equally often stand together: one that came once more changes places with the first of its kind.
void ContextModel::rank(uint32_t node, uint32_t count) {
  if (place_.size() <= node) place_.resize(node + 1, kNone);
  if (first_of_.size() <= count) first_of_.resize(count + 1, 0);
  if (count == 1) {
    place_[node] = static_cast<uint32_t>(by_count_.size());
    by_count_.push_back(nodes_[node].token);
    return;
  }
  const uint32_t from = place_[node], to = first_of_[count - 1]++;
  std::swap(by_count_[from], by_count_[to]);
  place_[child(kEmpty, by_count_[from])] = from;
  place_[node] = to;
}

uint32_t ContextModel::step(uint32_t state, uint32_t token) const {
  for (;; state = nodes_[state].link) {
    const uint32_t node = child(state, token);
    if (node != kNone) return nodes_[node].depth < order_ ? node : nodes_[node].link;
    if (state == kEmpty) return kEmpty;
  }
}

ContextModel::Mixture ContextModel::mixture(uint32_t state, const double* strength) const {
  Mixture found;
  for (;; state = nodes_[state].link) {
    const Node& node = nodes_[state];
    if (node.followed) {
      const double other = strength[node.depth] * node.types, total = node.followed + other;
      found.parts[found.size++] = {state, found.rest / total};
      found.rest *= other / total;
    }
    if (state == kEmpty) return found;
  }
}

}  // namespace rescore
