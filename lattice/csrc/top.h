// The most probable tokens of full-vocabulary logits.
#pragma once

#include <cstdint>

namespace rescore {

constexpr int kMaxTop = 1024;

// Ids and log softmax of the k greatest logits of a row [vocab], equal ones by id, and the entropy in nats.
//
// If fewer than k logits are finite, the remaining ids are -1. The entropy is NaN if a logit is NaN or +inf, or none is
// finite.
void top_of_row(const float* logits, int64_t vocab, int k, int32_t* ids, float* logp, float* entropy);

// The same ids with their probabilities, which are NaN where the entropy of top_of_row is. logits: float, or bfloat16
// as its bits.
template <typename T>
void predictions_of_row(const T* logits, int64_t vocab, int k, int32_t* ids, float* p);

// The token with the greatest logit, the first of equal ones; -1 if a logit is NaN or +inf, or none is finite.
template <typename T>
int64_t best_of_row(const T* logits, int64_t vocab);

}  // namespace rescore
