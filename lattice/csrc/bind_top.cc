#include "bind_top.h"

#include "arrays.h"
#include "parallel.h"
#include "top.h"

namespace rescore {

using namespace nb::literals;

namespace {

nb::tuple top(In<float, 2> logits, int k) {
  const size_t rows = logits.shape(0), vocab = logits.shape(1);
  expect_range("k", k, 1, std::min<int64_t>(kMaxTop, vocab));
  auto ids = make<int32_t>({rows, static_cast<size_t>(k)});
  auto logp = make<float>({rows, static_cast<size_t>(k)});
  auto entropy = make<float>({rows});
  {
    nb::gil_scoped_release release;
    for (size_t row = 0; row < rows; ++row)
      top_of_row(logits.data() + row * vocab, vocab, k, ids.data + row * k, logp.data + row * k, entropy.data + row);
  }
  return nb::make_tuple(ids.array, logp.array, entropy.array);
}

template <typename T>
nb::tuple top_predictions(In<T, 2> logits, int k, int threads) {
  const size_t rows = logits.shape(0), vocab = logits.shape(1);
  expect_range("k", k, 1, std::min<int64_t>(kMaxTop, vocab));
  auto ids = make<int32_t>({rows, static_cast<size_t>(k)});
  auto p = make<float>({rows, static_cast<size_t>(k)});
  {
    nb::gil_scoped_release release;
    parallel_for(rows, threads, [&](int64_t row) {
      predictions_of_row(logits.data() + row * vocab, vocab, k, ids.data + row * k, p.data + row * k);
    });
  }
  return nb::make_tuple(ids.array, p.array);
}

}  // namespace

void bind_top(nb::module_& m) {
  m.def("top", &top, "logits"_a.noconvert(), "k"_a);
  m.def("top_predictions", &top_predictions<float>, "logits"_a.noconvert(), "k"_a, "threads"_a = 1);
  m.def("top_predictions", &top_predictions<uint16_t>, "logits"_a.noconvert(), "k"_a, "threads"_a = 1);
}

}  // namespace rescore
