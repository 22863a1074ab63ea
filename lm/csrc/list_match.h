// Which of a few tokens are in a long ascending list, or of a short one.
#pragma once

#include <array>
#include <cstdint>

#include "token_set.h"

namespace rescore {

constexpr uint64_t kScanned = 6;  // entries for each token: longer lists are searched

// Binary searches for all tokens at once, each step for all before the next: their reads do not wait for each other,
// and as all intervals have the same length, no branch depends on what was read.
template <typename List, typename Found>
void search_list(List list, uint64_t begin, uint64_t size, const TokenSet& tokens, Found found) {
  const int count = tokens.size();
  std::array<uint64_t, kMaxCandidates> low;
  low.fill(begin);
  while (size > 1) {
    const uint64_t half = size / 2;
    for (int i = 0; i < count; ++i) low[i] += list[low[i] + half - 1] < tokens[i] ? half : 0;
    size -= half;
  }
  // A token of the list is where its search has ended.
  for (int i = 0; i < count; ++i)
    if (list[low[i]] == tokens[i]) found(i, low[i]);
}

// found(i, at) for each of the tokens that is in list[begin, end), ascending.
template <typename List, typename Found>
void match_list(List list, uint64_t begin, uint64_t end, const TokenSet& tokens, Found found) {
  if (end - begin > kScanned * tokens.size()) return search_list(list, begin, end - begin, tokens, found);
  for (; begin < end; ++begin)
    if (const int i = tokens.find(list[begin]); i != TokenSet::kMissing) found(i, begin);
}

}  // namespace rescore
