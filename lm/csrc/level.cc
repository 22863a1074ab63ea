#include "level.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "gallop.h"

namespace rescore {
namespace {

// Smaller masses are rounding errors of sums in double precision, and count as 0.
constexpr double kNoMass = 1e-10;

// Arrays come from files, so every index is checked where it is read, at the cost of a comparison.
[[noreturn]] void damaged(const char* what, uint64_t index, uint64_t bound, uint64_t got) {
  throw std::invalid_argument(std::string(what) + " " + std::to_string(index) + ": expected a number below " +
                              std::to_string(bound) + ", got " + std::to_string(got) + "; the arrays are damaged");
}

// Calls visit(gram, suffix) for the n-grams of a context. Both lists ascend; galloping finds a short list in a long one
// with few reads.
template <typename Visit>
void with_suffixes(const Level& level, const Level& below, size_t context, Visit visit) {
  const uint64_t end = level.begin[context + 1];
  const size_t parent = level.parent(context);
  if (parent >= below.contexts) damaged("parent of context", context, below.contexts, parent);
  if (below.root()) {
    for (uint64_t gram = level.begin[context]; gram < end; ++gram) {
      if (level.token[gram] >= below.grams) damaged("token of n-gram", gram, below.grams, level.token[gram]);
      visit(gram, uint64_t{level.token[gram]});
    }
    return;
  }
  uint64_t low = below.begin[parent];
  const uint64_t high = below.begin[parent + 1];
  if (low > high || high > below.grams)
    damaged("begin of context", parent, std::min<uint64_t>(high, below.grams) + 1, low > high ? low : high);
  for (uint64_t gram = level.begin[context]; gram < end; ++gram) {
    const uint32_t token = level.token[gram];
    low = gallop(below.token, low, high, token);
    if (low == high || below.token[low] != token)
      throw std::invalid_argument("n-gram " + std::to_string(gram) +
                                  ": expected its suffix without the first token in the model, got none");
    visit(gram, low);
  }
}

struct Left {
  double own = 1.0;    // 1 - sum of p(w | h)
  double lower = 1.0;  // 1 - sum of p(w | h') over the same words
};

// The scale of a context's probabilities, and its backoff cost after scaling.
struct Balance {
  double scale;
  double backoff;
};

// If the context leaves no mass to back off with, its probabilities are scaled by c / (c + 1), where c is the inverse
// of the smallest, as if one more event had been seen. If the shorter context has no mass for other words, they are
// scaled to sum to one.
Balance balance(Left left, double largest_cost) {
  double scale = 1.0;
  const bool closed = left.lower < kNoMass;
  if (closed && left.own < 1.0) {
    scale = 1.0 / (1.0 - left.own);
  } else if (!closed && left.own < kNoMass) {
    const double events = std::exp(largest_cost);
    scale = events / (events + 1.0) / (1.0 - left.own);
  }
  if (closed) return {scale, 0.0};
  const double own = 1.0 - (1.0 - left.own) * scale;
  return {scale, std::log(left.lower) - std::log(own)};
}

// Logarithms of discounted counts, cached for small counts.
class DiscountedLogs {
 public:
  explicit DiscountedLogs(const Counted& input) : input_(input) {
    for (uint64_t count = 1; count < small_.size(); ++count) small_[count] = compute(count);
  }
  double operator()(uint64_t count) const { return count < small_.size() ? small_[count] : compute(count); }
  double discount(uint64_t count) const { return input_.discount[std::min<uint64_t>(count, input_.discounts) - 1]; }

 private:
  double compute(uint64_t count) const { return std::log(discount(count) * static_cast<double>(count)); }
  const Counted& input_;
  std::array<double, 256> small_{};
};

}  // namespace

void suffixes(const Level& level, const Level& below, Range range, uint32_t* out) {
  const uint64_t first = level.begin[range.from];
  for (size_t context = range.from; context < range.to; ++context)
    with_suffixes(level, below, context,
                  [&](uint64_t gram, uint64_t suffix) { out[gram - first] = static_cast<uint32_t>(suffix); });
}

void estimate(const Level& level, const Level& below, const double* below_cost, const Counted& input, Range range,
              double* cost, double* backoff) {
  const uint64_t first = level.begin[range.from];
  const DiscountedLogs log_of(input);
  for (size_t context = range.from; context < range.to; ++context) {
    const double total = static_cast<double>(input.total[context]), log_total = std::log(total);
    Left left;
    double largest = 0;
    with_suffixes(level, below, context, [&](uint64_t gram, uint64_t suffix) {
      const uint64_t count = input.count[gram];
      if (count == 0)
        throw std::invalid_argument("count of n-gram " + std::to_string(gram) +
                                    ": expected at least 1, got 0; the arrays are damaged");
      const double own = log_total - log_of(count);
      cost[gram - first] = own;
      largest = std::max(largest, own);
      left.own -= log_of.discount(count) * static_cast<double>(count) / total;
      left.lower -= std::exp(-below_cost[suffix]);
    });
    const Balance found = balance(left, largest);
    backoff[context - range.from] = found.backoff;
    if (found.scale == 1.0) continue;
    const double more = std::log(found.scale);
    for (uint64_t gram = level.begin[context]; gram < level.begin[context + 1]; ++gram) cost[gram - first] -= more;
  }
}

void kneser_ney(const Level& level, const Level& below, const double* below_cost, const Counted& input, Range range,
                double* cost, double* backoff) {
  const uint64_t first = level.begin[range.from];
  const auto discount = [&](uint64_t count) { return input.discount[std::min<uint64_t>(count, 3) - 1]; };
  for (size_t context = range.from; context < range.to; ++context) {
    const uint64_t total = input.total[context];
    uint64_t cut_off = total;  // the counts of n-grams that were not kept
    double taken = 0;
    for (uint64_t gram = level.begin[context]; gram < level.begin[context + 1]; ++gram) {
      const uint64_t count = input.count[gram];
      if (count == 0 || count > cut_off)
        throw std::invalid_argument("count of n-gram " + std::to_string(gram) + ": expected 1 to " +
                                    std::to_string(cut_off) + ", the rest of its context's total, got " +
                                    std::to_string(count) + "; the arrays are damaged");
      cut_off -= count;
      taken += discount(count);
    }
    const double all = static_cast<double>(total), gamma = (taken + static_cast<double>(cut_off)) / all;
    with_suffixes(level, below, context, [&](uint64_t gram, uint64_t suffix) {
      const uint64_t count = input.count[gram];
      const double own = (static_cast<double>(count) - discount(count)) / all;
      cost[gram - first] = -std::log(own + gamma * std::exp(-below_cost[suffix]));
    });
    backoff[context - range.from] = -std::log(gamma);
  }
}

void normalise(const Level& level, const Level& below, const double* below_cost, const double* cost, Range range,
               double* new_cost, double* backoff) {
  const uint64_t first = level.begin[range.from];
  for (size_t context = range.from; context < range.to; ++context) {
    Left left;
    double largest = 0;
    with_suffixes(level, below, context, [&](uint64_t gram, uint64_t suffix) {
      left.own -= std::exp(-cost[gram]);
      left.lower -= std::exp(-below_cost[suffix]);
      largest = std::max(largest, cost[gram]);
    });
    const Balance found = balance(left, largest);
    backoff[context - range.from] = found.backoff;
    const double more = found.scale == 1.0 ? 0.0 : std::log(found.scale);
    for (uint64_t gram = level.begin[context]; gram < level.begin[context + 1]; ++gram)
      new_cost[gram - first] = cost[gram] - more;
  }
}

void sums(const Level& level, const Level& below, const double* below_cost, const double* cost, const double* backoff,
          const double* below_sum, Range range, double* out) {
  for (size_t context = range.from; context < range.to; ++context) {
    double own = 0, lower = 0;
    with_suffixes(level, below, context, [&](uint64_t gram, uint64_t suffix) {
      own += std::exp(-cost[gram]);
      lower += std::exp(-below_cost[suffix]);
    });
    out[context - range.from] = own + std::exp(-backoff[context]) * (below_sum[level.parent(context)] - lower);
  }
}

void link(const Level& level, const Level& below, const uint32_t* below_link, const Level& above,
          const uint32_t* above_first, uint32_t vocab_size, Range range, uint32_t* cursor, uint32_t* out) {
  const uint64_t first = level.begin[range.from];
  const auto advance = [&](uint64_t gram, uint32_t expected_token, uint32_t expected_parent) {
    const uint32_t token = level.token[gram];
    if (token >= vocab_size) damaged("token of n-gram", gram, vocab_size, token);
    const uint32_t next = cursor[token];
    const bool found = next < std::min<size_t>(above_first[token + 1], above.contexts) &&
                       above.context_token[next] == expected_token && above.parent(next) == expected_parent;
    out[gram - first] = found ? next : kNoContext;
    cursor[token] += found;
  };
  for (size_t context = range.from; context < range.to; ++context) {
    if (level.root()) {
      for (uint64_t gram = level.begin[context]; gram < level.begin[context + 1]; ++gram)
        advance(gram, level.token[gram], 0);
      continue;
    }
    const uint32_t oldest = level.context_token[context];
    with_suffixes(level, below, context,
                  [&](uint64_t gram, uint64_t suffix) { advance(gram, oldest, below_link[suffix]); });
  }
}

void first_by_last_token(const Level& level, const uint32_t* below_first, uint32_t vocab_size, uint32_t* out) {
  const uint32_t* begin = below_first ? level.context_parent : level.context_token;
  const uint32_t* end = begin + level.contexts;
  const uint32_t* at = begin;
  for (uint32_t token = 0; token <= vocab_size; ++token) {
    at = std::lower_bound(at, end, below_first ? below_first[token] : token);
    out[token] = static_cast<uint32_t>(at - begin);
  }
}

void context_logps(const Level& level, const double* cost, const double* logp, const uint32_t* link, Range range,
                   double* above, size_t above_contexts) {
  for (size_t context = range.from; context < range.to; ++context)
    for (uint64_t gram = level.begin[context]; gram < level.begin[context + 1]; ++gram) {
      if (link[gram] == kNoContext) continue;
      if (link[gram] >= above_contexts) damaged("context of n-gram", gram, above_contexts, link[gram]);
      above[link[gram]] = logp[context] - cost[gram];
    }
}

void losses(const Level& level, const Level& below, const double* below_cost, const double* cost, const double* backoff,
            const double* logp, Range range, double* out) {
  const uint64_t first = level.begin[range.from];
  for (size_t context = range.from; context < range.to; ++context) {
    Left left;
    with_suffixes(level, below, context, [&](uint64_t gram, uint64_t suffix) {
      left.own -= std::exp(-cost[gram]);
      left.lower -= std::exp(-below_cost[suffix]);
    });
    const double p_context = std::exp(logp[context]);
    with_suffixes(level, below, context, [&](uint64_t gram, uint64_t suffix) {
      const double p = std::exp(-cost[gram]), lower = -below_cost[suffix];
      const double log_new = std::log(left.own + p) - std::log(left.lower + std::exp(lower));
      const double change = p * (lower + log_new + cost[gram]) + (log_new + backoff[context]) * left.own;
      const double loss = -p_context * change;
      out[gram - first] = std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
    });
  }
}

void scores(const Level& level, const double* loss, const Above& above, Range range, double* out, double* best) {
  const uint64_t first = level.begin[range.from], last = level.begin[range.to];
  for (uint64_t gram = first; gram < last; ++gram) {
    const uint32_t context = above.level ? above.link[gram] : kNoContext;
    if (context != kNoContext && context >= above.level->contexts)
      damaged("context of n-gram", gram, above.level->contexts, context);
    out[gram - first] = context == kNoContext ? loss[gram] : std::max(loss[gram], above.best[context]);
  }
  if (above.level) {
    for (size_t context = above.children.from; context < above.children.to; ++context)
      with_suffixes(*above.level, level, context, [&](uint64_t gram, uint64_t suffix) {
        if (suffix < first || suffix >= last) damaged("suffix of n-gram", gram, last, suffix);
        out[suffix - first] = std::max(out[suffix - first], above.score[gram]);
      });
  }
  for (size_t context = range.from; context < range.to; ++context) {
    double most = -std::numeric_limits<double>::infinity();
    for (uint64_t gram = level.begin[context]; gram < level.begin[context + 1]; ++gram)
      most = std::max(most, out[gram - first]);
    best[context - range.from] = most;
  }
}

Selection select(const Level& level, const double* score, double limit, const double* cost,
                 const uint32_t* below_number, size_t below_contexts, Range range) {
  Selection kept;
  for (size_t context = range.from; context < range.to; ++context) {
    const size_t before = kept.token.size();
    for (uint64_t gram = level.begin[context]; gram < level.begin[context + 1]; ++gram) {
      if (!(score[gram] > limit)) continue;
      kept.token.push_back(level.token[gram]);
      kept.cost.push_back(cost[gram]);
    }
    if (kept.token.size() == before) continue;
    kept.context.push_back(static_cast<uint32_t>(context));
    kept.context_token.push_back(level.context_token[context]);
    if (level.parent(context) >= below_contexts)
      damaged("parent of context", context, below_contexts, level.parent(context));
    kept.context_parent.push_back(below_number[level.parent(context)]);
    kept.size.push_back(kept.token.size() - before);
  }
  return kept;
}

void next_states(const Level& level, const Level& below, const uint32_t* link, const uint32_t* below_next,
                 uint32_t first_state, Range range, uint32_t* out) {
  const uint64_t first = level.begin[range.from];
  const auto longest = [&](uint64_t gram, uint32_t shorter) {
    out[gram - first] = link && link[gram] != kNoContext ? first_state + link[gram] : shorter;
  };
  for (size_t context = range.from; context < range.to; ++context) {
    if (level.root()) {
      for (uint64_t gram = level.begin[context]; gram < level.begin[context + 1]; ++gram) longest(gram, 0);
    } else {
      with_suffixes(level, below, context, [&](uint64_t gram, uint64_t suffix) { longest(gram, below_next[suffix]); });
    }
  }
}

}  // namespace rescore
