// The nodes of a composition, slot by slot.
//
// A node is a tuple of states that some prefix reaches; layer t holds those of t tokens, each once. Nodes are
// numbered in the order in which they were added, layer after layer.
#pragma once

#include <vector>

#include "models.h"
#include "nodes.h"

namespace rescore {

class Layers {
 public:
  void clear(int components);

  // Starts the next layer.
  void begin();
  // Adds to the newest layer; precondition: not contained yet.
  uint32_t add(const States& states) { return add(states, probe(states.data())); }
  uint32_t intern(const States& states) {
    const size_t at = probe(states.data());
    return table_[at] != kNone ? table_[at] : add(states, at);
  }

  // [components]; invalid after the next node was added.
  const uint32_t* states(uint32_t node) const { return states_.data() + size_t{node} * components_; }
  uint32_t size() const { return size_; }

 private:
  static constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

  // A loop over one or two numbers is faster than a call of memcmp.
  bool same(const uint32_t* a, const uint32_t* b) const {
    for (int j = 0; j < components_; ++j)
      if (a[j] != b[j]) return false;
    return true;
  }
  size_t hash(const uint32_t* states) const {
    uint64_t key = 0;
    for (int j = 0; j < components_; ++j) key = (key ^ states[j]) * kGolden;
    return (key >> 32) & mask_;
  }
  size_t probe(const uint32_t* states) const {
    size_t at = hash(states);
    while (table_[at] != kNone && !same(this->states(table_[at]), states)) at = (at + 1) & mask_;
    return at;
  }
  uint32_t add(const States& states, size_t at);
  void put(uint32_t node, size_t at) {
    table_[at] = node;
    taken_.push_back(static_cast<uint32_t>(at));
  }
  void grow();

  int components_ = 0;
  std::vector<uint32_t> states_;   // [size, components]
  uint32_t size_ = 0, first_ = 0;  // first_: of the newest layer
  std::vector<uint32_t> table_;    // open addressing over the nodes of the newest layer
  std::vector<uint32_t> taken_;    // places in it
  size_t mask_ = 0;
};

}  // namespace rescore
