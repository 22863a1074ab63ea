// How often drafted tokens are accepted against their conditional q: a correction, read and updated in one call a step.

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "arrays.h"
#include "bind_decode.h"

namespace rescore {

using namespace nb::literals;

namespace {

// Columns [n] of a token tree; parents precede their children.
struct Nodes {
  const float* logq;
  const int32_t* parents;
  int64_t size;

  void check() const {
    for (int64_t node = 0; node < size; ++node) expect_range("parents", parents[node], -1, node - 1);
  }

  // q of a node's token, given its parent.
  double conditional(int64_t node) const {
    const int32_t parent = parents[node];
    return std::exp(logq[node] - (parent < 0 ? 0.0 : logq[parent]));
  }
};

size_t bin_of(double q, In<double, 1> edges) {
  return std::upper_bound(edges.data(), edges.data() + edges.shape(0), q) - edges.data();
}

Out<double> acceptance(In<float, 2> logq, In<int32_t, 2> parents, In<double, 1> edges, In<double, 1> factors) {
  const size_t batch = logq.shape(0), n = logq.shape(1);
  expect_size("parents, trees", parents.shape(0), batch);
  expect_size("parents, nodes", parents.shape(1), n);
  expect_size("factors, one more than edges", factors.shape(0), edges.shape(0) + 1);
  auto found = make<double>({batch, n});
  for (size_t row = 0; row < batch; ++row) {
    const size_t from = row * n;
    const Nodes tree{logq.data() + from, parents.data() + from, static_cast<int64_t>(n)};
    tree.check();
    double* p = found.data + from;
    for (int64_t node = 0; node < tree.size; ++node) {
      const int32_t parent = tree.parents[node];
      const double q = std::isinf(tree.logq[node]) ? 0.0 : tree.conditional(node);
      p[node] = (parent < 0 ? 1.0 : p[parent]) * std::min(1.0, q * factors.data()[bin_of(q, edges)]);
    }
  }
  return found.array;
}

void count_accepted(nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu> counts, In<double, 1> edges,
                    const std::vector<In<float, 1>>& logq, const std::vector<In<int32_t, 1>>& parents,
                    const std::vector<std::vector<int64_t>>& accepted) {
  expect_size("counts, accepted and expected", counts.shape(0), 2);
  expect_size("counts, one more than edges", counts.shape(1), edges.shape(0) + 1);
  for (const size_t size : {parents.size(), accepted.size()})
    expect_size("parents and accepted, as many as logq", size, logq.size());
  std::vector<Nodes> trees;
  for (size_t i = 0; i < logq.size(); ++i) {
    expect_size("parents", parents[i].shape(0), logq[i].shape(0));
    trees.push_back({logq[i].data(), parents[i].data(), static_cast<int64_t>(logq[i].shape(0))});
    trees.back().check();
    for (const int64_t node : accepted[i]) expect_range("accepted", node, 0, trees.back().size - 1);
  }
  double *const of_accepted = counts.data(), *const of_expected = counts.data() + counts.shape(1);
  std::vector<char> stays;
  for (size_t i = 0; i < trees.size(); ++i) {
    stays.assign(trees[i].size, 0);
    for (const int64_t node : accepted[i]) stays[node] = 1;
    for (int64_t node = 0; node < trees[i].size; ++node) {
      const int32_t parent = trees[i].parents[node];
      if (parent >= 0 && !stays[parent]) continue;  // its parent was rejected: nothing is known of it
      const double q = trees[i].conditional(node);
      const size_t bin = bin_of(q, edges);
      of_accepted[bin] += stays[node];
      of_expected[bin] += q;
    }
  }
}

}  // namespace

void bind_acceptance(nb::module_& m) {
  m.def("acceptance", &acceptance, "logq"_a.noconvert(), "parents"_a.noconvert(), "edges"_a.noconvert(),
        "factors"_a.noconvert());
  m.def("count_accepted", &count_accepted, "counts"_a.noconvert(), "edges"_a.noconvert(), "logq"_a.noconvert(),
        "parents"_a.noconvert(), "accepted"_a);
}

}  // namespace rescore
