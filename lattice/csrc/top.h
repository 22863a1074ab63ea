// The most probable tokens of full-vocabulary logits.
#pragma once

#include <cstdint>

namespace rescore {

constexpr int kMaxTop = 1024;

// Ids and log softmax of the k greatest logits of a row [vocab], equal ones by id, and the entropy in nats.
//
// Only finite logits are found: where there are fewer than k, the ids behind them are -1. Of a row with NaN or +inf, or
// without a finite logit, the entropy is NaN.
void top_of_row(const float* logits, int64_t vocab, int k, int32_t* ids, float* logp, float* entropy);

// The same ids with their probabilities, of floats or of bfloat16 as its bits; NaN where the entropy is.
template <typename T>
void predictions_of_row(const T* logits, int64_t vocab, int k, int32_t* ids, float* p);

// The token of the greatest logit, the first of equal ones; -1 where a logit is NaN or +inf, or none is finite.
template <typename T>
int64_t best_of_row(const T* logits, int64_t vocab);

}  // namespace rescore
