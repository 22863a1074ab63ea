// Builds the n-grams of every order, each in context order, from windows in context order.
//
// Windows arrive grouped by their longest context. When a context ends, the counts of the tokens after it are the
// counts of the n-grams hw of its order; their sums over the contexts that extend h' are the counts of h'w. It
// therefore suffices to keep a stack of one open context per length.
//
// Adjusted counts, for Kneser-Ney (Chen and Goodman 1998, section 3), are the numbers of distinct tokens before an
// n-gram, that is, of the contexts that added to it. N-grams of the highest order, and those that begin with the end of
// text and so have no predecessor, keep their counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "window_key.h"

namespace rescore {

// The n-grams of one order added since the last part was taken. Parents and ends are indices from the beginning of all
// parts.
struct LevelPart {
  std::vector<uint32_t> context_token;   // first token of each context
  std::vector<uint32_t> context_parent;  // the context without it, in the order below
  std::vector<uint64_t> context_total;   // the count of all tokens after it, before cut-offs
  std::vector<uint64_t> context_end;     // where its n-grams end
  std::vector<uint32_t> token;           // of each kept n-gram
  std::vector<uint64_t> count;
  // Only with adjusted counts, and below the highest order, where they would equal `count` and `context_total`.
  std::vector<uint64_t> context_adjusted, adjusted;
};

class LevelBuilder {
 public:
  const WindowLayout& layout() const { return layout_; }

  // min_counts [N]: the smallest counts kept, never falling, the first 1. most: counts of counts are kept for 1..most.
  // adjusted: compute adjusted counts too.
  LevelBuilder(const WindowLayout& layout, const std::vector<uint64_t>& min_counts, uint64_t most, bool adjusted)
      : unigrams(layout.vocab_size),
        adjusted_unigrams(adjusted ? layout.vocab_size : 0),
        parts(layout.order + 1),
        of_counts(layout.order + 1),
        of_adjusted(layout.order + 1),
        layout_(layout),
        least_(min_counts),
        adjusted_(adjusted),
        open_(layout.order) {
    for (auto& own : of_counts) own.assign(most + 1, 0);
    for (auto& own : of_adjusted) own.assign(adjusted ? most + 1 : 0, 0);
    // Only the longest context receives its n-grams in order and once each; the others need sums by token.
    for (int length = 1; length < layout.order - 1; ++length) {
      open_[length].sums.assign(layout.vocab_size, 0);
      if (adjusted) open_[length].before.assign(layout.vocab_size, 0);
    }
    contexts_.assign(layout.order + 1, 0);
    grams_.assign(layout.order + 1, 0);
  }

  std::vector<uint64_t> unigrams;           // [V]
  std::vector<uint64_t> adjusted_unigrams;  // [V], or empty
  std::vector<LevelPart> parts;             // by order; 0 and 1 are empty
  // By order: [r] is the number of n-grams seen r times, before cut-offs; [0] of those seen more often. The same for
  // adjusted counts.
  std::vector<std::vector<uint64_t>> of_counts, of_adjusted;

  template <int W>
  void add(const WindowKey<W>& key, uint64_t count) {
    // Bounds all sums, so that none overflows and no n-gram is counted more often than its context and suffix.
    total_ += count;
    if (total_ > kMostTokens) throw std::invalid_argument("counts: expected at most 2^53 tokens in a slice");
    int length = 0, same = 0;  // of the context, and of the part that it shares with the previous one
    bool shared = true;
    for (int i = 0; i < layout_.order - 1; ++i) {
      const uint32_t field = layout_.field(key, i);
      if (field == 0) break;
      if (shared && i < depth_ && path_[i] == field - 1) {
        ++same;
      } else {
        if (shared) close_below(same);
        shared = false;
        path_[i] = field - 1;
      }
      ++length;
    }
    // A context comes before those that extend it, so nothing longer than `length` is open.
    depth_ = length;
    put(length, layout_.field(key, layout_.order - 1), count);
  }

  void finish() {
    close_below(0);
    depth_ = 0;
  }

 private:
  struct Open {
    std::vector<uint32_t> tokens;  // the tokens after the context
    std::vector<uint64_t> counts;  // of each, if this is the longest context
    std::vector<uint64_t> sums;    // otherwise: by token
    std::vector<uint64_t> before;  // by token: the number of longer contexts before it; only with adjusted counts
    bool ascending = true;
  };

  void put(int length, uint32_t token, uint64_t count) {
    if (length == 0) {
      unigrams[token] += count;
      if (adjusted_) adjusted_unigrams[token] += layout_.order == 1 ? count : 1;
      return;
    }
    Open& open = open_[length];
    if (open.sums.empty()) {
      open.tokens.push_back(token);
      open.counts.push_back(count);
      return;
    }
    if (open.sums[token] == 0) {
      open.ascending &= open.tokens.empty() || open.tokens.back() < token;
      open.tokens.push_back(token);
    }
    open.sums[token] += count;
    if (adjusted_) ++open.before[token];
  }

  void close_below(int length) {
    for (int longer = depth_; longer > length; --longer) close(longer);
  }

  void close(int length) {
    const int order = length + 1;
    Open& open = open_[length];
    LevelPart& part = parts[order];
    const uint64_t most = of_counts[order].size() - 1;
    if (!open.ascending) std::sort(open.tokens.begin(), open.tokens.end());
    const bool highest = order == layout_.order;
    const bool as_seen = !adjusted_ || highest || path_[length - 1] == layout_.end_of_text;
    uint64_t total = 0, adjusted_total = 0;
    const size_t before = part.token.size();
    for (size_t i = 0; i < open.tokens.size(); ++i) {
      const uint32_t token = open.tokens[i];
      uint64_t count;
      if (open.sums.empty()) {
        count = open.counts[i];
      } else {
        count = open.sums[token];
        open.sums[token] = 0;
      }
      const uint64_t adjusted = as_seen ? count : open.before[token];
      if (!open.before.empty()) open.before[token] = 0;
      total += count;
      adjusted_total += adjusted;
      ++of_counts[order][count <= most ? count : 0];
      if (adjusted_) ++of_adjusted[order][adjusted <= most ? adjusted : 0];
      if (count >= least_[length]) {
        part.token.push_back(token);
        part.count.push_back(count);
        if (adjusted_ && !highest) part.adjusted.push_back(adjusted);
      }
      put(length - 1, token, count);
    }
    open.tokens.clear();
    open.counts.clear();
    open.ascending = true;
    if (part.token.size() == before) return;
    grams_[order] += part.token.size() - before;
    part.context_token.push_back(path_[length - 1]);
    // The shorter context is still open. It will be kept, as its n-grams are counted at least as often.
    part.context_parent.push_back(length > 1 ? static_cast<uint32_t>(contexts_[order - 1]) : 0);
    part.context_total.push_back(total);
    if (adjusted_ && !highest) part.context_adjusted.push_back(adjusted_total);
    part.context_end.push_back(grams_[order]);
    ++contexts_[order];
  }

  const WindowLayout layout_;
  const std::vector<uint64_t> least_;
  const bool adjusted_;
  std::vector<Open> open_;
  std::vector<uint64_t> contexts_, grams_;
  uint64_t total_ = 0;
  uint32_t path_[kMaxOrder] = {};
  int depth_ = 0;
};

}  // namespace rescore
