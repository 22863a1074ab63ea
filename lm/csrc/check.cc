// Checks that arrays hold the automaton of a closed backoff model in canonical order.
#include <cmath>

#include "automaton.h"

namespace rescore {
namespace {

[[noreturn]] void fail(const char* array, uint64_t index, const std::string& what) {
  throw std::invalid_argument(std::string(array) + "[" + std::to_string(index) + "]: " + what);
}

std::string below(uint64_t bound, uint64_t got) {
  return "below " + std::to_string(bound) + ", got " + std::to_string(got);
}

}  // namespace

class Check {
 public:
  explicit Check(const Automaton& lm) : lm_(lm) {}

  void run() {
    for (uint32_t token = 0; token < lm_.vocab_size; ++token)
      if (!std::isfinite(lm_.root_cost_[token])) fail("root_cost", token, "expected a finite cost");
    for (uint32_t l = 1; l < lm_.order; ++l) {
      sequences(l);
      tokens(l);
      costs(l);
    }
    if (lm_.order == 1) return;
    first_tokens_.clear();
    for (uint32_t token = 0; token < lm_.vocab_size; ++token)
      if (lm_.levels_[1].first[token] < lm_.levels_[1].first[token + 1]) first_tokens_.push_back(token);
    for (uint32_t l = 1; l < lm_.order; ++l) targets(l);
  }

 private:
  // Checks the sequences of one length, on which every look-up relies.
  void sequences(uint32_t l) const {
    const StateLevel& own = lm_.levels_[l];
    const std::string length = " of length " + std::to_string(l);
    uint64_t begin = 0;
    for (uint64_t index = 0; index < own.states; ++index) {
      const auto [from, to] = own.contexts.arcs(index);
      if (from != begin)
        fail("contexts", own.first_state + index,
             "expected the arcs of the states" + length + " to be contiguous, those of this one from " +
                 std::to_string(begin) + " on, got " + std::to_string(from));
      begin = to;
    }
    if (begin != own.arcs)
      fail("contexts", own.first_state,
           "expected the states" + length + " to have " + std::to_string(own.arcs) + " arcs in all, got " +
               std::to_string(begin));
    if (!own.shorter.well_formed())
      fail("backoff_state", own.first_state, "expected ascending states" + length + " - 1 in Elias-Fano form");
    if (own.first[0] != 0 || own.first[lm_.vocab_size] != own.states)
      fail("first_state", 0, "expected 0 to " + std::to_string(own.states) + " for the states" + length);
    for (uint32_t token = 0; token < lm_.vocab_size; ++token)
      if (own.first[token] > own.first[token + 1] || (l == 1 && own.first[token + 1] > own.first[token] + 1))
        fail("first_state", token, "expected ascending numbers, for length 1 by steps of at most 1");
  }

  void tokens(uint32_t l) const {
    const StateLevel& own = lm_.levels_[l];
    for (uint64_t index = 0; index < own.states; ++index) {
      const Automaton::Arcs list = lm_.arcs(l, index);
      int64_t before = -1;
      for (uint64_t arc = list.begin; arc < list.end; ++arc) {
        const int64_t token = lm_.token(arc);
        if (token <= before || token >= lm_.vocab_size)
          fail("arc_token", arc,
               "expected ascending tokens in state " + std::to_string(own.first_state + index) + ", " +
                   below(lm_.vocab_size, token));
        before = token;
      }
    }
  }

  void costs(uint32_t l) const {
    const StateLevel& own = lm_.levels_[l];
    if (!own.records.form().book_ascends()) fail("arc_book", l, "expected ascending costs");
    if (!own.contexts.form().book_ascends()) fail("backoff_book", l, "expected ascending costs");
    for (uint64_t i = 0; i < own.arcs; ++i)
      if (!std::isfinite(own.records.cost(i))) fail("arcs", own.first_arc + i, "expected a finite cost");
    for (uint64_t i = 0; i < own.states; ++i)
      if (!std::isfinite(own.contexts.backoff(i)))
        fail("contexts", own.first_state + i, "expected a finite backoff cost");
  }

  // Checks the arcs of the contexts h of length l. If there is an arc hw, there is an arc h'w; and if hw leads to the
  // state hw, the failure arc of this state leads to where h'w leads. Each state of length l + 1 is the target of
  // exactly one such arc. These states are ordered by their failure arc, then by the first token of h.
  void targets(uint32_t l) {
    const StateLevel& own = lm_.levels_[l];
    const bool extends = l + 1 < lm_.order;
    const uint64_t states = extends ? lm_.levels_[l + 1].states : 0;
    std::vector<uint32_t> first_tokens(states, UINT32_MAX);
    for (uint64_t index = 0; index < own.states; ++index) {
      const uint32_t state = own.first_state + index;
      const uint32_t suffix = lm_.backoff(state);
      Automaton::Arcs list = lm_.arcs(state), shorter = lm_.arcs(suffix);
      for (uint64_t arc = list.begin; arc < list.end; ++arc) {
        const uint32_t token = lm_.token(arc);
        const uint64_t without = suffix == kRoot ? token : lm_.find(shorter, token);
        if (without == shorter.end)
          fail("arc_token", arc,
               "expected token " + std::to_string(token) + " to have an arc in the next shorter context too");
        if (suffix != kRoot) shorter.begin = without;
        if (extends)
          enter(arc, longer(l, arc, token), lm_.next(suffix, without, token), l, first_tokens_[index], first_tokens);
      }
    }
    for (uint64_t x = 0; x < states; ++x) {
      const uint32_t state = lm_.levels_[l + 1].first_state + x;
      if (first_tokens[x] == UINT32_MAX) fail("contexts", state, "expected an arc that leads to this state");
      if (x && lm_.backoff(state) == lm_.backoff(state - 1) && first_tokens[x] <= first_tokens[x - 1])
        fail("backoff_state", state, "expected the states of one length in order of their contexts read backwards");
    }
    first_tokens_ = std::move(first_tokens);
  }

  void enter(uint64_t arc, uint32_t state, uint32_t suffix, uint32_t l, uint32_t first_token,
             std::vector<uint32_t>& first_tokens) const {
    if (state == kRoot) return;
    const uint64_t x = state - lm_.levels_[l + 1].first_state;
    if (lm_.backoff(state) != suffix)
      fail("arcs", arc,
           "expected a state that backs off to " + std::to_string(suffix) + ", got " + std::to_string(state));
    if (first_tokens[x] != UINT32_MAX)
      fail("arcs", arc, "expected one context to lead to state " + std::to_string(state) + ", got two");
    first_tokens[x] = first_token;
  }

  uint32_t longer(uint32_t l, uint64_t arc, uint32_t token) const {
    const uint32_t state = lm_.longer(l, arc - lm_.levels_[l].first_arc, token);
    const StateLevel& to = lm_.levels_[l + 1];
    const uint64_t x = state - to.first_state;
    if (state != kRoot && (x < to.first[token] || x >= to.first[token + 1]))
      fail("arcs", arc,
           "expected a state whose context ends in token " + std::to_string(token) + ", got " + std::to_string(state));
    return state;
  }

  const Automaton& lm_;
  std::vector<uint32_t> first_tokens_;  // of the contexts of the last checked length
};

void Automaton::check() const {
  try {
    Check(*this).run();
  } catch (const CorruptModel& error) {
    throw std::invalid_argument(error.what());
  }
}

}  // namespace rescore
