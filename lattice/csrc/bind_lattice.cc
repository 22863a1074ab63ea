#include "bind_lattice.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "acceptor.h"
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

using Trees = std::vector<std::tuple<In<int32_t, 1>, In<int32_t, 1>, In<int32_t, 1>>>;

// ids and depths int64 [B, L] and what each sees, bool [B, L, L]: the root tokens, column 0, and their trees (tokens,
// parents and depths [n]; parents precede their children, -1 is the root token).
nb::tuple lay_trees(const Trees& trees, const std::vector<int64_t>& roots, size_t width) {
  const size_t batch = trees.size();
  expect_size("roots", roots.size(), batch);
  auto ids = make<int64_t>({batch, width}), depths = make<int64_t>({batch, width});
  auto seen = make<bool>({batch, width, width});
  std::fill_n(ids.data, batch * width, 0);
  std::fill_n(depths.data, batch * width, 0);
  std::fill_n(seen.data, batch * width * width, false);
  for (size_t b = 0; b < batch; ++b) {
    const auto& [tokens, parents, of_nodes] = trees[b];
    const size_t size = tokens.shape(0);
    expect_size("parents", parents.shape(0), size);
    expect_size("depths", of_nodes.shape(0), size);
    expect_range("nodes", size, 0, static_cast<int64_t>(width) - 1);
    ids.data[b * width] = roots[b];
    std::copy_n(tokens.data(), size, ids.data + b * width + 1);
    std::copy_n(of_nodes.data(), size, depths.data + b * width + 1);
    bool* rows = seen.data + b * width * width;
    for (size_t i = 0; i < width; ++i) {
      if (0 < i && i <= size) {
        const int32_t parent = parents.data()[i - 1];
        expect_range("parents", parent, -1, static_cast<int64_t>(i) - 2);
        std::copy_n(rows + (1 + parent) * width, i, rows + i * width);
      }
      rows[i * width + i] = true;
    }
  }
  return nb::make_tuple(ids.array, depths.array, seen.array);
}

// The child of a node with a token; -1 if there is none.
int64_t child(In<int32_t, 1> tokens, In<int32_t, 1> parents, int64_t parent, int64_t token) {
  expect_size("parents", parents.shape(0), tokens.shape(0));
  for (size_t node = 0; node < tokens.shape(0); ++node)
    if (parents.data()[node] == parent && tokens.data()[node] == token) return node;
  return -1;
}

template <typename T>
Out<int64_t> best_tokens(In<T, 2> logits) {
  const size_t rows = logits.shape(0), vocab = logits.shape(1);
  auto best = make<int64_t>({rows});
  nb::gil_scoped_release release;
  for (size_t row = 0; row < rows; ++row) best.data[row] = best_of_row(logits.data() + row * vocab, vocab);
  return best.array;
}

template <typename T>
std::vector<T> copied(In<T, 1> array) {
  return {array.data(), array.data() + array.size()};
}

uint32_t expect_state(const Acceptor& acceptor, int64_t state) {
  expect_range("state", state, 0, static_cast<int64_t>(acceptor.states()) - 1);
  return static_cast<uint32_t>(state);
}

}  // namespace

void bind_lattice(nb::module_& m) {
  nb::class_<Acceptor>(m, "Acceptor")
      .def(
          "__init__",
          [](Acceptor* made, In<uint64_t, 1> first, In<int32_t, 1> tokens, In<uint32_t, 1> targets, uint32_t start) {
            new (made) Acceptor(copied(first), copied(tokens), copied(targets), start);
          },
          "first"_a.noconvert(), "tokens"_a.noconvert(), "targets"_a.noconvert(), nb::kw_only(), "start"_a)
      .def_ro("start", &Acceptor::start)
      .def("tokens",
           [](const Acceptor& own, int64_t state) {
             const uint32_t at = expect_state(own, state);
             return keep(std::vector<int32_t>(own.begin(at), own.end(at)));
           })
      .def("next", [](const Acceptor& own, int64_t state, int32_t token) -> int64_t {
        const uint32_t target = own.next(expect_state(own, state), token);
        return target == Acceptor::kNowhere ? -1 : static_cast<int64_t>(target);
      });
  m.def("lay_trees", &lay_trees, "trees"_a, "roots"_a, "width"_a);
  m.def("child", &child, "tokens"_a, "parents"_a, "parent"_a, "token"_a);
  m.def("top", &top, "logits"_a.noconvert(), "k"_a);
  m.def("top_predictions", &top_predictions<float>, "logits"_a.noconvert(), "k"_a, "threads"_a = 1);
  m.def("top_predictions", &top_predictions<uint16_t>, "logits"_a.noconvert(), "k"_a, "threads"_a = 1);
  m.def("best_tokens", &best_tokens<float>, "logits"_a.noconvert());
  m.def("best_tokens", &best_tokens<uint16_t>, "logits"_a.noconvert());
}

}  // namespace rescore
