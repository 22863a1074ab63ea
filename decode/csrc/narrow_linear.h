// A linear layer over a few tokens, as passes over drafts have them: y = x W^T.
#pragma once

#include <cstdint>
#include <utility>

namespace rescore {

// A float without the lower half of its bits.
struct Bfloat16 {
  uint16_t bits;
};

// Row-major: weights [outputs, inputs], x [rows, inputs], y [rows, outputs]; inputs and outputs are multiples of 16.
// Sums are floats, which y rounds.
template <typename Number>
struct NarrowLinear {
  const Number *weights, *x;
  Number* y;
  int64_t rows, inputs, outputs;

  void run(int threads) const;
};

// The fewest and the most rows for which `run` is as fast as libraries of linear algebra; {1, 0} if that is not known
// of this processor, or the process has no threads for it.
std::pair<int64_t, int64_t> narrow_rows(bool bfloat16);

}  // namespace rescore
