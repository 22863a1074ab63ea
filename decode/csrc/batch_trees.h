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

// Runs search(trees), which writes the trees of all lattices of a batch. out: None, or a tuple of arrays to write into:
// tokens, parents, depths, logq [rows, nodes], counts [rows].
template <typename Search>
nb::object trees(size_t rows, int nodes, const nb::object& out, Search search) {
  expect_range("nodes", nodes, 1, kMaxNodes);
  const size_t n = nodes;
  const Answer<int32_t, 2> tokens("tokens", given(out, 0, 5), {rows, n});
  const Answer<int32_t, 2> parents("parents", given(out, 1, 5), {rows, n});
  const Answer<int32_t, 2> depths("depths", given(out, 2, 5), {rows, n});
  const Answer<float, 2> logq("logq", given(out, 3, 5), {rows, n});
  const Answer<int32_t, 1> counts("count", given(out, 4, 5), {rows});
  {
    nb::gil_scoped_release release;
    search(Trees{{tokens.data, parents.data, depths.data, logq.data, nodes}, counts.data});
  }
  return out.is_none() ? nb::make_tuple(tokens.array, parents.array, depths.array, logq.array, counts.array) : out;
}

}  // namespace rescore
