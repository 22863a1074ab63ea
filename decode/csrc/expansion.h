// What the candidates of a slot cost from given states of the models.
#pragma once

#include <array>
#include <cstdint>

#include "match_cache.h"
#include "models.h"
#include "sausage.h"
#include "slot.h"

namespace rescore {

// One for each model.
using Caches = std::array<MatchCache, kMaxModels>;

// What each candidate of a slot costs from given states, and the arcs that it takes, by rank. The states after it
// are looked up where they are needed: a search goes on from few of the candidates.
struct Expansion {
  std::array<double, kMaxCandidates> cost;                           // nats
  std::array<std::array<uint64_t, kMaxCandidates>, kMaxModels> arc;  // by model, then by rank

  TakenArcs arcs(int rank, int models) const {
    TakenArcs taken;
    for (int j = 0; j < models; ++j) taken[j] = arc[j][rank];
    return taken;
  }
};

// cost = head cost + sum over models of alpha * (-ln p), under failure semantics.
void expand(const Models& models, const Sausage& sausage, const Slot& slot, int t, const States& states, Caches& caches,
            Expansion& out);

}  // namespace rescore
