// Costs of a slot's candidates from given states of the models.
#pragma once

#include <array>
#include <cstdint>

#include "match_cache.h"
#include "models.h"
#include "sausage.h"
#include "slot.h"

namespace rescore {

// One per model.
using Caches = std::array<MatchCache, kMaxModels>;

// The cost of each candidate of a slot from given states, and the arcs taken, by rank. Next states are looked up on
// demand, since a search continues with few of the candidates.
struct Expansion {
  std::array<double, kMaxCandidates> cost;                           // nats
  std::array<std::array<uint64_t, kMaxCandidates>, kMaxModels> arc;  // by model, then by rank

  TakenArcs arcs(int rank, int models) const {
    TakenArcs taken;
    for (int j = 0; j < models; ++j) taken[j] = arc[j][rank];
    return taken;
  }
};

// cost = head cost + sum over models of alpha * (-ln p), under failure semantics; +inf if the acceptor excludes it.
void expand(const Models& models, const Sausage& sausage, const Slot& slot, int t, const States& states, Caches& caches,
            Expansion& out);

}  // namespace rescore
