// A batch of lattices and the models that rescore it, from Python's arrays.
#pragma once

#include <array>
#include <optional>
#include <stdexcept>
#include <string>

#include "model.h"
#include "models.h"

namespace rescore {

// The models of a call, from a Python list.
struct ModelList {
  std::array<const Model*, kMaxModels> model;
  size_t count = 0;

  explicit ModelList(const Model& only) : model{&only}, count(1) {}
  explicit ModelList(const nb::list& list) {
    expect_range("models", list.size(), 0, kMaxModels);
    for (const nb::handle item : list) {
      if (item.is_none()) throw nb::type_error("models: expected automata, got None");
      model[count++] = nb::cast<const Model*>(item);
    }
  }
};

// A batch of lattices with the models that rescore it; shapes are checked.
struct Batch {
  Models models;
  const int32_t* ids;
  const float* cost;
  const int32_t* histories;
  const int32_t* next;  // null: sausages
  size_t rows, slots, width, context;

  Batch(const ModelList& lms, In<int32_t, 2> histories, In<int32_t, 3> ids, In<float, 3> cost, In<double, 2> alpha,
        int fewest_slots = 1, const Acceptor* acceptor = nullptr, std::optional<In<int32_t, 3>> targets = {})
      : ids(ids.data()),
        cost(cost.data()),
        histories(histories.data()),
        next(targets ? targets->data() : nullptr),
        rows(ids.shape(0)),
        slots(ids.shape(1)),
        width(ids.shape(2)),
        context(histories.shape(1)) {
    expect_range(next ? "states" : "slots T", slots, fewest_slots, next ? kMaxStates : kMaxSlots);
    expect_range("candidates K", width, 1, kMaxCandidates);
    expect_size("cost", cost.size(), ids.size());
    if (targets) expect_size("next", targets->size(), ids.size());
    expect_size("histories, one per lattice", histories.shape(0), rows);
    expect_size("alpha, one row per model", alpha.shape(0), lms.count);
    if (lms.count) expect_size("alpha, one per slot", alpha.shape(1), slots);
    models.slots = static_cast<int>(slots);
    models.alpha = alpha.data();
    models.acceptor = acceptor;
    for (; models.count < static_cast<int>(lms.count); ++models.count)
      models.lm[models.count] = &lms.model[models.count]->lm();
  }

  Sausage sausage(int64_t b) const {
    const Sausage lattice{ids + b * slots * width, cost + b * slots * width, static_cast<int>(slots),
                          static_cast<int>(width), next ? next + b * slots * width : nullptr};
    for (size_t i = 0; next && i < slots * width; ++i)
      if (lattice.next[i] != -1 &&
          (lattice.next[i] <= static_cast<int64_t>(i / width) || lattice.next[i] >= static_cast<int64_t>(slots)))
        throw std::invalid_argument("lattice " + std::to_string(b) + ", state " + std::to_string(i / width) +
                                    ", rank " + std::to_string(i % width) + ": expected -1 or a later state below " +
                                    std::to_string(slots) + ", got " + std::to_string(lattice.next[i]));
    for (size_t i = 0; i < slots * width; ++i)
      for (int j = 0; j < models.size(); ++j)
        if (const uint32_t size = models.lm[j]->vocab_size;
            lattice.ids[i] < -1 || (lattice.ids[i] >= 0 && static_cast<uint32_t>(lattice.ids[i]) >= size))
          throw std::invalid_argument("lattice " + std::to_string(b) + ", slot " + std::to_string(i / width) +
                                      ", rank " + std::to_string(i % width) +
                                      ": expected a token id below the model's vocabulary size " +
                                      std::to_string(size) + ", got " + std::to_string(lattice.ids[i]));
    return lattice;
  }

  // The suffixes of a history that are states of a model.
  Suffixes suffixes(int64_t b, const Automaton& lm) const {
    try {
      return suffixes_of_row(lm, histories + b * context, context);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("lattice " + std::to_string(b) + ", " + error.what());
    }
  }
  Starts starts(int64_t b) const {
    Starts starts;
    for (int j = 0; j < models.size(); ++j) starts[j] = suffixes(b, *models.lm[j]);
    return starts;
  }
};

}  // namespace rescore
