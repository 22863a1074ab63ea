#include "automaton.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gallop.h"

namespace rescore {
// Decodes the state of length n = l + 1 to which an arc of order n with token w leads.
//
// Consider all such arcs with token w, in order. The state's context is the arc's context followed by w. Read
// backwards, it is w followed by the arc's context read backwards; since contexts ascend read backwards, so do these
// states. Let x be the index of the state among those of length n, and b = next_bits. The arc's code holds the low b
// bits of x, and x = k 2^b + low. jumps[k] is the first arc with token w that leads to an index of k 2^b or more, so k
// is the greatest number whose jump is not after the arc.
//
// The states that end in w are first[w], .., first[w + 1] - 1, so k is in first[w] >> b, .., (first[w + 1] - 1) >> b.
// The smallest of these needs no jump, as x is never less. Every other k has first[w] < k 2^b < first[w + 1], so the
// states around k 2^b all end in w and one array of jumps serves all tokens. Jumps ascend in k.
uint32_t Automaton::extension(uint32_t l, uint32_t arc, Ending ending) const {
  if (l == 0) return ending.begin;
  if (ending.begin == ending.end) corrupt_arc(l, arc);
  const uint32_t* jumps = levels_[l].jumps;
  uint32_t k = ending.begin >> next_bits_;
  // Branch-free binary search for the last k whose jump is not after the arc.
  for (uint32_t left = ((ending.end - 1) >> next_bits_) - k, half; left; left -= half) {
    half = (left + 1) / 2;
    k = jumps[k + half] <= arc ? k + half : k;
  }
  const uint64_t index =
      static_cast<uint64_t>(k) << next_bits_ | (levels_[l].records.code(arc) & ((uint32_t{1} << next_bits_) - 1));
  if (index >= levels_[l + 1].states) corrupt_arc(l, arc);
  return static_cast<uint32_t>(index);
}

// An arc hw leads to the state hw if there is one, else to where h'w leads; h' is h without its first token.
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
    // A NaN of a damaged file would break the strict weak ordering.
    const auto cost = [this](uint32_t t) { return std::isnan(root_cost_[t]) ? INFINITY : root_cost_[t]; };
    std::stable_sort(unigram_order_.begin(), unigram_order_.end(),
                     [cost](uint32_t a, uint32_t b) { return cost(a) < cost(b); });
  });
  return unigram_order_;
}

}  // namespace rescore
