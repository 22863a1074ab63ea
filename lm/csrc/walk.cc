#include "walk.h"

namespace rescore {

uint32_t walk(const Automaton& lm, uint32_t state, const int32_t* tokens, size_t count, Walk out) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t found = state;
    while (found != kRoot && !lm.has_arc(lm.arcs(found), tokens[i])) found = lm.backoff(found);
    const Step taken = lm.step(state, tokens[i]);
    out.cost[i] = static_cast<float>(taken.cost);
    out.order[i] = static_cast<uint8_t>(lm.length(found) + 1);
    out.state[i] = state;
    state = taken.next;
  }
  return state;
}

}  // namespace rescore
