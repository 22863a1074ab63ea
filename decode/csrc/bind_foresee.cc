// Counts the predictions after a tree's rejected nodes in the running text, in one call instead of one per node.

#include <nanobind/nanobind.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "arrays.h"
#include "bind_decode.h"
#include "context_model.h"

namespace rescore {

using namespace nb::literals;

namespace {

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

  // The tokens on the path from below the root to a node.
  void draft(int64_t node, std::vector<int32_t>& found) const {
    found.clear();
    for (; node >= 0; node = parents.data()[node]) found.push_back(tokens.data()[node]);
    std::reverse(found.begin(), found.end());
  }

  void check() const {
    const size_t n = tokens.shape(0);
    expect_size("parents", parents.shape(0), n);
    expect_size("ids, one row for each node", ids.shape(0), n);
    expect_size("p, one row for each node", p.shape(0), n);
    expect_size("p, as many columns as ids", p.shape(1), ids.shape(1));
    for (size_t i = 0; i < n; ++i) {
      expect_range("drafted", tokens.data()[i], 0, INT32_MAX);
      expect_range("parents", parents.data()[i], -1, static_cast<int64_t>(i) - 1);
    }
    for (size_t i = 0; i < p.size(); ++i)
      if (ids.data()[i] >= 0 && !(p.data()[i] >= 0 && p.data()[i] <= 1))
        throw nb::value_error(("p[" + std::to_string(i / p.shape(1)) + ", " + std::to_string(i % p.shape(1)) +
                               "]: expected a probability, got " + std::to_string(p.data()[i]))
                                  .c_str());
  }
};

void foresee_rejected(ContextModel& text, In<int32_t, 1> drafted, In<int32_t, 1> parents, In<int32_t, 1> accepted,
                      In<int32_t, 2> ids, In<float, 2> p) {
  const ReadTree tree{drafted, parents, ids, p};
  tree.check();
  std::vector<char> stays(tree.size(), 0);
  for (size_t i = 0; i < accepted.shape(0); ++i) {
    expect_range("accepted", accepted.data()[i], 0, tree.size() - 1);
    stays[accepted.data()[i]] = 1;
  }
  nb::gil_scoped_release release;
  const std::lock_guard writing(text.counts().mutex());
  std::vector<int32_t> draft;
  for (int64_t node = 0; node < tree.size(); ++node) {
    if (stays[node]) continue;
    tree.draft(node, draft);
    text.foresee(draft.data(), draft.size(), tree.behind(node));
  }
}

}  // namespace

void bind_foresee(nb::module_& m) {
  m.def("foresee_rejected", &foresee_rejected, "text"_a, nb::arg("drafted").noconvert(), nb::arg("parents").noconvert(),
        nb::arg("accepted").noconvert(), nb::arg("ids").noconvert(), nb::arg("p").noconvert());
}

}  // namespace rescore
