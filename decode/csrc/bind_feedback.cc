// What passes tell of drafted trees: how often tokens are accepted against their conditional q, a correction that is
// read and updated in one call a step; and predictions after rejected nodes, counted in one call instead of one per
// node.

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "arrays.h"
#include "bind_decode.h"
#include "context_model.h"

namespace rescore {

using namespace nb::literals;

namespace {

// The accepted ones of a tree's n nodes.
template <typename Numbers>
std::vector<char> marked(const Numbers& accepted, size_t count, int64_t n) {
  std::vector<char> stays(n, 0);
  for (size_t i = 0; i < count; ++i) {
    expect_range("accepted", accepted[i], 0, n - 1);
    stays[accepted[i]] = 1;
  }
  return stays;
}

void expect_parents(const int32_t* parents, int64_t n) {
  for (int64_t node = 0; node < n; ++node) expect_range("parents", parents[node], -1, node - 1);
}

// Columns [n] of a token tree; parents precede their children.
struct Nodes {
  const float* logq;
  const int32_t* parents;
  int64_t size;

  void check() const { expect_parents(parents, size); }

  // q of a node's token, given its parent.
  double conditional(int64_t node) const {
    const int32_t parent = parents[node];
    return std::exp(logq[node] - (parent < 0 ? 0.0 : logq[parent]));
  }
};

size_t bin_of(double q, In<double, 1> edges) {
  return std::upper_bound(edges.data(), edges.data() + edges.shape(0), q) - edges.data();
}

// How many tokens were accepted and expected, by bin.
void expect_counts(size_t rows, size_t bins, In<double, 1> edges) {
  expect_size("counts, accepted and expected", rows, 2);
  expect_size("counts, one more than edges", bins, edges.shape(0) + 1);
}

Out<double> acceptance(In<float, 2> logq, In<int32_t, 2> parents, In<double, 1> edges, In<double, 2> counts,
                       double credit) {
  const size_t batch = logq.shape(0), n = logq.shape(1), bins = counts.shape(1);
  expect_size("parents, trees", parents.shape(0), batch);
  expect_size("parents, nodes", parents.shape(1), n);
  expect_counts(counts.shape(0), bins, edges);
  const double *const of_accepted = counts.data(), *const of_expected = of_accepted + bins;
  const double overall =
      std::accumulate(of_accepted, of_expected, credit) / std::accumulate(of_expected, of_expected + bins, credit);
  std::vector<double> factors(bins);
  for (size_t bin = 0; bin < bins; ++bin)
    factors[bin] = (of_accepted[bin] + credit * overall) / (of_expected[bin] + credit);
  auto found = make<double>({batch, n});
  for (size_t row = 0; row < batch; ++row) {
    const size_t from = row * n;
    const Nodes tree{logq.data() + from, parents.data() + from, static_cast<int64_t>(n)};
    tree.check();
    double* p = found.data + from;
    for (int64_t node = 0; node < tree.size; ++node) {
      const int32_t parent = tree.parents[node];
      const double q = std::isinf(tree.logq[node]) ? 0.0 : tree.conditional(node);
      p[node] = (parent < 0 ? 1.0 : p[parent]) * std::min(1.0, q * factors[bin_of(q, edges)]);
    }
  }
  return found.array;
}

void count_accepted(nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu> counts, In<double, 1> edges,
                    const std::vector<In<float, 1>>& logq, const std::vector<In<int32_t, 1>>& parents,
                    const std::vector<std::vector<int64_t>>& accepted) {
  expect_counts(counts.shape(0), counts.shape(1), edges);
  for (const size_t size : {parents.size(), accepted.size()})
    expect_size("parents and accepted, as many as logq", size, logq.size());
  std::vector<Nodes> trees;
  std::vector<std::vector<char>> stays;
  for (size_t i = 0; i < logq.size(); ++i) {
    expect_size("parents", parents[i].shape(0), logq[i].shape(0));
    trees.push_back({logq[i].data(), parents[i].data(), static_cast<int64_t>(logq[i].shape(0))});
    trees.back().check();
    stays.push_back(marked(accepted[i], accepted[i].size(), trees.back().size));
  }
  double *const of_accepted = counts.data(), *const of_expected = counts.data() + counts.shape(1);
  for (size_t i = 0; i < trees.size(); ++i) {
    for (int64_t node = 0; node < trees[i].size; ++node) {
      const int32_t parent = trees[i].parents[node];
      if (parent >= 0 && !stays[i][parent]) continue;  // its parent was rejected: nothing is known of it
      const double q = trees[i].conditional(node);
      const size_t bin = bin_of(q, edges);
      of_accepted[bin] += stays[i][node];
      of_expected[bin] += q;
    }
  }
}

// A drafted tree [n], and the prediction after each node.
struct ReadTree {
  In<int32_t, 1> tokens, parents;
  In<int32_t, 2> ids;
  In<float, 2> p;

  int64_t size() const { return tokens.shape(0); }

  Prediction behind(int64_t node) const {
    const size_t k = ids.shape(1), from = node * k;
    Prediction found{ids.data() + from, p.data() + from, 0};
    while (found.size < static_cast<int>(k) && found.ids[found.size] >= 0) ++found.size;
    return found;
  }

  void check() const {
    const size_t n = tokens.shape(0);
    expect_size("parents", parents.shape(0), n);
    expect_size("ids, one row for each node", ids.shape(0), n);
    expect_size("p, one row for each node", p.shape(0), n);
    expect_size("p, as many columns as ids", p.shape(1), ids.shape(1));
    expect_tokens("drafted", tokens);
    expect_parents(parents.data(), n);
    for (size_t i = 0; i < p.size(); ++i)
      if (ids.data()[i] >= 0 && !(p.data()[i] >= 0 && p.data()[i] <= 1))
        throw std::invalid_argument("p[" + std::to_string(i / p.shape(1)) + ", " + std::to_string(i % p.shape(1)) +
                                    "]: expected a probability, got " + std::to_string(p.data()[i]));
  }
};

void foresee_rejected(ContextModel& text, In<int32_t, 1> drafted, In<int32_t, 1> parents, In<int32_t, 1> accepted,
                      In<int32_t, 2> ids, In<float, 2> p) {
  const ReadTree tree{drafted, parents, ids, p};
  tree.check();
  const std::vector<char> stays = marked(accepted.data(), accepted.shape(0), tree.size());
  nb::gil_scoped_release release;
  ContextCounts& counts = text.counts();
  const std::lock_guard writing(counts.mutex());
  std::vector<ContextCounts::Place> places;
  for (int64_t node = 0; node < tree.size(); ++node) {
    const int32_t parent = parents.data()[node];
    places.push_back(counts.after(parent < 0 ? text.place() : places[parent], drafted.data()[node]));
    if (!stays[node]) counts.foresee(places[node], tree.behind(node));
  }
}

}  // namespace

void bind_feedback(nb::module_& m) {
  m.def("acceptance", &acceptance, "logq"_a.noconvert(), "parents"_a.noconvert(), "edges"_a.noconvert(),
        "counts"_a.noconvert(), "credit"_a);
  m.def("count_accepted", &count_accepted, "counts"_a.noconvert(), "edges"_a.noconvert(), "logq"_a.noconvert(),
        "parents"_a.noconvert(), "accepted"_a);
  m.def("foresee_rejected", &foresee_rejected, "text"_a, "drafted"_a.noconvert(), "parents"_a.noconvert(),
        "accepted"_a.noconvert(), "ids"_a.noconvert(), "p"_a.noconvert());
}

}  // namespace rescore
