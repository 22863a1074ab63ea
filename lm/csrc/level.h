// The n-grams of one order as flat arrays in context order, and what estimation and pruning compute over them.
//
// n-grams hw are sorted by their context h read backwards, then by w. h' is h without its first token. Whenever hw is
// in the model, h is an n-gram of the order below and so is h'w. Contexts are the trie of reversed histories: those
// that extend h' are neighbours and ascend by their first token, so "the order below" is walked in step with this one.
//
// Every function works on the contexts from, .., to - 1 and touches nothing else, so that ranges can be given to
// threads, unless it says otherwise. Costs are negated natural logarithms.
//
// The arrays may be maps of damaged files. `begin` must ascend within the range, which the caller has checked; all else
// that is used as an index is checked here, and std::invalid_argument says which entry is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rescore {

constexpr uint32_t kNoContext = UINT32_MAX;

struct Level {
  const uint32_t* context_token;   // [contexts] first token; null at order 1, whose one context is empty
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

// For each n-gram hw, where h'w is in the order below.
void suffixes(const Level& level, const Level& below, Range range, uint32_t* out);

struct KatzInput {
  const uint64_t* count;   // [grams]
  const uint64_t* total;   // [contexts]
  const double* discount;  // [1 .. k + 1], that of counts 1, .., k and of all above
  size_t discounts;        // k + 1
};

// Katz estimates: costs of the n-grams and of backing off from the contexts. out arrays begin at the range's first.
void estimate(const Level& level, const Level& below, const double* below_cost, const KatzInput& input, Range range,
              double* cost, double* backoff);

struct KneserNeyInput {
  const uint64_t* count;   // [grams], adjusted
  const uint64_t* total;   // [contexts], adjusted
  const double* discount;  // [3], of adjusted counts 1, 2, and of all above
};

// Interpolated modified Kneser-Ney: costs of the n-grams and of backing off from the contexts, as of `estimate`.
void kneser_ney(const Level& level, const Level& below, const double* below_cost, const KneserNeyInput& input,
                Range range, double* cost, double* backoff);

// Makes every context sum to one: costs, scaled where a context left no mass, and backoff costs anew.
void normalise(const Level& level, const Level& below, const double* below_cost, const double* cost, Range range,
               double* new_cost, double* backoff);

// The sum of the probabilities of all tokens after each context. below_sum: of the contexts of the order below.
void sums(const Level& level, const Level& below, const double* below_cost, const double* cost, const double* backoff,
          const double* below_sum, Range range, double* out);

// For each n-gram hw, the number of hw among the contexts of the order above, or kNoContext. Ranges must come in
// order, from the first: cursor [V] is kept from call to call. below_link: the same for the order below.
//
// Both orders are sorted so that the n-grams that end in w, taken in order, are the contexts that end in w, taken in
// order (with gaps). So one cursor per token finds every context without any search.
void link(const Level& level, const Level& below, const uint32_t* below_link, const Level& above,
          const uint32_t* above_first, uint32_t vocab_size, Range range, uint32_t* cursor, uint32_t* out);

// For each token, the first context of `level` (order >= 2) whose last token is not below it: [V + 1].
void first_by_last_token(const Level& level, const uint32_t* below_first, uint32_t vocab_size, uint32_t* out);

// ln p(h) of the contexts of the order above, by the chain rule; writes only those that the range's n-grams are.
void context_logps(const Level& level, const double* cost, const double* logp, const uint32_t* link, Range range,
                   double* above, size_t above_contexts);

// What dropping each n-gram alone would cost: D of Stolcke (cs/0006025).
void losses(const Level& level, const Level& below, const double* below_cost, const double* cost, const double* backoff,
            const double* logp, Range range, double* out);

// Scores of the range's n-grams: the greatest of their own loss, and of the scores of the n-grams of the order above
// that need them, as their context h or their suffix h'w; and the greatest score of each context. out, best begin at
// the range's first.
struct Above {
  const Level* level;    // null for the highest order
  const double* score;   // [grams]
  const double* best;    // [contexts], the greatest score after each context
  const uint32_t* link;  // which context of it each n-gram is, or kNoContext
  Range children;        // its contexts that extend those of the range
};
void scores(const Level& level, const double* loss, const Above& above, Range range, double* out, double* best);

// The n-grams whose score is above `limit`. below_number: new numbers of the contexts of the order below.
struct Selection {
  std::vector<uint32_t> context;  // which contexts are left
  std::vector<uint32_t> context_token, context_parent, token;
  std::vector<uint64_t> size;  // n-grams of each context
  std::vector<double> cost;
};
Selection select(const Level& level, const double* score, double limit, const double* cost,
                 const uint32_t* below_number, size_t below_contexts, Range range);

// The state after each n-gram: that of the context which it is (numbers from `first_state`), or of its longest suffix.
void next_states(const Level& level, const Level& below, const uint32_t* link, const uint32_t* below_next,
                 uint32_t first_state, Range range, uint32_t* out);

}  // namespace rescore
