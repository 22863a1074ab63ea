#include "bind_top.h"

#include <nanobind/stl/vector.h>

#include <vector>

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

// Pointers to the rows of several arrays [m, vocab], array by array.
template <typename T>
std::vector<const T*> rows_of(const std::vector<In<T, 2>>& arrays) {
  std::vector<const T*> rows;
  for (const In<T, 2>& one : arrays) {
    expect_size("logits: columns of every array, as in the first", one.shape(1), arrays[0].shape(1));
    for (size_t row = 0; row < one.shape(0); ++row) rows.push_back(one.data() + row * one.shape(1));
  }
  return rows;
}

template <typename T>
nb::tuple top_predictions(const std::vector<In<T, 2>>& logits, int k, int threads) {
  expect_range("logits, arrays", logits.size(), 1, INT32_MAX);
  const std::vector<const T*> rows = rows_of(logits);
  const int64_t vocab = logits[0].shape(1);
  expect_range("k", k, 1, std::min<int64_t>(kMaxTop, vocab));
  auto ids = make<int32_t>({rows.size(), static_cast<size_t>(k)});
  auto p = make<float>({rows.size(), static_cast<size_t>(k)});
  {
    nb::gil_scoped_release release;
    parallel_for(rows.size(), threads,
                 [&](int64_t row) { predictions_of_row(rows[row], vocab, k, ids.data + row * k, p.data + row * k); });
  }
  return nb::make_tuple(ids.array, p.array);
}

template <typename T>
Out<int64_t> best_tokens(In<T, 2> logits) {
  const size_t rows = logits.shape(0), vocab = logits.shape(1);
  auto best = make<int64_t>({rows});
  nb::gil_scoped_release release;
  for (size_t row = 0; row < rows; ++row) best.data[row] = best_of_row(logits.data() + row * vocab, vocab);
  return best.array;
}

}  // namespace

void bind_top(nb::module_& m) {
  m.def("top", &top, "logits"_a.noconvert(), "k"_a);
  m.def("top_predictions", &top_predictions<float>, "logits"_a.noconvert(), "k"_a, "threads"_a = 1);
  m.def("top_predictions", &top_predictions<uint16_t>, "logits"_a.noconvert(), "k"_a, "threads"_a = 1);
  m.def("best_tokens", &best_tokens<float>, "logits"_a.noconvert());
  m.def("best_tokens", &best_tokens<uint16_t>, "logits"_a.noconvert());
}

}  // namespace rescore
