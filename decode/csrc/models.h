// What is composed with a lattice: n-gram models with their weights, and an acceptor that bounds its paths.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "acceptor.h"
#include "automaton.h"

namespace rescore {

constexpr int kMaxModels = 8;

// The state of a history in every model, then the acceptor's.
using States = std::array<uint32_t, kMaxModels + 1>;

// The suffixes of a history that are states, for every model.
using Starts = std::array<Suffixes, kMaxModels>;

struct Models {
  std::array<const Automaton*, kMaxModels> lm;
  int count = 0;
  int slots = 0;
  const double* alpha = nullptr;  // [models, slots]
  const Acceptor* acceptor = nullptr;

  int size() const { return count; }
  const double* weights(int j) const { return alpha + static_cast<size_t>(j) * slots; }
  double weight(int j, int t) const { return weights(j)[t]; }
  int components() const { return count + (acceptor != nullptr); }  // of a tuple of states
};

}  // namespace rescore
