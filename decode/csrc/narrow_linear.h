// A linear layer over a few tokens, as passes over drafts have them: y = x W^T.
#pragma once

#include <cstdint>

namespace rescore {

// Row-major: weights [outputs, inputs], x [rows, inputs], y [rows, outputs]; inputs and outputs are multiples of 16.
struct NarrowLinear {
  const float *weights, *x;
  float* y;
  int64_t rows, inputs, outputs;

  void run(int threads) const;
};

// The most rows for which `run` is faster than libraries of linear algebra; 0 if that is not known of this processor,
// or the process has no threads for it.
int64_t most_narrow_rows();

}  // namespace rescore
