// Everything that Python sees of the core: dtype and shape checks, then free functions on flat arrays.

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "batch.h"
#include "batch_trees.h"
#include "best_paths.h"
#include "best_tree.h"
#include "bind_normalised.h"
#include "counting_bindings.h"
#include "model.h"
#include "parallel.h"

using namespace rescore;
using namespace nb::literals;

namespace {

std::tuple<Out<int32_t>, Out<float>, Out<int32_t>> best_paths(const std::vector<const Model*>& lms, In<uint32_t, 2> states, In<int32_t, 3> ids,
                                                              In<float, 3> cost, In<double, 2> alpha, int paths, bool epsilon, int threads) {
  const Batch batch(lms, states, ids, cost, alpha);
  expect_range("paths p", paths, 1, 1024);
  expect_range("threads", threads, 1, 1024);
  if (epsilon && lms.size() > 1) throw nb::value_error("epsilon semantics: expected one model, got several; use failure semantics");
  auto tokens = make<int32_t>({batch.rows, static_cast<size_t>(paths), batch.slots});
  auto costs = make<float>({batch.rows, static_cast<size_t>(paths)});
  auto counts = make<int32_t>({batch.rows});
  {
    nb::gil_scoped_release release;
    parallel_for(batch.rows, threads, [&](int64_t b) {
      thread_local PathSearch search;
      counts.data[b] = search.run(batch.models, batch.sausage(b), batch.start(b), epsilon ? Semantics::kEpsilon : Semantics::kFailure,
                                  {tokens.data + b * paths * batch.slots, costs.data + b * paths, paths});
    });
  }
  return {tokens.array, costs.array, counts.array};
}

Trees best_tree(const std::vector<const Model*>& lms, In<uint32_t, 2> states, In<int32_t, 3> ids, In<float, 3> cost, In<double, 2> alpha, int nodes,
                int threads) {
  const Batch batch(lms, states, ids, cost, alpha);
  return trees(batch.rows, nodes, threads, [&](int64_t b, TreeOutput out) {
    thread_local LatticeTreeSearch search;
    return search.run(batch.models, batch.sausage(b), batch.start(b), out);
  });
}

Trees model_tree(const Model& model, In<uint32_t, 1> states, int slots, int nodes, int threads) {
  const Automaton& lm = model.lm();
  expect_range("slots T", slots, 1, kMaxSlots);
  for (size_t b = 0; b < states.shape(0); ++b) expect_state(lm, states.data()[b]);
  return trees(states.shape(0), nodes, threads, [&](int64_t b, TreeOutput out) {
    thread_local ModelTreeSearch search;
    return search.run(lm, states.data()[b], slots, out);
  });
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "Native core of rescore; the functions are documented in _core.pyi.";
  nb::set_leak_warnings(false);
  bind_model(m);
  bind_normalised(m);
  bind_counting(m);
  bind_levels(m);
  m.def("best_paths", &best_paths, "models"_a, nb::arg("states").noconvert(), nb::arg("ids").noconvert(), nb::arg("cost").noconvert(),
        nb::arg("alpha").noconvert(), nb::kw_only(), "paths"_a, "epsilon"_a = false, "threads"_a = 1);
  m.def("best_tree", &best_tree, "models"_a, nb::arg("states").noconvert(), nb::arg("ids").noconvert(), nb::arg("cost").noconvert(),
        nb::arg("alpha").noconvert(), nb::kw_only(), "nodes"_a, "threads"_a = 1);
  m.def("model_tree", &model_tree, "model"_a, nb::arg("states").noconvert(), nb::kw_only(), "slots"_a, "nodes"_a, "threads"_a = 1);
}
