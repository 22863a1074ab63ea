#include "automaton.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rescore {
namespace {

// The first index in [low, high) whose token is not below `token`, by doubling steps first.
template <typename Tokens>
uint64_t gallop(Tokens tokens, uint64_t low, uint64_t high, uint32_t token) {
  uint64_t step = 1;
  uint64_t bound = low;
  while (bound < high && tokens[bound] < token) {
    low = bound + 1;
    bound += step;
    step *= 2;
  }
  for (bound = std::min(bound, high); low < bound;) {
    const uint64_t middle = low + (bound - low) / 2;
    if (tokens[middle] < token) {
      low = middle + 1;
    } else {
      bound = middle;
    }
  }
  return low;
}

}  // namespace

// Let the arcs of order n with token w, in their order, lead to states of length l. Such a state is w and the last
// l - 1 tokens of the arc's context, so read backwards it is w and the first l - 1 tokens of that context read
// backwards: as contexts ascend read backwards, these states do not descend. So the numbers x that they have among
// the states of length l can be cut where they pass a multiple of 2^b: x = k 2^b + low, where k is the greatest
// number such that the arc is not before jumps[k], the first arc with token w that leads to k 2^b or beyond. All the
// states that end in w lie together, from first[w] to first[w + 1] - 1, so k is one of first[w] >> b, ..,
// (first[w + 1] - 1) >> b. The first of these needs no jump: x is never less. Every other k has first[w] < k 2^b <
// first[w + 1], so jumps[k], one number whatever the token, is about this w; and they ascend in k, or are UINT32_MAX
// where no arc leads that far.
uint32_t Automaton::resolve(uint32_t from, uint32_t arc, Ending ending, uint32_t code, uint32_t length) const {
  if (ending.begin == ending.end) corrupt_arc(from, arc);
  const uint32_t* jumps = levels_[from].jumps[length];
  uint32_t k = ending.begin >> next_bits_;
  // The last k whose jump is not behind the arc, without branches on what is read.
  for (uint32_t left = ((ending.end - 1) >> next_bits_) - k, half; left; left -= half) {
    half = (left + 1) / 2;
    k = jumps[k + half] <= arc ? k + half : k;
  }
  const uint64_t index = static_cast<uint64_t>(k) << next_bits_ | (code & ((uint32_t{1} << next_bits_) - 1));
  if (index >= levels_[length].states) corrupt_arc(from, arc);
  return static_cast<uint32_t>(index);
}

uint32_t Automaton::next(uint64_t arc, uint32_t token) const {
  if (arc < vocab_size) {
    if (order == 1) return kRoot;
    const Ending own = ending(1, token);
    return own.begin < own.end ? static_cast<uint32_t>(levels_[1].first_state + own.begin) : kRoot;
  }
  const uint32_t code = this->code(arc), length = code >> next_bits_, from = arc_level(arc), number = static_cast<uint32_t>(arc - levels_[from].first_arc);
  if (!length) return kRoot;
  if (length > from + 1 || length >= order) corrupt_arc(from, number);
  return static_cast<uint32_t>(levels_[length].first_state + resolve(from, number, ending(length, token), code, length));
}

uint64_t Automaton::find(Arcs arcs, uint32_t token) const {
  const uint64_t begin = arcs.begin - vocab_size, end = arcs.end - vocab_size;
  const uint64_t at = vocab_size + (token16_ ? gallop(token16_, begin, end, token) : gallop(Token24{token24_}, begin, end, token));
  return at < arcs.end && this->token(at) == token ? at : arcs.end;
}

Taken Automaton::take(uint32_t state, uint32_t token) const {
  double paid = 0;
  while (state != kRoot) {
    const Context own = context(state);
    const uint64_t arc = find(own.arcs, token);
    if (arc != own.arcs.end) return {arc, paid + cost(arc)};
    paid += own.backoff_cost;
    state = own.backoff;
  }
  return {token, paid + root_cost_[token]};
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

void Automaton::distribution(uint32_t state, float* cost) const {
  std::vector<bool> seen(vocab_size, false);
  double paid = 0;
  for (; state != kRoot; state = backoff(state)) {
    const Arcs list = arcs(state);
    for (uint64_t arc = list.begin; arc < list.end; ++arc) {
      const uint32_t token = checked_token(arc);
      if (!seen[token]) cost[token] = static_cast<float>(paid + this->cost(arc));
      seen[token] = true;
    }
    paid += backoff_cost(state);
  }
  for (uint32_t token = 0; token < vocab_size; ++token)
    if (!seen[token]) cost[token] = static_cast<float>(paid + root_cost_[token]);
}

const std::vector<uint32_t>& Automaton::by_unigram_cost() const {
  std::call_once(unigram_once_, [this] {
    unigram_order_.resize(vocab_size);
    std::iota(unigram_order_.begin(), unigram_order_.end(), 0u);
    // A NaN of a damaged file would leave no order at all.
    const auto cost = [this](uint32_t t) { return std::isnan(root_cost_[t]) ? INFINITY : root_cost_[t]; };
    std::stable_sort(unigram_order_.begin(), unigram_order_.end(),
                     [cost](uint32_t a, uint32_t b) { return cost(a) < cost(b); });
  });
  return unigram_order_;
}

}  // namespace rescore
