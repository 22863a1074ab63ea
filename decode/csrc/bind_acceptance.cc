// How often drafted tokens are accepted, by conditional q and depth: a table read and updated in one call a step.

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
  const int32_t* depths;
  int64_t size;

  void check() const {
    for (int64_t node = 0; node < size; ++node) expect_range("parents", parents[node], -1, node - 1);
  }
};

// Bins of the table: rows by depth, columns by conditional q.
struct Bins {
  In<double, 1> edges;
  In<int32_t, 1> rows;

  int64_t columns() const { return edges.shape(0) + 1; }

  void check(size_t table_rows, size_t table_columns) const {
    expect_size("table, a column more than edges", table_columns, columns());
    expect_range("rows", rows.shape(0), 1, INT32_MAX);
    for (size_t i = 0; i < rows.shape(0); ++i) expect_range("rows", rows.data()[i], 0, table_rows - 1);
  }

  // Offset in the flat table.
  int64_t of(const Nodes& tree, int64_t node) const {
    const int64_t depth = std::clamp<int64_t>(tree.depths[node], 0, rows.shape(0) - 1);
    const int32_t parent = tree.parents[node];
    const double above = parent < 0 ? 0.0 : tree.logq[parent];
    const double q = std::exp(tree.logq[node] - above);
    return rows.data()[depth] * columns() +
           (std::upper_bound(edges.data(), edges.data() + edges.shape(0), q) - edges.data());
  }
};

Out<double> acceptance(In<float, 2> logq, In<int32_t, 2> parents, In<int32_t, 2> depths, In<double, 1> edges,
                       In<int32_t, 1> rows, In<double, 2> rates) {
  const size_t batch = logq.shape(0), n = logq.shape(1);
  for (const In<int32_t, 2>& one : {parents, depths}) {
    expect_size("parents and depths, trees", one.shape(0), batch);
    expect_size("parents and depths, nodes", one.shape(1), n);
  }
  const Bins bins{edges, rows};
  bins.check(rates.shape(0), rates.shape(1));
  auto found = make<double>({batch, n});
  for (size_t row = 0; row < batch; ++row) {
    const size_t from = row * n;
    const Nodes tree{logq.data() + from, parents.data() + from, depths.data() + from, static_cast<int64_t>(n)};
    tree.check();
    double* p = found.data + from;
    for (int64_t node = 0; node < tree.size; ++node) {
      const int32_t parent = tree.parents[node];
      p[node] = std::isinf(tree.logq[node]) ? 0.0 : (parent < 0 ? 1.0 : p[parent]) * rates.data()[bins.of(tree, node)];
    }
  }
  return found.array;
}

void count_accepted(nb::ndarray<double, nb::ndim<3>, nb::c_contig, nb::device::cpu> counts, In<double, 1> edges,
                    In<int32_t, 1> rows, const std::vector<In<float, 1>>& logq,
                    const std::vector<In<int32_t, 1>>& parents, const std::vector<In<int32_t, 1>>& depths,
                    const std::vector<std::vector<int64_t>>& accepted) {
  expect_size("counts, accepted and tested", counts.shape(0), 2);
  const Bins bins{edges, rows};
  bins.check(counts.shape(1), counts.shape(2));
  std::vector<Nodes> trees;
  for (const size_t size : {parents.size(), depths.size(), accepted.size()})
    expect_size("parents, depths and accepted, as many as logq", size, logq.size());
  for (size_t i = 0; i < logq.size(); ++i) {
    expect_size("parents", parents[i].shape(0), logq[i].shape(0));
    expect_size("depths", depths[i].shape(0), logq[i].shape(0));
    trees.push_back({logq[i].data(), parents[i].data(), depths[i].data(), static_cast<int64_t>(logq[i].shape(0))});
    trees.back().check();
    for (const int64_t node : accepted[i]) expect_range("accepted", node, 0, trees.back().size - 1);
  }
  const size_t table = counts.shape(1) * counts.shape(2);
  std::vector<char> stays;
  for (size_t i = 0; i < trees.size(); ++i) {
    stays.assign(trees[i].size, 0);
    for (const int64_t node : accepted[i]) stays[node] = 1;
    for (int64_t node = 0; node < trees[i].size; ++node) {
      const int32_t parent = trees[i].parents[node];
      if (parent >= 0 && !stays[parent]) continue;  // its parent was rejected: nothing is known of it
      const int64_t bin = bins.of(trees[i], node);
      counts.data()[bin] += stays[node];
      counts.data()[table + bin] += 1;
    }
  }
}

}  // namespace

void bind_acceptance(nb::module_& m) {
  m.def("acceptance", &acceptance, "logq"_a.noconvert(), "parents"_a.noconvert(), "depths"_a.noconvert(),
        "edges"_a.noconvert(), "rows"_a.noconvert(), "rates"_a.noconvert());
  m.def("count_accepted", &count_accepted, "counts"_a.noconvert(), "edges"_a.noconvert(), "rows"_a.noconvert(),
        "logq"_a.noconvert(), "parents"_a.noconvert(), "depths"_a.noconvert(), "accepted"_a);
}

}  // namespace rescore
