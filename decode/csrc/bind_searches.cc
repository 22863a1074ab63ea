// What Python sees of the searches: dtype and shape checks, then free functions on flat arrays.

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "batch.h"
#include "batch_trees.h"
#include "best_paths.h"
#include "best_tree.h"
#include "bind_decode.h"
#include "context_model.h"
#include "model.h"
#include "open_tree.h"
#include "parallel.h"

namespace rescore {

using namespace nb::literals;

namespace {

nb::object best_paths(const nb::list& lms, In<int32_t, 2> histories, In<int32_t, 3> ids, In<float, 3> cost,
                      In<double, 2> alpha, int paths, bool epsilon, int threads, const nb::object& out) {
  const Batch batch(ModelList(lms), histories, ids, cost, alpha);
  expect_range("paths p", paths, 1, kMaxPaths);
  expect_range("threads", threads, 1, 1024);
  if (epsilon && batch.models.size() > 1)
    throw nb::value_error("epsilon semantics: expected one model, got several; use failure semantics");
  const size_t p = paths;
  const Answer<int32_t, 3> tokens("tokens", given(out, 0, 3), {batch.rows, p, batch.slots});
  const Answer<float, 2> costs("cost", given(out, 1, 3), {batch.rows, p});
  const Answer<int32_t, 1> counts("count", given(out, 2, 3), {batch.rows});
  {
    nb::gil_scoped_release release;
    parallel_for(batch.rows, threads, [&](int64_t b) {
      thread_local PathSearch search;
      counts.data[b] = search.run(batch.models, batch.sausage(b), batch.start(b),
                                  epsilon ? Semantics::kEpsilon : Semantics::kFailure,
                                  {tokens.data + b * p * batch.slots, costs.data + b * p, paths});
    });
  }
  return out.is_none() ? nb::make_tuple(tokens.array, costs.array, counts.array) : out;
}

// A thread grows the trees of some lattices in turns.
void best_trees(const Batch& batch, int threads, const Trees& trees) {
  const int64_t rows = batch.rows, each = std::clamp<int64_t>((rows + threads - 1) / threads, 1, kTurns);
  parallel_for((rows + each - 1) / each, threads, [&](int64_t group) {
    thread_local std::array<LatticeTreeSearch, kTurns> searches;
    const int64_t first = group * each;
    const int count = std::min(each, rows - first);
    for (int i = 0; i < count; ++i)
      searches[i].begin(batch.models, batch.sausage(first + i), batch.start(first + i), trees.of(first + i));
    grow_trees(searches.data(), count);
    for (int i = 0; i < count; ++i) trees.counts[first + i] = searches[i].found();
  });
}

nb::object best_tree(const nb::list& lms, In<int32_t, 2> histories, In<int32_t, 3> ids, In<float, 3> cost,
                     In<double, 2> alpha, int nodes, int threads, const nb::object& out) {
  const Batch batch(ModelList(lms), histories, ids, cost, alpha);
  expect_range("threads", threads, 1, 1024);
  return trees(batch.rows, nodes, out, [&](const Trees& trees) { best_trees(batch, threads, trees); });
}

// weights [3, slots]: head, prior, floor; alpha [1, slots]. texts: none, or one for each lattice.
nb::object open_tree(const Model& model, In<int32_t, 2> histories, In<int32_t, 3> ids, In<float, 3> cost,
                     In<double, 2> alpha, In<double, 2> weights, bool open,
                     const std::vector<const ContextModel*>& texts, In<double, 1> strength, int nodes, int threads) {
  const Batch batch(ModelList(model), histories, ids, cost, alpha);
  const Automaton& lm = model.lm();
  expect_size("weights: head, prior, floor", weights.shape(0), 3);
  expect_size("weights, of every slot", weights.shape(1), batch.slots);
  if (!texts.empty()) expect_size("texts", texts.size(), batch.rows);
  for (const ContextModel* text : texts) {
    if (!text) throw nb::type_error("texts: expected context models, got None");
    expect_size("strength, of every order", strength.shape(0), text->order());
    if (text->greatest_token() >= lm.vocab_size)
      throw std::out_of_range("texts: expected token ids below the model's vocabulary size " +
                              std::to_string(lm.vocab_size) + ", got " + std::to_string(text->greatest_token()));
  }
  const ContextModel::Reading reading(texts);
  const double* of = weights.data();
  const OpenWeights of_slots{of, alpha.data(), of + batch.slots, of + 2 * batch.slots};
  expect_range("threads", threads, 1, 1024);
  return trees(batch.rows, nodes, nb::none(), [&](const Trees& trees) {
    parallel_for(batch.rows, threads, [&](int64_t b) {
      thread_local OpenTreeSearch search;
      const TextSource text{texts.empty() ? nullptr : texts[b], strength.data()};
      trees.counts[b] =
          search.run(lm, batch.start(b)[0], batch.sausage(b), of_slots, open, &text, !texts.empty(), trees.of(b));
    });
  });
}

}  // namespace

void bind_searches(nb::module_& m) {
  m.def("best_paths", &best_paths, "models"_a, nb::arg("histories").noconvert(), nb::arg("ids").noconvert(),
        nb::arg("cost").noconvert(), nb::arg("alpha").noconvert(), nb::kw_only(), "paths"_a, "epsilon"_a = false,
        "threads"_a = 1, "out"_a = nb::none());
  m.def("best_tree", &best_tree, "models"_a, nb::arg("histories").noconvert(), nb::arg("ids").noconvert(),
        nb::arg("cost").noconvert(), nb::arg("alpha").noconvert(), nb::kw_only(), "nodes"_a, "threads"_a = 1,
        "out"_a = nb::none());
  m.def("open_tree", &open_tree, "model"_a, nb::arg("histories").noconvert(), nb::arg("ids").noconvert(),
        nb::arg("cost").noconvert(), nb::arg("alpha").noconvert(), nb::arg("weights").noconvert(), nb::kw_only(),
        "open"_a, "texts"_a, nb::arg("strength").noconvert(), "nodes"_a, "threads"_a = 1);
}

}  // namespace rescore
