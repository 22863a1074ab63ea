// Numbers of nodes and prefixes, and the limit of a composition's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace rescore {

constexpr uint32_t kNone = UINT32_MAX;               // no node, no prefix
constexpr size_t kMaxTransitions = size_t{1} << 26;  // per composition: 1 GB

inline void expect_transitions(size_t transitions, size_t most, int t) {
  if (transitions > most)
    throw std::length_error("the composition has more than " + std::to_string(most) + " transitions at slot " +
                            std::to_string(t) + "; use a smaller top-k or fewer models");
}

}  // namespace rescore
