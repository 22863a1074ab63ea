// Paths through a pushed lattice, sampled or given.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "normalised.h"

namespace rescore {

struct DrawnPath {
  int32_t* tokens;  // [slots], padding -1
  double* q;        // [slots, width]: q of every candidate of a slot by rank, before sampling; 0 elsewhere
  double logq;
  int32_t length;  // less than the lattice's only if no candidate was possible
};

// Computes q from ln q; false if no candidate is possible.
inline bool probabilities(const double* logq, int count, double* q) {
  bool possible = false;
  for (int rank = 0; rank < count; ++rank) {
    q[rank] = std::exp(logq[rank]);
    possible |= q[rank] > 0;
  }
  return possible;
}

// The first rank at which the cumulative q exceeds the uniform. q sums to 1 up to rounding, which must not carry the
// uniform past the last rank with mass.
inline int draw_rank(const double* q, int count, double uniform) {
  double total = 0;
  for (int rank = 0; rank < count; ++rank) total += q[rank];
  const double target = std::min(uniform * total, std::nextafter(total, 0.0));
  int rank = 0;
  for (double sum = q[0]; sum <= target; sum += q[rank]) ++rank;
  return rank;
}

// Samples a token from every row, with uniforms [slots] in [0, 1).
inline void draw_path(PushedWalk walk, const Sausage& sausage, const double* uniforms, DrawnPath& out) {
  const size_t slots = sausage.slots, width = sausage.width;
  std::fill(out.tokens, out.tokens + slots, -1);
  std::fill(out.q, out.q + slots * width, 0.0);
  out.logq = 0;
  const int length = sausage.length();
  int t = 0;
  for (; t < length; ++t) {
    const int count = sausage.candidates(t);
    double* q = out.q + t * width;
    const double* logq = walk.row(t);
    if (!probabilities(logq, count, q)) break;
    const int rank = draw_rank(q, count, uniforms[t]);
    out.tokens[t] = sausage.slot_ids(t)[rank];
    out.logq += logq[rank];
    if (t + 1 < length) walk.take(t, rank);
  }
  out.length = t;
}

// ln q of a draft [slots], padding -1; -inf if a token is impossible. q, unless null, receives the rows [slots, width]
// along it: row t is q(. | the draft's first t tokens), 0 after an impossible token.
inline double follow_path(PushedWalk walk, const Sausage& sausage, const int32_t* draft, double* q) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const size_t width = sausage.width;
  if (q) std::fill(q, q + sausage.slots * width, 0.0);
  double total = 0;
  const int length = sausage.length();
  for (int t = 0; t < length; ++t) {
    if (!q && draft[t] < 0) return total;
    const int count = sausage.candidates(t);
    const double* logq = walk.row(t);
    if (q) probabilities(logq, count, q + t * width);
    if (draft[t] < 0) return total;
    const int32_t* ids = sausage.slot_ids(t);
    const int rank = static_cast<int>(std::find(ids, ids + count, draft[t]) - ids);
    if (rank == count || logq[rank] == kNever) return kNever;
    total += logq[rank];
    if (t + 1 < length) walk.take(t, rank);
  }
  return length < sausage.slots && draft[length] >= 0 ? kNever : total;
}

}  // namespace rescore
