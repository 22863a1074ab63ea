#include "automaton.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rescore {
namespace {

// The first index in [low, high) whose token is not below `token`. Doubling steps first: consecutive
// calls with ascending tokens walk a long list in few reads and a short one in order.
template <typename Token>
uint64_t gallop(const Token* tokens, uint64_t low, uint64_t high, uint32_t token) {
  uint64_t step = 1;
  uint64_t bound = low;
  while (bound < high && tokens[bound] < token) {
    low = bound + 1;
    bound += step;
    step *= 2;
  }
  return std::lower_bound(tokens + low, tokens + std::min(bound, high), token) - tokens;
}

template <typename Token>
uint64_t match_in(const Automaton& lm, const Token* arc_token, Automaton::Arcs arcs, const uint32_t* tokens,
                  uint64_t wanted, double paid, uint32_t* next, double* cost) {
  uint64_t found = 0;
  uint64_t at = arcs.begin;
  for (uint64_t left = wanted; left && at < arcs.end; left &= left - 1) {
    const int i = __builtin_ctzll(left);
    at = gallop(arc_token, at, arcs.end, tokens[i]);
    if (at < arcs.end && arc_token[at] == tokens[i]) {
      next[i] = lm.next(at);
      cost[i] = paid + lm.arc_cost[at];
      found |= uint64_t{1} << i;
    }
  }
  return found;
}

template <typename Token>
uint64_t find(const Token* arc_token, Automaton::Arcs arcs, uint32_t token) {
  const Token* end = arc_token + arcs.end;
  const Token* at = std::lower_bound(arc_token + arcs.begin, end, token);
  return at != end && *at == token ? at - arc_token : arcs.end;
}

}  // namespace

void Automaton::corrupt(const char* array, uint64_t index) const {
  throw CorruptModel("n-gram model: " + std::string(array) + "[" + std::to_string(index) +
                     "] points outside the model; the file is damaged, check it with verify=True");
}

void Automaton::check_header() const {
  if (vocab_size == 0) throw std::invalid_argument("vocab_size: expected at least 1, got 0");
  if (order == 0) throw std::invalid_argument("order: expected at least 1, got 0");
  if (num_states == 0 || num_states > UINT32_MAX)
    throw std::invalid_argument("states: expected 1 to 2^32 - 1, got " + std::to_string(num_states));
  if (arc_begin[0] != 0 || arc_begin[1] != vocab_size || num_arcs < vocab_size)
    throw std::invalid_argument("arc_begin: expected the root's arcs to be one for each of the " +
                                std::to_string(vocab_size) + " tokens, got " + std::to_string(arc_begin[0]) + " to " +
                                std::to_string(arc_begin[1]) + " of " + std::to_string(num_arcs) + " arcs");
  if (arc_begin[num_states] != num_arcs)
    throw std::invalid_argument("arc_begin: expected its last entry to be the number of arcs, " +
                                std::to_string(num_arcs) + ", got " + std::to_string(arc_begin[num_states]));
  if (backoff_state[0] != kRoot)
    throw std::invalid_argument("backoff_state: expected the root, state 0, to back off to itself, got " +
                                std::to_string(backoff_state[0]));
}

void Automaton::check() const {
  check_header();
  const auto fail = [](const char* array, uint64_t index, const std::string& what) {
    throw std::invalid_argument(std::string(array) + "[" + std::to_string(index) + "]: " + what);
  };
  for (uint64_t state = 0; state < num_states; ++state) {
    if (arc_begin[state] > arc_begin[state + 1] || arc_begin[state + 1] > num_arcs)
      fail("arc_begin", state + 1, "expected offsets that ascend to " + std::to_string(num_arcs) + ", got " +
                                       std::to_string(arc_begin[state + 1]));
    if (state > 0 && backoff_state[state] >= state)
      fail("backoff_state", state, "expected a state below " + std::to_string(state) + ", got " +
                                       std::to_string(backoff_state[state]));
    if (!std::isfinite(backoff_cost[state])) fail("backoff_cost", state, "expected a finite cost");
    uint64_t before = UINT64_MAX;
    for (uint64_t arc = arc_begin[state]; arc < arc_begin[state + 1]; ++arc) {
      if (token(arc) >= vocab_size || (before != UINT64_MAX && token(arc) <= before))
        fail("arc_token", arc, "expected tokens that ascend below " + std::to_string(vocab_size) + " in state " +
                                   std::to_string(state) + ", got " + std::to_string(token(arc)));
      before = token(arc);
      if (arc_next[arc] >= num_states)
        fail("arc_next", arc, "expected a state below " + std::to_string(num_states) + ", got " +
                                  std::to_string(arc_next[arc]));
      if (!std::isfinite(arc_cost[arc])) fail("arc_cost", arc, "expected a finite cost");
    }
  }
}

bool Automaton::has_arc(uint32_t state, uint32_t token) const {
  const Arcs list = arcs(state);
  return (token16 ? find(token16, list, token) : find(token32, list, token)) != list.end;
}

Step Automaton::step(uint32_t state, uint32_t token) const {
  double paid = 0;
  for (; state != kRoot; state = backoff(state)) {
    const Arcs list = arcs(state);
    const uint64_t arc = token16 ? find(token16, list, token) : find(token32, list, token);
    if (arc != list.end) return {next(arc), paid + arc_cost[arc]};
    paid += backoff_cost[state];
  }
  return {next(token), paid + arc_cost[token]};
}

uint32_t Automaton::start(const int32_t* history, size_t length) const {
  const size_t context = std::min<size_t>(length, order - 1);
  uint32_t state = kRoot;
  for (size_t i = length - context; i < length; ++i) {
    if (history[i] < 0 || static_cast<uint32_t>(history[i]) >= vocab_size)
      throw std::out_of_range("history[" + std::to_string(i) + "]: expected a token id below the vocabulary size " +
                              std::to_string(vocab_size) + ", got " + std::to_string(history[i]));
    state = step(state, history[i]).next;
  }
  return state;
}

uint64_t Automaton::match_arcs(uint32_t state, const uint32_t* tokens, uint64_t wanted, double paid, uint32_t* next,
                               double* cost) const {
  if (state == kRoot) {
    for (uint64_t left = wanted; left; left &= left - 1) {
      const int i = __builtin_ctzll(left);
      next[i] = this->next(tokens[i]);
      cost[i] = paid + arc_cost[tokens[i]];
    }
    return wanted;
  }
  return token16 ? match_in(*this, token16, arcs(state), tokens, wanted, paid, next, cost)
                 : match_in(*this, token32, arcs(state), tokens, wanted, paid, next, cost);
}

void Automaton::match(uint32_t state, const uint32_t* tokens, int count, uint32_t* next, double* cost) const {
  uint64_t left = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  double paid = 0;
  while (left) {
    left &= ~match_arcs(state, tokens, left, paid, next, cost);
    if (!left) break;
    paid += backoff_cost[state];
    state = backoff(state);
  }
}

void Automaton::distribution(uint32_t state, float* cost) const {
  std::vector<bool> seen(vocab_size, false);
  double paid = 0;
  for (;; state = backoff(state)) {
    const Arcs list = arcs(state);
    for (uint64_t arc = list.begin; arc < list.end; ++arc) {
      const uint32_t token = checked_token(arc);
      if (!seen[token]) cost[token] = static_cast<float>(paid + arc_cost[arc]);
      seen[token] = true;
    }
    if (state == kRoot) break;
    paid += backoff_cost[state];
  }
}

const std::vector<uint32_t>& Automaton::by_unigram_cost() const {
  std::call_once(unigram_once_, [this] {
    unigram_order_.resize(vocab_size);
    std::iota(unigram_order_.begin(), unigram_order_.end(), 0u);
    // A NaN of a damaged file would leave no order at all.
    const auto cost = [this](uint32_t t) { return std::isnan(arc_cost[t]) ? INFINITY : arc_cost[t]; };
    std::stable_sort(unigram_order_.begin(), unigram_order_.end(),
                     [cost](uint32_t a, uint32_t b) { return cost(a) < cost(b); });
  });
  return unigram_order_;
}

}  // namespace rescore
