// The trees of a batch of lattices as Python arrays.
#pragma once

#include "arrays.h"
#include "best_prefixes.h"
#include "parallel.h"

namespace rescore {

struct Trees {
  TreeOutput first;
  int32_t* counts;  // nodes per tree

  TreeOutput of(int64_t b) const {
    const size_t at = b * size_t(first.nodes);
    return {first.tokens + at, first.parents + at, first.depths + at, first.logq + at, first.nodes};
  }
};

// Runs search(trees), which writes the trees of all lattices of a batch: tokens, parents, depths, logq [rows, nodes],
// counts [rows].
template <typename Search>
nb::tuple trees(size_t rows, int nodes, Search search) {
  expect_range("nodes", nodes, 1, kMaxNodes);
  const size_t n = nodes;
  auto tokens = make<int32_t>({rows, n}), parents = make<int32_t>({rows, n}), depths = make<int32_t>({rows, n});
  auto logq = make<float>({rows, n});
  auto counts = make<int32_t>({rows});
  {
    nb::gil_scoped_release release;
    search(Trees{{tokens.data, parents.data, depths.data, logq.data, nodes}, counts.data});
  }
  return nb::make_tuple(tokens.array, parents.array, depths.array, logq.array, counts.array);
}

}  // namespace rescore
