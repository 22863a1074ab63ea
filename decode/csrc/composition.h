// A sausage composed with n-gram automata, slot by slot.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "automaton.h"
#include "match_cache.h"
#include "sausage.h"

namespace rescore {

constexpr int kMaxModels = 8;
constexpr uint32_t kNone = UINT32_MAX;  // no node, no prefix
constexpr size_t kMaxTransitions = size_t{1} << 26;  // of a composition; 1 GB of them

// Weights along a path are added as integers, in units of 2^-32 nats: sums are then exact, so equal
// costs are equal whatever the order in which they were added, and ties are broken by rank alone.
using Fixed = int64_t;
constexpr double kFixedOne = 4294967296.0;
constexpr Fixed kImpossible = INT64_MAX / 4;
// Nats. So the weight of any path, with its failure arcs, is within kImpossible / 4; and a sum with kImpossible in it, whatever
// else is in it, is told from those by half of kImpossible.
constexpr double kMaxWeight = 1 << 19;
inline bool possible(Fixed weight) { return weight < kImpossible / 2; }

// Of a weight in units of Fixed, which may be any number.
inline Fixed round_weight(double weight) { return std::fabs(weight) <= kMaxWeight * kFixedOne ? std::llrint(weight) : kImpossible; }
inline Fixed to_fixed(double nats) { return round_weight(nats * kFixedOne); }
inline float to_cost(Fixed weight) { return static_cast<float>(static_cast<double>(weight) / kFixedOne); }

inline void expect_transitions(size_t transitions, size_t most, int t) {
  if (transitions > most)
    throw std::length_error("the composition has more than " + std::to_string(most) + " transitions at slot " +
                            std::to_string(t) + "; ask for a smaller top-k or fewer models");
}

// The states of a history in every model.
using States = std::array<uint32_t, kMaxModels>;

// The arcs that a token takes in every model.
using TakenArcs = std::array<uint64_t, kMaxModels>;

struct Models {
  std::array<const Automaton*, kMaxModels> lm;
  int count = 0;
  int slots = 0;
  const double* alpha = nullptr;  // [models, slots]

  int size() const { return count; }
  const double* weights(int j) const { return alpha + static_cast<size_t>(j) * slots; }
  double weight(int j, int t) const { return weights(j)[t]; }
  States next(const States& state, const TakenArcs& arc, uint32_t token) const {
    States states;
    for (int j = 0; j < size(); ++j) states[j] = lm[j]->next(state[j], arc[j], token);
    return states;
  }
};

// One for each model.
using Caches = std::array<MatchCache, kMaxModels>;

// What each candidate of a slot costs from given states, and the arcs that it takes, by rank. The states after it
// are looked up where they are needed: a search goes on from few of the candidates.
struct Expansion {
  std::array<double, kMaxCandidates> cost;  // nats
  std::array<std::array<uint64_t, kMaxCandidates>, kMaxModels> arc;  // by model, then by rank

  TakenArcs arcs(int rank, int models) const {
    TakenArcs taken;
    for (int j = 0; j < models; ++j) taken[j] = arc[j][rank];
    return taken;
  }
};

// cost = head cost + sum over models of alpha * (-ln p), under failure semantics.
void expand(const Models& models, const Sausage& sausage, const Slot& slot, int t, const States& states,
            Caches& caches, Expansion& out);

}  // namespace rescore
