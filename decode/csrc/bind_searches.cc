// Python bindings of the searches: checks of dtypes and shapes, then free functions on flat arrays.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <shared_mutex>

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
                      In<double, 2> alpha, int paths, int threads, const nb::object& out) {
  const Batch batch(ModelList(lms), histories, ids, cost, alpha);
  expect_range("paths p", paths, 1, kMaxPaths);
  expect_range("threads", threads, 1, 1024);
  const size_t p = paths;
  const Answer<int32_t, 3> tokens("tokens", given(out, 0, 3), {batch.rows, p, batch.slots});
  const Answer<float, 2> costs("cost", given(out, 1, 3), {batch.rows, p});
  const Answer<int32_t, 1> counts("count", given(out, 2, 3), {batch.rows});
  {
    nb::gil_scoped_release release;
    parallel_for(batch.rows, threads, [&](int64_t b) {
      thread_local PathSearch search;
      counts.data[b] = search.run(batch.models, batch.sausage(b), batch.starts(b),
                                  {tokens.data + b * p * batch.slots, costs.data + b * p, paths});
    });
  }
  return out.is_none() ? nb::make_tuple(tokens.array, costs.array, counts.array) : out;
}

// Each thread grows the trees of some lattices, interleaved.
void best_trees(const Batch& batch, int threads, const Trees& trees) {
  const int64_t rows = batch.rows, each = std::clamp<int64_t>((rows + threads - 1) / threads, 1, kTurns);
  parallel_for((rows + each - 1) / each, threads, [&](int64_t group) {
    thread_local std::array<LatticeTreeSearch, kTurns> searches;
    const int64_t first = group * each;
    const int count = std::min(each, rows - first);
    for (int i = 0; i < count; ++i)
      searches[i].begin(batch.models, batch.sausage(first + i), batch.starts(first + i), trees.of(first + i));
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

// The running texts of a call and the memory, locked against changes during the search.
class ReadTexts {
 public:
  ReadTexts(const std::vector<const ContextModel*>& texts, const ContextModel* memory, uint32_t vocab_size)
      : texts_(texts), memory_(memory) {
    held_.reserve(texts.size() + 1);
    for (const ContextModel* text : texts) hold(*text, vocab_size);
    if (memory) hold(*memory, vocab_size);
  }

  int of(int64_t b, const Batch& batch, TextSource* sources) const {
    int count = 0;
    if (!texts_.empty()) sources[count++] = {texts_[b], texts_[b]->state()};
    if (memory_) sources[count++] = {memory_, memory_->state_after(batch.histories + b * batch.context, batch.context)};
    return count;
  }

 private:
  void hold(const ContextModel& text, uint32_t vocab_size) {
    held_.emplace_back(text.mutex());
    if (text.greatest_token() >= vocab_size)
      throw std::invalid_argument("texts: expected token ids below the model's vocabulary size " +
                                  std::to_string(vocab_size) + ", got " + std::to_string(text.greatest_token()));
  }

  const std::vector<const ContextModel*>& texts_;
  const ContextModel* memory_;
  std::vector<std::shared_lock<ManyReaders>> held_;
};

// weights [3, slots]: head, prior, floor; alpha [1, slots]; lattices may have 0 slots. texts: none, or one per lattice.
// memory: earlier texts shared by all lattices; its context is the end of each history.
nb::object open_tree(const Model& model, In<int32_t, 2> histories, In<int32_t, 3> ids, In<float, 3> cost,
                     In<double, 2> alpha, In<double, 2> weights, bool open,
                     const std::vector<const ContextModel*>& texts, const ContextModel* memory, double least, int depth,
                     int nodes, int threads) {
  const Batch batch(ModelList(model), histories, ids, cost, alpha, 0);
  const Automaton& lm = model.lm();
  expect_size("weights: head, prior, floor", weights.shape(0), 3);
  expect_size("weights, one per slot", weights.shape(1), batch.slots);
  if (!texts.empty()) expect_size("texts", texts.size(), batch.rows);
  for (const ContextModel* text : texts)
    if (!text) throw nb::type_error("texts: expected context models, got None");
  const double* of = weights.data();
  const OpenWeights of_slots{of, alpha.data(), of + batch.slots, of + 2 * batch.slots};
  expect_range("threads", threads, 1, 1024);
  expect_range("depth", depth, 1, kMaxNodes);
  if (!(least >= 0 && least <= 1)) throw std::invalid_argument("least: expected a probability, 0 to 1");
  return trees(batch.rows, nodes, nb::none(), [&](const Trees& trees) {
    const ReadTexts read(texts, memory, lm.vocab_size);
    parallel_for(batch.rows, threads, [&](int64_t b) {
      thread_local OpenTreeSearch search;
      std::array<TextSource, TextBlend::kMaxTexts> sources;
      const int count = read.of(b, batch, sources.data());
      trees.counts[b] = search.run(lm, batch.states(b)[0], batch.sausage(b), of_slots, open, sources.data(), count,
                                   depth, least, trees.of(b));
    });
  });
}

}  // namespace

void bind_searches(nb::module_& m) {
  m.def("best_paths", &best_paths, "models"_a, nb::arg("histories").noconvert(), nb::arg("ids").noconvert(),
        nb::arg("cost").noconvert(), nb::arg("alpha").noconvert(), nb::kw_only(), "paths"_a, "threads"_a = 1,
        "out"_a = nb::none());
  m.def("best_tree", &best_tree, "models"_a, nb::arg("histories").noconvert(), nb::arg("ids").noconvert(),
        nb::arg("cost").noconvert(), nb::arg("alpha").noconvert(), nb::kw_only(), "nodes"_a, "threads"_a = 1,
        "out"_a = nb::none());
  m.def("open_tree", &open_tree, "model"_a, nb::arg("histories").noconvert(), nb::arg("ids").noconvert(),
        nb::arg("cost").noconvert(), nb::arg("alpha").noconvert(), nb::arg("weights").noconvert(), nb::kw_only(),
        "open"_a, "texts"_a, "memory"_a = nb::none(), "least"_a = 0.0, "depth"_a, "nodes"_a, "threads"_a = 1);
}

}  // namespace rescore
