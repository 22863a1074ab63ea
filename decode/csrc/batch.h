// A batch of lattices and the models that rescore it, as Python gives them.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "composition.h"
#include "model.h"

namespace rescore {

// The shapes of a batch of lattices with the models that rescore it, checked.
struct Batch {
  Models models;
  const int32_t* ids;
  const float* cost;
  const uint32_t* states;
  size_t rows, slots, width;

  Batch(const std::vector<const Model*>& lms, In<uint32_t, 2> states, In<int32_t, 3> ids, In<float, 3> cost, In<double, 2> alpha)
      : ids(ids.data()), cost(cost.data()), states(states.data()), rows(ids.shape(0)), slots(ids.shape(1)), width(ids.shape(2)) {
    expect_range("models", lms.size(), 0, kMaxModels);
    expect_range("slots T", slots, 1, kMaxSlots);
    expect_range("candidates K", width, 1, kMaxCandidates);
    expect_size("cost", cost.size(), ids.size());
    expect_size("states, of every model", states.shape(0), lms.size());
    if (!lms.empty()) expect_size("states, of every lattice", states.shape(1), rows);
    expect_size("alpha, of every model", alpha.shape(0), lms.size());
    if (!lms.empty()) expect_size("alpha, of every slot", alpha.shape(1), slots);
    models.slots = static_cast<int>(slots);
    models.alpha.assign(alpha.data(), alpha.data() + alpha.size());
    for (size_t j = 0; j < lms.size(); ++j) {
      if (!lms[j]) throw nb::type_error("models: expected automata, got None");
      models.lm.push_back(&lms[j]->lm());
      for (size_t b = 0; b < rows; ++b) expect_state(lms[j]->lm(), states.data()[j * rows + b]);
    }
  }

  Sausage sausage(int64_t b) const {
    const Sausage lattice{ids + b * slots * width, cost + b * slots * width, static_cast<int>(slots), static_cast<int>(width)};
    for (size_t i = 0; i < slots * width; ++i)
      for (const Automaton* lm : models.lm)
        if (lattice.ids[i] < -1 || (lattice.ids[i] >= 0 && static_cast<uint32_t>(lattice.ids[i]) >= lm->vocab_size))
          throw std::out_of_range("lattice " + std::to_string(b) + ", slot " + std::to_string(i / width) + ", rank " + std::to_string(i % width) +
                                  ": expected a token id below the model's vocabulary size " + std::to_string(lm->vocab_size) + ", got " +
                                  std::to_string(lattice.ids[i]));
    return lattice;
  }

  States start(int64_t b) const {
    States start{};
    for (int j = 0; j < models.size(); ++j) start[j] = states[j * rows + b];
    return start;
  }
};

}  // namespace rescore
