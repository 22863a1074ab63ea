#include "walk.h"

namespace rescore {

uint32_t walk(const Automaton& lm, uint32_t state, const int32_t* tokens, size_t count, Walk out) {
  for (size_t i = 0; i < count; ++i) {
    const Taken taken = lm.take(state, tokens[i]);
    out.cost[i] = static_cast<float>(taken.cost);
    out.order[i] = static_cast<uint8_t>(lm.length(taken.state) + 1);
    out.state[i] = state;
    state = lm.next(taken.state, taken.arc, tokens[i]);
  }
  return state;
}

}  // namespace rescore
