#include "walk.h"

namespace rescore {
namespace {

// The number of tokens of a state's context: how often it can be backed off from.
uint8_t length(const Automaton& lm, uint32_t state) {
  uint8_t found = 0;
  for (; state != kRoot; state = lm.backoff(state))
    if (++found >= lm.order)
      throw CorruptModel("n-gram model: a context is longer than its order, " + std::to_string(lm.order) +
                         ", allows; the file is damaged, check it with verify=True");
  return found;
}

}  // namespace

uint32_t walk(const Automaton& lm, uint32_t state, const int32_t* tokens, size_t count, Walk out) {
  for (size_t i = 0; i < count; ++i) {
    uint8_t context = length(lm, state);
    uint32_t found = state;
    for (; found != kRoot && !lm.has_arc(found, tokens[i]); found = lm.backoff(found)) --context;
    const Step taken = lm.step(state, tokens[i]);
    out.cost[i] = static_cast<float>(taken.cost);
    out.order[i] = context + 1;
    out.state[i] = state;
    state = taken.next;
  }
  return state;
}

}  // namespace rescore
