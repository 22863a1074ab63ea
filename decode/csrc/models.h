// N-gram models with their weights, and tuples of their states.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "automaton.h"

namespace rescore {

constexpr int kMaxModels = 8;

// The state of a history in every model.
using States = std::array<uint32_t, kMaxModels>;

// The suffixes of a history that are states, for every model.
using Starts = std::array<Suffixes, kMaxModels>;

// The arc that a token takes in every model.
using TakenArcs = std::array<uint64_t, kMaxModels>;

struct Models {
  std::array<const Automaton*, kMaxModels> lm;
  int count = 0;
  int slots = 0;
  const double* alpha = nullptr;  // [models, slots]

  int size() const { return count; }
  const double* weights(int j) const { return alpha + static_cast<size_t>(j) * slots; }
  double weight(int j, int t) const { return weights(j)[t]; }
  States states(const Starts& starts) const {
    States states{};
    for (int j = 0; j < size(); ++j) states[j] = lm[j]->state(starts[j]);
    return states;
  }
  States next(const States& state, const TakenArcs& arc, uint32_t token) const {
    States states;
    for (int j = 0; j < size(); ++j) states[j] = lm[j]->next(state[j], arc[j], token);
    return states;
  }
};

}  // namespace rescore
