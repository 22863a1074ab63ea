// The trees of a batch of lattices, as Python gets them.
#pragma once

#include "arrays.h"
#include "best_prefixes.h"
#include "parallel.h"

namespace rescore {

// Runs search(b, output of lattice b) for every lattice of a batch. out: None, or a tuple of arrays for the answer: tokens,
// parents, depths, logq [rows, nodes], counts [rows].
template <typename Search>
nb::object trees(size_t rows, int nodes, int threads, const nb::object& out, Search search) {
  expect_range("nodes", nodes, 1, 4096);
  expect_range("threads", threads, 1, 1024);
  const size_t n = nodes;
  const Answer<int32_t, 2> tokens("tokens", given(out, 0, 5), {rows, n});
  const Answer<int32_t, 2> parents("parents", given(out, 1, 5), {rows, n});
  const Answer<int32_t, 2> depths("depths", given(out, 2, 5), {rows, n});
  const Answer<float, 2> logq("logq", given(out, 3, 5), {rows, n});
  const Answer<int32_t, 1> counts("count", given(out, 4, 5), {rows});
  {
    nb::gil_scoped_release release;
    parallel_for(rows, threads, [&](int64_t b) {
      const size_t at = b * n;
      counts.data[b] = search(b, TreeOutput{tokens.data + at, parents.data + at, depths.data + at, logq.data + at, nodes});
    });
  }
  return out.is_none() ? nb::make_tuple(tokens.array, parents.array, depths.array, logq.array, counts.array) : out;
}

}  // namespace rescore
