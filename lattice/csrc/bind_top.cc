#include "bind_top.h"

#include "arrays.h"
#include "parallel.h"
#include "top.h"

namespace rescore {

using namespace nb::literals;

namespace {

nb::tuple top(In<float, 2> logits, int k, int threads) {
  const size_t rows = logits.shape(0), vocab = logits.shape(1);
  expect_range("k", k, 1, std::min<int64_t>(kMaxTop, vocab));
  expect_range("threads", threads, 1, 1024);
  auto ids = make<int32_t>({rows, static_cast<size_t>(k)});
  auto logp = make<float>({rows, static_cast<size_t>(k)});
  auto entropy = make<float>({rows});
  {
    nb::gil_scoped_release release;
    parallel_for(rows, threads, [&](int64_t row) {
      top_of_row(logits.data() + row * vocab, vocab, k, ids.data + row * k, logp.data + row * k, entropy.data + row);
    });
  }
  return nb::make_tuple(ids.array, logp.array, entropy.array);
}

}  // namespace

void bind_top(nb::module_& m) { m.def("top", &top, "logits"_a.noconvert(), "k"_a, nb::kw_only(), "threads"_a = 1); }

}  // namespace rescore
