// The nodes of a composition, slot by slot.
//
// A node is a tuple of model states that some prefix of so many tokens reaches; layer t holds those of t tokens, each
// once. Nodes are numbered in the order in which they were added, layers one after another.
#pragma once

#include <vector>

#include "composition.h"

namespace rescore {

class Layers {
 public:
  void clear(int models);

  // The layer after the newest, which `find` and `add` are then about.
  void begin();
  uint32_t find(const States& states) const { return table_[probe(states)]; }  // or kNone
  uint32_t add(const States& states);  // precondition: it is not there
  uint32_t intern(const States& states) {
    const uint32_t known = find(states);
    return known != kNone ? known : add(states);
  }

  // The node of the newest layer that arcs lead to. Most nodes of a layer back off to the same few, whose arcs come again.
  uint32_t target(const Models& models, const TakenArcs& arcs, uint32_t token) {
    uint64_t key = 0;
    for (int j = 0; j < models_; ++j) key = (key ^ arcs[j]) * kGolden;
    const size_t at = key >> (64 - kSeenBits);
    uint64_t* seen = &seen_arcs_[at * models_];
    if (seen_node_[at] != kNone && same(seen, arcs)) return seen_node_[at];
    for (int j = 0; j < models_; ++j) seen[j] = arcs[j];
    return seen_node_[at] = intern(models.next(arcs, token));
  }

  const States& states(uint32_t node) const { return states_[node]; }
  uint32_t size() const { return static_cast<uint32_t>(states_.size()); }
  // Where layer t begins; for the layer after the newest, where it would.
  uint32_t first(int t) const { return static_cast<size_t>(t) < first_.size() ? first_[t] : size(); }

 private:
  static constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;
  static constexpr int kSeenBits = 9;

  // A loop, as these are one or two numbers: a call of memcmp takes longer.
  template <typename A, typename B>
  bool same(const A& a, const B& b) const {
    for (int j = 0; j < models_; ++j)
      if (a[j] != b[j]) return false;
    return true;
  }
  size_t hash(const States& states) const {
    uint64_t key = 0;
    for (int j = 0; j < models_; ++j) key = (key ^ states[j]) * kGolden;
    return (key >> 32) & mask_;
  }
  size_t probe(const States& states) const {
    size_t at = hash(states);
    while (table_[at] != kNone && !same(states_[table_[at]], states)) at = (at + 1) & mask_;
    return at;
  }
  void grow();

  int models_ = 0;
  std::vector<States> states_;
  std::vector<uint32_t> first_;
  std::vector<uint32_t> table_;  // open addressing over the nodes of the newest layer
  size_t mask_ = 0;
  // The nodes of the newest layer that the arcs seen last lead to, by a hash of the arcs.
  std::vector<uint64_t> seen_arcs_;  // [1 << kSeenBits, models]
  std::vector<uint32_t> seen_node_;  // [1 << kSeenBits]
};

}  // namespace rescore
