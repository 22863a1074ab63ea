#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <string>

#include "arrays.h"
#include "bind_decode.h"
#include "narrow_linear.h"

namespace rescore {

using namespace nb::literals;

namespace {

constexpr int64_t kMultiple = 16;

template <typename Number>
void run(uintptr_t x, uintptr_t weights, uintptr_t y, int64_t rows, int64_t inputs, int64_t outputs, int threads) {
  const NarrowLinear<Number> layer{reinterpret_cast<const Number*>(weights),
                                   reinterpret_cast<const Number*>(x),
                                   reinterpret_cast<Number*>(y),
                                   rows,
                                   inputs,
                                   outputs};
  nb::gil_scoped_release release;
  layer.run(threads);
}

// Addresses, since making arrays of torch's tensors takes as long as a small layer.
void narrow_linear(uintptr_t x, uintptr_t weights, uintptr_t y, int64_t rows, int64_t inputs, int64_t outputs,
                   int threads, bool bfloat16) {
  for (const int64_t width : {inputs, outputs})
    if (width < kMultiple || width % kMultiple)
      throw std::invalid_argument("expected widths of 16 times a number, got " + std::to_string(width));
  (bfloat16 ? run<Bfloat16> : run<float>)(x, weights, y, rows, inputs, outputs, threads);
}

}  // namespace

void bind_narrow_linear(nb::module_& m) {
  m.def("narrow_linear", &narrow_linear, "x"_a, "weights"_a, "y"_a, "rows"_a, "inputs"_a, "outputs"_a, "threads"_a,
        nb::kw_only(), "bfloat16"_a = false);
  m.def("narrow_rows", &narrow_rows, nb::kw_only(), "bfloat16"_a = false);
}

}  // namespace rescore
