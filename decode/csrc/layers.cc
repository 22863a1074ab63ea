#include "layers.h"

#include <algorithm>

namespace rescore {

void Layers::clear(int models) {
  models_ = models;
  states_.clear();
  first_.clear();
  seen_arcs_.resize(static_cast<size_t>(std::max(models, 1)) << kSeenBits);
}

void Layers::begin() {
  first_.push_back(size());
  table_.assign(256, kNone);
  mask_ = table_.size() - 1;
  seen_node_.assign(size_t{1} << kSeenBits, kNone);
}

uint32_t Layers::add(const States& states) {
  const uint32_t node = size();
  states_.push_back(states);
  if (2 * (states_.size() - first_.back()) > table_.size()) {
    grow();
  } else {
    table_[probe(states)] = node;
  }
  return node;
}

void Layers::grow() {
  table_.assign(table_.size() * 2, kNone);
  mask_ = table_.size() - 1;
  for (uint32_t node = first_.back(); node < states_.size(); ++node) {
    size_t at = hash(states_[node]);
    while (table_[at] != kNone) at = (at + 1) & mask_;
    table_[at] = node;
  }
}

}  // namespace rescore
