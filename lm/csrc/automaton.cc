#include "automaton.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gallop.h"

namespace rescore {
// Let the arcs of order n with token w, in their order, lead to states of length n. Such a state is w and the tokens of
// the arc's context, so read backwards it is w and that context read backwards: as contexts ascend read backwards,
// these states ascend. So the numbers x that they have among the states of length n can be cut where they pass a
// multiple of 2^b: x = k 2^b + low, where k is the greatest number such that the arc is not before jumps[k], the first
// arc with token w that leads to k 2^b or beyond. All the states that end in w lie together, from first[w] to first[w +
// 1] - 1, so k is one of first[w] >> b, .., (first[w + 1] - 1) >> b. The first of these needs no jump: x is never less.
// Every other k has first[w] < k 2^b < first[w + 1], so jumps[k], one number whatever the token, is about this w; and
// they ascend in k.
uint32_t Automaton::extension(uint32_t l, uint32_t arc, Ending ending) const {
  if (l == 0) return ending.begin;
  if (ending.begin == ending.end) corrupt_arc(l, arc);
  const uint32_t* jumps = levels_[l].jumps;
  uint32_t k = ending.begin >> next_bits_;
  // The last k whose jump is not behind the arc, without branches on what is read.
  for (uint32_t left = ((ending.end - 1) >> next_bits_) - k, half; left; left -= half) {
    half = (left + 1) / 2;
    k = jumps[k + half] <= arc ? k + half : k;
  }
  const uint64_t index =
      static_cast<uint64_t>(k) << next_bits_ | (levels_[l].records.code(arc) & ((uint32_t{1} << next_bits_) - 1));
  if (index >= levels_[l + 1].states) corrupt_arc(l, arc);
  return static_cast<uint32_t>(index);
}

// An arc hw leads to the state hw, or if there is none where h'w leads, h' being h without its first token.
uint32_t Automaton::next(uint32_t state, uint64_t arc, uint32_t token) const {
  uint32_t l = arc_level(arc);
  while (length(state) > l) state = backoff(state);
  for (;; --l) {
    const uint32_t found = longer(l, arc - levels_[l].first_arc, token);
    if (found != kRoot || l == 0) return found;
    state = backoff(state);
    const Arcs list = arcs(state);
    arc = state == kRoot ? token : find(list, token);
    if (arc == list.end) corrupt("arc_token", list.begin);
  }
}

uint64_t Automaton::find(Arcs arcs, uint32_t token) const {
  const uint64_t begin = arcs.begin - vocab_size, end = arcs.end - vocab_size;
  const uint64_t at =
      vocab_size + (token16_ ? gallop(token16_, begin, end, token) : gallop(Token24{token24_}, begin, end, token));
  return at < arcs.end && this->token(at) == token ? at : arcs.end;
}

Taken Automaton::take(uint32_t state, uint32_t token) const {
  double paid = 0;
  while (state != kRoot) {
    const Context own = context(state);
    const uint64_t arc = find(own.arcs, token);
    if (arc != own.arcs.end) return {state, arc, paid + cost(own.length, arc)};
    paid += own.backoff_cost;
    state = own.backoff;
  }
  return {kRoot, token, paid + root_cost_[token]};
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
