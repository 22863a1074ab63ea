// Prefixes of a best-first search; each offers its best child that was not taken yet.
#pragma once

#include <cstdint>
#include <vector>

#include "nodes.h"
#include "weight.h"

namespace rescore {

struct Prefix {
  uint32_t parent;  // kNone: the empty prefix
  uint32_t rank;    // of the last token among its slot's candidates
  int depth;
};

// A child of a prefix.
struct Offer {
  Fixed cost;
  uint32_t rank;
  uint32_t place;  // index of further data of the search
};

struct PrefixTree {
  std::vector<Prefix> prefixes;
  std::vector<Offer> offers;  // parallel to prefixes; valid for those with known children

  void clear() {
    prefixes.clear();
    offers.clear();
  }
  uint32_t add(uint32_t parent, uint32_t rank, int depth) {
    prefixes.push_back({parent, rank, depth});
    offers.push_back({});
    return static_cast<uint32_t>(prefixes.size() - 1);
  }

  // Whether the ranks of a's offer precede those of b's, compared from the first slot on.
  bool ranks_before(uint32_t a, uint32_t b) const {
    uint32_t rank_a = offers[a].rank, rank_b = offers[b].rank;
    const auto climb = [this](uint32_t& at, uint32_t& rank) {
      rank = prefixes[at].rank;
      at = prefixes[at].parent;
    };
    while (prefixes[a].depth > prefixes[b].depth) climb(a, rank_a);
    while (prefixes[b].depth > prefixes[a].depth) climb(b, rank_b);
    while (a != b) {
      climb(a, rank_a);
      climb(b, rank_b);
    }
    return rank_a < rank_b;
  }
};

}  // namespace rescore
