#include "bind_top.h"

#include <cstring>
#include <vector>

#include "arrays.h"
#include "top.h"

namespace rescore {

using namespace nb::literals;

namespace {

const float* floats(const float* row, size_t, std::vector<float>&) { return row; }

// bfloat16 is the upper half of a float.
const float* floats(const uint16_t* row, size_t vocab, std::vector<float>& wide) {
  wide.resize(vocab);
  for (size_t i = 0; i < vocab; ++i) {
    const uint32_t bits = static_cast<uint32_t>(row[i]) << 16;
    std::memcpy(&wide[i], &bits, sizeof bits);
  }
  return wide.data();
}

template <typename T>
nb::tuple top(In<T, 2> logits, int k) {
  const size_t rows = logits.shape(0), vocab = logits.shape(1);
  expect_range("k", k, 1, std::min<int64_t>(kMaxTop, vocab));
  auto ids = make<int32_t>({rows, static_cast<size_t>(k)});
  auto logp = make<float>({rows, static_cast<size_t>(k)});
  auto entropy = make<float>({rows});
  {
    nb::gil_scoped_release release;
    std::vector<float> wide;
    for (size_t row = 0; row < rows; ++row)
      top_of_row(floats(logits.data() + row * vocab, vocab, wide), vocab, k, ids.data + row * k, logp.data + row * k,
                 entropy.data + row);
  }
  return nb::make_tuple(ids.array, logp.array, entropy.array);
}

}  // namespace

void bind_top(nb::module_& m) {
  m.def("top", &top<float>, "logits"_a.noconvert(), "k"_a);
  m.def("top", &top<uint16_t>, "logits"_a.noconvert(), "k"_a);
}

}  // namespace rescore
