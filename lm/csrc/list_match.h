// Which of a few tokens are in an ascending list of tokens.
#pragma once

#include <array>
#include <cstdint>

#include "token_set.h"

namespace rescore {

constexpr uint64_t kScanned = 4;  // entries for each token: longer lists are searched

// Each of the functions returns the tokens in the list, a bit each by their places in the set, and writes where they are,
// in order: at[] has room for as many as are in the set. None of them branches on what it finds, as that is hard to foretell.

// Binary searches for eight tokens at once, each step for all before the next: their reads do not wait for each other.
template <typename List>
inline void search_eight(List list, uint64_t begin, uint64_t size, const uint32_t* tokens, uint64_t* at) {
  std::array<uint64_t, 8> low;
  low.fill(begin);
  while (size > 1) {
    const uint64_t half = size / 2;
    for (int i = 0; i < 8; ++i) {
      const uint64_t beyond = low[i] + half;
      low[i] = list[beyond - 1] < tokens[i] ? beyond : low[i];
    }
    size -= half;
  }
  for (int i = 0; i < 8; ++i) at[i] = low[i];
}

template <typename List>
uint64_t search_list(List list, uint64_t begin, uint64_t end, const TokenSet& tokens, uint64_t* at) {
  uint64_t found = 0;
  std::array<uint64_t, 8> ended;
  for (int base = 0; base < tokens.size(); base += 8) {
    search_eight(list, begin, end - begin, tokens.begin() + base, ended.data());
    for (int i = base; i < tokens.size() && i < base + 8; ++i) {
      const bool here = list[ended[i - base]] == tokens[i];  // where the search for a token of the list ends
      found |= uint64_t{here} << i;
      *at = ended[i - base];
      at += here;
    }
  }
  return found;
}

template <typename List>
uint64_t scan_list(List list, uint64_t begin, uint64_t end, const TokenSet& tokens, uint64_t* at) {
  std::array<uint64_t, kScanned * kMaxCandidates> likely;
  int count = 0;
  for (; begin < end; ++begin) {
    likely[count] = begin;
    count += tokens.may_have(list[begin]);
  }
  uint64_t found = 0;
  for (int n = 0; n < count; ++n) {
    const int i = tokens.find(list[likely[n]]);
    if (i == TokenSet::kMissing || found >> i & 1) continue;
    found |= uint64_t{1} << i;
    *at++ = likely[n];
  }
  return found;
}

template <typename List>
uint64_t match_list(List list, uint64_t begin, uint64_t end, const TokenSet& tokens, uint64_t* at) {
  return end - begin > kScanned * tokens.size() ? search_list(list, begin, end, tokens, at) : scan_list(list, begin, end, tokens, at);
}

}  // namespace rescore
