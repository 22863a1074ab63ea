#include "layers.h"

namespace rescore {

void Layers::clear(int components) {
  components_ = components;
  states_.clear();
}

void Layers::begin() {
  first_ = size();
  table_.assign(256, kNone);
  mask_ = table_.size() - 1;
}

uint32_t Layers::add(const States& states) {
  const uint32_t node = size();
  states_.push_back(states);
  if (2 * (states_.size() - first_) > table_.size()) {
    grow();
  } else {
    table_[probe(states)] = node;
  }
  return node;
}

void Layers::grow() {
  table_.assign(table_.size() * 2, kNone);
  mask_ = table_.size() - 1;
  for (uint32_t node = first_; node < states_.size(); ++node) {
    size_t at = hash(states_[node]);
    while (table_[at] != kNone) at = (at + 1) & mask_;
    table_[at] = node;
  }
}

}  // namespace rescore
