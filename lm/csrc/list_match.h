// Which of a few tokens are in an ascending list of tokens.
#pragma once

#include <array>
#include <cstdint>

#include "bits.h"
#include "token_set.h"

namespace rescore {

constexpr uint64_t kScanned = 3;  // entries for each wanted token: longer lists are searched

// Each of the functions returns which of the wanted tokens (a bit each, by their places in the set) are in the list, and
// writes where, in order: at[] has room for all of the set. They do not branch on what they find, as that is hard to foretell.

// `Lanes` binary searches, each step for all of them before the next: their reads do not wait for each other. A search for a
// token of the list ends where it is.
template <int Lanes, typename List>
inline void search_together(List list, uint64_t begin, uint64_t size, const uint32_t* tokens, uint64_t* ended) {
  std::array<uint64_t, Lanes> low;
  low.fill(begin);
  while (size > 1) {
    const uint64_t half = size / 2;
    for (int i = 0; i < Lanes; ++i) {
      const uint64_t beyond = low[i] + half;
      low[i] = list[beyond - 1] < tokens[i] ? beyond : low[i];
    }
    size -= half;
  }
  for (int i = 0; i < Lanes; ++i) ended[i] = low[i];
}

template <typename List>
uint64_t search_list(List list, uint64_t begin, uint64_t end, const TokenSet& tokens, uint64_t wanted, uint64_t* at) {
  uint64_t found = 0;
  std::array<uint32_t, 8> token{};
  std::array<uint64_t, 8> ended;
  while (wanted) {
    std::array<int, 8> place;
    int lanes = 0;
    for (; wanted && lanes < 8; wanted &= wanted - 1, ++lanes) {
      place[lanes] = __builtin_ctzll(wanted);
      token[lanes] = tokens[place[lanes]];
    }
    if (lanes == 1)
      search_together<1>(list, begin, end - begin, token.data(), ended.data());
    else if (lanes <= 4)
      search_together<4>(list, begin, end - begin, token.data(), ended.data());
    else
      search_together<8>(list, begin, end - begin, token.data(), ended.data());
    for (int i = 0; i < lanes; ++i) {
      const bool here = list[ended[i]] == token[i];
      found |= uint64_t{here} << place[i];
      *at = ended[i];
      at += here;
    }
  }
  return found;
}

template <typename List>
uint64_t scan_list(List list, uint64_t begin, uint64_t end, const TokenSet& tokens, uint64_t wanted, uint64_t* at) {
  std::array<uint32_t, kScanned * kMaxCandidates> likely;
  const uint32_t size = static_cast<uint32_t>(end - begin);
  int count = 0;
  for (uint32_t n = 0; n < size; ++n) {
    likely[count] = n;
    count += tokens.may_have(list[begin + n]);
  }
  uint64_t found = 0;
  for (int n = 0; n < count; ++n) {
    const int i = tokens.find(list[begin + likely[n]]);
    if (i == TokenSet::kMissing || !(wanted & ~found & uint64_t{1} << i)) continue;
    found |= uint64_t{1} << i;
    *at++ = begin + likely[n];
  }
  return found;
}

template <typename List>
uint64_t match_list(List list, uint64_t begin, uint64_t end, const TokenSet& tokens, uint64_t wanted, uint64_t* at) {
  if (begin == end) return 0;
  return end - begin > kScanned * count_ones(wanted) ? search_list(list, begin, end, tokens, wanted, at) : scan_list(list, begin, end, tokens, wanted, at);
}

}  // namespace rescore
