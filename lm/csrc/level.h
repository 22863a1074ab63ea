// The n-grams of one order as flat arrays in context order, and the computations of estimation and pruning over them.
//
// N-grams hw are sorted by their context h read backwards, then by w. h' is h without its first token. If hw is in the
// model, h and h'w are n-grams of the order below. Contexts form the trie of reversed histories: those that extend h'
// are neighbours and ascend by their first token, so the order below is walked in step with this one.
//
// Unless stated otherwise, every function reads and writes only the contexts from, .., to - 1, so that threads can work
// on ranges. Costs are negated natural logarithms.
//
// The arrays may be maps of damaged files. The caller must check that `begin` ascends within the range; all other
// indices are checked here, and std::invalid_argument names the wrong entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rescore {

constexpr uint32_t kNoContext = UINT32_MAX;

struct Level {
  const uint32_t* context_token;   // [contexts] first token; null at order 1, whose only context is empty
  const uint32_t* context_parent;  // [contexts] index of h' in the order below; null at order 1
  const uint64_t* begin;           // [contexts + 1] into token
  const uint32_t* token;           // [grams], ascending within a context
  size_t contexts;
  size_t grams;

  bool root() const { return context_token == nullptr; }
  size_t parent(size_t context) const { return context_parent ? context_parent[context] : 0; }
};

struct Range {
  size_t from, to;  // contexts
};

// For each n-gram hw, the index of h'w in the order below.
void suffixes(const Level& level, const Level& below, Range range, uint32_t* out);

// What is estimated from.
struct Counted {
  const uint64_t* count;   // [grams]; adjusted for Kneser-Ney, as are the totals
  const uint64_t* total;   // [contexts]
  const double* discount;  // [discounts], of counts 1, 2, .. and of all greater ones
  size_t discounts;
};

// Katz estimates: costs of the n-grams and backoff costs of the contexts. Output arrays begin at the range's first.
void estimate(const Level& level, const Level& below, const double* below_cost, const Counted& counted, Range range,
              double* cost, double* backoff);

// Interpolated modified Kneser-Ney with three discounts: costs of the n-grams and backoff costs of the contexts, as in
// `estimate`.
void kneser_ney(const Level& level, const Level& below, const double* below_cost, const Counted& counted, Range range,
                double* cost, double* backoff);

// Makes every context sum to one: computes backoff costs, and rescales costs if a context leaves no mass.
void normalise(const Level& level, const Level& below, const double* below_cost, const double* cost, Range range,
               double* new_cost, double* backoff);

// The sum of the probabilities of all tokens after each context. below_sum: the sums of the order below.
void sums(const Level& level, const Level& below, const double* below_cost, const double* cost, const double* backoff,
          const double* below_sum, Range range, double* out);

// For each n-gram hw, its index among the contexts of the order above, or kNoContext. Ranges must come in order, from
// the first, as cursor [V] is kept between calls. below_link: the same for the order below.
//
// By the sorting of both orders, the n-grams that end in w come in the same order as the contexts that end in w (with
// gaps). One cursor per token therefore finds every context without a search.
void link(const Level& level, const Level& below, const uint32_t* below_link, const Level& above,
          const uint32_t* above_first, uint32_t vocab_size, Range range, uint32_t* cursor, uint32_t* out);

// For each token, the first context of `level` (order >= 2) whose last token is not below it: [V + 1].
void first_by_last_token(const Level& level, const uint32_t* below_first, uint32_t vocab_size, uint32_t* out);

// ln p(h) of the contexts of the order above, by the chain rule; writes only contexts that are n-grams of the range.
void context_logps(const Level& level, const double* cost, const double* logp, const uint32_t* link, Range range,
                   double* above, size_t above_contexts);

// The loss of dropping each n-gram alone: D of Stolcke (cs/0006025).
void losses(const Level& level, const Level& below, const double* below_cost, const double* cost, const double* backoff,
            const double* logp, Range range, double* out);

// Scores of the range's n-grams: the maximum of their own loss and of the scores of the n-grams of the order above that
// need them, as their context h or their suffix h'w; and the greatest score of each context. out and best begin at the
// range's first.
struct Above {
  const Level* level;    // null for the highest order
  const double* score;   // [grams]
  const double* best;    // [contexts], the greatest score after each context
  const uint32_t* link;  // the index of each n-gram among its contexts, or kNoContext
  Range children;        // its contexts that extend those of the range
};
void scores(const Level& level, const double* loss, const Above& above, Range range, double* out, double* best);

// The n-grams whose score is above `limit`. below_number: new numbers of the contexts of the order below.
struct Selection {
  std::vector<uint32_t> context;  // the kept contexts
  std::vector<uint32_t> context_token, context_parent, token;
  std::vector<uint64_t> size;  // n-grams of each context
  std::vector<double> cost;
};
Selection select(const Level& level, const double* score, double limit, const double* cost,
                 const uint32_t* below_number, size_t below_contexts, Range range);

// The state after each n-gram: its own if it is a context (numbered from `first_state`), else its longest suffix's.
void next_states(const Level& level, const Level& below, const uint32_t* link, const uint32_t* below_next,
                 uint32_t first_state, Range range, uint32_t* out);

}  // namespace rescore
