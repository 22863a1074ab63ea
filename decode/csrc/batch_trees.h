// The trees of a batch of lattices, as Python gets them.
#pragma once

#include <nanobind/stl/tuple.h>

#include <tuple>

#include "arrays.h"
#include "best_prefixes.h"
#include "parallel.h"

namespace rescore {

using Trees = std::tuple<Out<int32_t>, Out<int32_t>, Out<int32_t>, Out<float>, Out<int32_t>>;

// Runs search(b, output of lattice b) for every lattice of a batch.
template <typename Search>
Trees trees(size_t rows, int nodes, int threads, Search search) {
  expect_range("nodes", nodes, 1, 4096);
  expect_range("threads", threads, 1, 1024);
  const size_t n = nodes;
  auto tokens = make<int32_t>({rows, n});
  auto parents = make<int32_t>({rows, n});
  auto depths = make<int32_t>({rows, n});
  auto logq = make<float>({rows, n});
  auto counts = make<int32_t>({rows});
  {
    nb::gil_scoped_release release;
    parallel_for(rows, threads, [&](int64_t b) {
      const size_t at = b * n;
      counts.data[b] = search(b, TreeOutput{tokens.data + at, parents.data + at, depths.data + at, logq.data + at, nodes});
    });
  }
  return {tokens.array, parents.array, depths.array, logq.array, counts.array};
}

}  // namespace rescore
