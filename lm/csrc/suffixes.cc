// Finds the suffixes of a history that are states.
//
// Only one arc leads to a state from a shorter one: the arc of its last token in the state of the tokens before. The
// states of two tokens are found at all positions of the history, then those of three, and so on. The look-ups of
// different positions are interleaved, so that their reads do not wait for each other.
#include <algorithm>

#include "automaton.h"

namespace rescore {
namespace {

constexpr uint32_t kNoState = UINT32_MAX;

struct Place {
  TokenSet token;
  uint32_t before, own;  // the states of the l tokens before it, and of l + 1 tokens with it; kNoState if there is none
  Automaton::List list;  // arcs of `before`
  std::array<uint32_t, kMatchStep> arc;
};

void expect_ids(const int32_t* history, size_t length, size_t count, uint32_t vocab_size) {
  for (size_t i = length - count; i < length; ++i)
    if (history[i] < 0 || static_cast<uint32_t>(history[i]) >= vocab_size)
      throw std::invalid_argument("history[" + std::to_string(i) + "]: expected a token id below the vocabulary size " +
                                  std::to_string(vocab_size) + ", got " + std::to_string(history[i]));
}

}  // namespace

Suffixes Automaton::suffixes(const int32_t* history, size_t length) const {
  const size_t count = std::min<size_t>(length, order - 1);
  expect_ids(history, length, count, vocab_size);
  history += length - count;
  std::array<Place, kMaxOrder> places;
  for (size_t i = 0; i < count; ++i)
    for (uint32_t l = 1; l < order; ++l) prefetch_line(&levels_[l].first[history[i]]);
  for (size_t i = 0; i < count; ++i) {
    uint8_t place;
    places[i].token.assign(&history[i], 1, &place);
    const Ending own = ending(1, history[i]);
    places[i].own = own.begin < own.end ? own.begin : kNoState;
  }
  Suffixes found;
  for (uint32_t l = 1; l <= count && places[count - 1].own != kNoState; ++l) {
    found.index[l] = places[count - 1].own;
    found.length = l;
    for (size_t i = count - 1; i >= l; --i) places[i].before = places[i - 1].own;
    const auto each = [&](auto step) {
      for (size_t i = l; i < count; ++i)
        if (places[i].before != kNoState) step(places[i], history[i]);
    };
    for (size_t i = l; i < count; ++i) places[i].own = kNoState;
    each([&](Place& at, uint32_t) { prefetch_state(l, at.before); });
    each([&](Place& at, uint32_t) {
      at.list = list(l, at.before);
      prefetch_list(l, at.list, at.token);
    });
    each([&](Place& at, uint32_t) {
      if (match(l, at.list, at.token, 1, MatchRow{at.arc.data(), at.list.begin}))
        prefetch_arc(l, at.arc[0]);
      else
        at.before = kNoState;
    });
    each([&](Place& at, uint32_t token) {
      const uint32_t state = longer(l, at.arc[0], token);
      if (state != kRoot) at.own = static_cast<uint32_t>(state - levels_[l + 1].first_state);
    });
  }
  return found;
}

}  // namespace rescore
