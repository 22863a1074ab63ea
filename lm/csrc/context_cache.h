// The states that a search looked at last, decoded.
//
// A search comes back to few states again and again, the short contexts that others back off to above all, and reading
// one costs some steps in two Elias-Fano sequences.
#pragma once

#include <array>
#include <vector>

#include "automaton.h"

namespace rescore {

class ContextCache {
 public:
  void clear() { state_.fill(kRoot); }

  // Precondition: a state other than the root; the same automaton since `clear`.
  const Automaton::Context& at(const Automaton& lm, uint32_t state) {
    const size_t place = state * 0x9E3779B1u >> (32 - kBits);
    if (state_[place] != state) {
      context_[place] = lm.context(state);
      state_[place] = state;
    }
    return context_[place];
  }

 private:
  static constexpr int kBits = 9;
  std::array<uint32_t, 1 << kBits> state_{};  // kRoot: none
  std::array<Automaton::Context, 1 << kBits> context_;
};

}  // namespace rescore
