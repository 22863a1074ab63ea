// The Python class of the automaton: the native automaton and the arrays that it views.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "arrays.h"
#include "automaton.h"

namespace rescore {

class Model {
 public:
  // kept: what keeps the arrays of `sections` alive.
  Model(const Sections& sections, uint32_t order, uint32_t vocab_size, uint32_t next_bits,
        std::shared_ptr<const void> kept)
      : kept_(std::move(kept)), automaton_(std::make_unique<Automaton>(sections, order, vocab_size, next_bits)) {}

  const Automaton& lm() const { return *automaton_; }

 private:
  std::shared_ptr<const void> kept_;  // keeps the arrays alive
  std::unique_ptr<Automaton> automaton_;
};

inline void expect_state(const Automaton& lm, uint64_t state) {
  if (state >= lm.num_states)
    throw std::invalid_argument("state: expected a state below " + std::to_string(lm.num_states) + ", got " +
                                std::to_string(state));
}

// The suffixes of a history row [size]; shorter histories are padded with -1 in front.
inline Suffixes suffixes_of_row(const Automaton& lm, const int32_t* row, size_t size) {
  while (size && *row == -1) ++row, --size;
  return lm.suffixes(row, size);
}

}  // namespace rescore
