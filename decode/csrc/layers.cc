#include "layers.h"

#include <algorithm>

namespace rescore {

void Layers::clear(int components) {
  components_ = components;
  states_.clear();
  size_ = 0;
}

// Takes out what was put in: a layer may have far fewer nodes than places.
void Layers::begin() {
  first_ = size();
  if (table_.empty()) grow();
  for (const uint32_t at : taken_) table_[at] = kNone;
  taken_.clear();
}

uint32_t Layers::add(const States& states, size_t at) {
  states_.insert(states_.end(), states.begin(), states.begin() + components_);
  if (2 * (++size_ - first_) > table_.size())
    grow();
  else
    put(size_ - 1, at);
  return size_ - 1;
}

void Layers::grow() {
  table_.assign(std::max<size_t>(256, table_.size() * 2), kNone);
  mask_ = table_.size() - 1;
  taken_.clear();
  for (uint32_t node = first_; node < size_; ++node) put(node, probe(states(node)));
}

}  // namespace rescore
