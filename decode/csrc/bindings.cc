// Everything that Python sees of the core: dtype and shape checks, then free functions on flat arrays.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>

#include "best_paths.h"
#include "best_tree.h"
#include "counting_bindings.h"
#include "parallel.h"
#include "walk_bindings.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace rescore;

namespace {

template <typename T, int Dims>
using In = nb::ndarray<const T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<nb::numpy, T>;

template <typename T>
struct Owned {
  T* data;
  Out<T> array;
};

template <typename T>
Owned<T> make(std::initializer_list<size_t> shape) {
  size_t size = 1;
  for (const size_t extent : shape) size *= extent;
  T* data = new T[std::max<size_t>(size, 1)];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return {data, Out<T>(data, shape, owner)};
}

void expect_size(const char* name, size_t got, size_t expected) {
  if (got != expected)
    throw nb::value_error((std::string(name) + ": expected " + std::to_string(expected) + " entries, got " + std::to_string(got)).c_str());
}

void expect_range(const char* name, int64_t got, int64_t low, int64_t high) {
  if (got < low || got > high)
    throw nb::value_error((std::string(name) + ": expected " + std::to_string(low) + " to " + std::to_string(high) + ", got " + std::to_string(got)).c_str());
}

// An automaton and the Python arrays that it reads.
class Model {
 public:
  Model(In<uint64_t, 1> arc_begin, nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu, nb::ro> arc_token, In<float, 1> arc_cost,
        In<uint32_t, 1> arc_next, In<uint32_t, 1> backoff_state, In<float, 1> backoff_cost, uint32_t order, uint32_t vocab_size)
      : arc_begin_(arc_begin), arc_token_(arc_token), arc_cost_(arc_cost), arc_next_(arc_next), backoff_state_(backoff_state),
        backoff_cost_(backoff_cost), automaton_(std::make_unique<Automaton>()) {
    Automaton& lm = *automaton_;
    if (arc_token.dtype() == nb::dtype<uint16_t>()) {
      lm.token16 = static_cast<const uint16_t*>(arc_token.data());
    } else if (arc_token.dtype() == nb::dtype<uint32_t>()) {
      lm.token32 = static_cast<const uint32_t*>(arc_token.data());
    } else {
      throw nb::type_error("arc_token: expected an array of uint16 or uint32");
    }
    lm.num_states = backoff_state.shape(0);
    lm.num_arcs = arc_token.shape(0);
    expect_size("arc_begin", arc_begin.shape(0), lm.num_states + 1);
    expect_size("backoff_cost", backoff_cost.shape(0), lm.num_states);
    expect_size("arc_cost", arc_cost.shape(0), lm.num_arcs);
    expect_size("arc_next", arc_next.shape(0), lm.num_arcs);
    lm.arc_begin = arc_begin.data();
    lm.arc_cost = arc_cost.data();
    lm.arc_next = arc_next.data();
    lm.backoff_state = backoff_state.data();
    lm.backoff_cost = backoff_cost.data();
    lm.order = order;
    lm.vocab_size = vocab_size;
    lm.check_header();
  }

  const Automaton& lm() const { return *automaton_; }

 private:
  In<uint64_t, 1> arc_begin_;
  nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu, nb::ro> arc_token_;
  In<float, 1> arc_cost_;
  In<uint32_t, 1> arc_next_, backoff_state_;
  In<float, 1> backoff_cost_;
  std::unique_ptr<Automaton> automaton_;
};

void expect_token(const Automaton& lm, int64_t token, const char* name, size_t index) {
  if (token < 0 || token >= lm.vocab_size)
    throw nb::value_error((std::string(name) + "[" + std::to_string(index) + "]: expected a token id in [0, " + std::to_string(lm.vocab_size) +
                           "), got " + std::to_string(token)).c_str());
}

void expect_state(const Automaton& lm, uint64_t state) {
  if (state >= lm.num_states)
    throw nb::value_error(("state: expected a state below " + std::to_string(lm.num_states) + ", got " + std::to_string(state)).c_str());
}

uint32_t start(const Model& model, In<int32_t, 1> history) { return model.lm().start(history.data(), history.shape(0)); }

Out<uint32_t> start_batch(const Model& model, In<int32_t, 2> histories, int threads) {
  const size_t rows = histories.shape(0), width = histories.shape(1);
  auto out = make<uint32_t>({rows});
  const Automaton& lm = model.lm();
  nb::gil_scoped_release release;
  parallel_for(rows, threads, [&](int64_t b) {
    const int32_t* row = histories.data() + b * width;
    size_t first = 0;  // padding -1 comes first in a history shorter than the row
    while (first < width && row[first] == -1) ++first;
    out.data[b] = lm.start(row + first, width - first);
  });
  return out.array;
}

std::tuple<uint32_t, double> step(const Model& model, uint64_t state, int64_t token) {
  expect_state(model.lm(), state);
  expect_token(model.lm(), token, "token", 0);
  const Step taken = model.lm().step(static_cast<uint32_t>(state), static_cast<uint32_t>(token));
  return {taken.next, taken.cost};
}

std::tuple<Out<float>, Out<uint32_t>> score(const Model& model, In<int32_t, 1> tokens, In<int64_t, 1> offsets, In<uint32_t, 1> states) {
  const Automaton& lm = model.lm();
  const size_t rows = states.shape(0), total = tokens.shape(0);
  expect_size("offsets", offsets.shape(0), rows + 1);
  for (size_t b = 0; b < rows; ++b) {
    expect_state(lm, states.data()[b]);
    if (offsets.data()[b] < 0 || offsets.data()[b] > offsets.data()[b + 1])
      throw nb::value_error(("offsets[" + std::to_string(b) + "]: expected offsets that ascend from 0").c_str());
  }
  if (offsets.data()[0] != 0) throw nb::value_error("offsets[0]: expected 0");
  expect_size("tokens", total, offsets.data()[rows]);
  for (size_t i = 0; i < total; ++i) expect_token(lm, tokens.data()[i], "tokens", i);
  auto cost = make<float>({total});
  auto end = make<uint32_t>({rows});
  {
    nb::gil_scoped_release release;
    for (size_t b = 0; b < rows; ++b) {
      uint32_t state = states.data()[b];
      for (int64_t i = offsets.data()[b]; i < offsets.data()[b + 1]; ++i) {
        const Step taken = lm.step(state, tokens.data()[i]);
        cost.data[i] = static_cast<float>(taken.cost);
        state = taken.next;
      }
      end.data[b] = state;
    }
  }
  return {cost.array, end.array};
}

Out<float> distribution(const Model& model, uint64_t state) {
  const Automaton& lm = model.lm();
  expect_state(lm, state);
  auto cost = make<float>({lm.vocab_size});
  nb::gil_scoped_release release;
  lm.distribution(static_cast<uint32_t>(state), cost.data);
  return cost.array;
}

// The shapes of a batch of lattices with the models that rescore it, checked.
struct Batch {
  Models models;
  const int32_t* ids;
  const float* cost;
  const uint32_t* states;
  size_t rows, slots, width;

  Batch(const std::vector<const Model*>& lms, In<uint32_t, 2> states, In<int32_t, 3> ids, In<float, 3> cost, In<double, 2> alpha)
      : ids(ids.data()), cost(cost.data()), states(states.data()), rows(ids.shape(0)), slots(ids.shape(1)), width(ids.shape(2)) {
    expect_range("models", lms.size(), 0, kMaxModels);
    expect_range("slots T", slots, 1, kMaxSlots);
    expect_range("candidates K", width, 1, kMaxCandidates);
    expect_size("cost", cost.size(), ids.size());
    expect_size("states, of every model", states.shape(0), lms.size());
    if (!lms.empty()) expect_size("states, of every lattice", states.shape(1), rows);
    expect_size("alpha, of every model", alpha.shape(0), lms.size());
    if (!lms.empty()) expect_size("alpha, of every slot", alpha.shape(1), slots);
    models.slots = static_cast<int>(slots);
    models.alpha.assign(alpha.data(), alpha.data() + alpha.size());
    for (size_t j = 0; j < lms.size(); ++j) {
      if (!lms[j]) throw nb::type_error("models: expected automata, got None");
      models.lm.push_back(&lms[j]->lm());
      for (size_t b = 0; b < rows; ++b) expect_state(lms[j]->lm(), states.data()[j * rows + b]);
    }
  }

  Sausage sausage(int64_t b) const {
    const Sausage lattice{ids + b * slots * width, cost + b * slots * width, static_cast<int>(slots), static_cast<int>(width)};
    for (size_t i = 0; i < slots * width; ++i)
      for (const Automaton* lm : models.lm)
        if (lattice.ids[i] < -1 || (lattice.ids[i] >= 0 && static_cast<uint32_t>(lattice.ids[i]) >= lm->vocab_size))
          throw std::out_of_range("lattice " + std::to_string(b) + ", slot " + std::to_string(i / width) + ", rank " + std::to_string(i % width) +
                                  ": expected a token id below the model's vocabulary size " + std::to_string(lm->vocab_size) + ", got " +
                                  std::to_string(lattice.ids[i]));
    return lattice;
  }

  States start(int64_t b) const {
    States start{};
    for (int j = 0; j < models.size(); ++j) start[j] = states[j * rows + b];
    return start;
  }
};

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
  nb::class_<Model>(m, "Automaton")
      .def(nb::init<In<uint64_t, 1>, nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu, nb::ro>, In<float, 1>, In<uint32_t, 1>, In<uint32_t, 1>,
                    In<float, 1>, uint32_t, uint32_t>(),
           nb::arg("arc_begin").noconvert(), nb::arg("arc_token").noconvert(), nb::arg("arc_cost").noconvert(), nb::arg("arc_next").noconvert(),
           nb::arg("backoff_state").noconvert(), nb::arg("backoff_cost").noconvert(), nb::kw_only(), "order"_a, "vocab_size"_a)
      .def_prop_ro("num_states", [](const Model& model) { return model.lm().num_states; })
      .def_prop_ro("num_arcs", [](const Model& model) { return model.lm().num_arcs; })
      .def_prop_ro("order", [](const Model& model) { return model.lm().order; })
      .def_prop_ro("vocab_size", [](const Model& model) { return model.lm().vocab_size; })
      .def("check", [](const Model& model) { model.lm().check(); }, nb::call_guard<nb::gil_scoped_release>())
      .def("start", &start, nb::arg("history").noconvert())
      .def("start_batch", &start_batch, nb::arg("histories").noconvert(), "threads"_a = 1)
      .def("step", &step, "state"_a, "token"_a)
      .def("score", &score, nb::arg("tokens").noconvert(), nb::arg("offsets").noconvert(), nb::arg("states").noconvert())
      .def("walk", [](const Model& model, In<int32_t, 1> tokens, uint64_t state) { return py_walk(model.lm(), tokens, state); },
           nb::arg("tokens").noconvert(), "state"_a)
      .def("distribution", &distribution, "state"_a);
  bind_counting(m);
  bind_levels(m);
  m.def("best_paths", &best_paths, "models"_a, nb::arg("states").noconvert(), nb::arg("ids").noconvert(), nb::arg("cost").noconvert(),
        nb::arg("alpha").noconvert(), nb::kw_only(), "paths"_a, "epsilon"_a = false, "threads"_a = 1);
  m.def("best_tree", &best_tree, "models"_a, nb::arg("states").noconvert(), nb::arg("ids").noconvert(), nb::arg("cost").noconvert(),
        nb::arg("alpha").noconvert(), nb::kw_only(), "nodes"_a, "threads"_a = 1);
  m.def("model_tree", &model_tree, "model"_a, nb::arg("states").noconvert(), nb::kw_only(), "slots"_a, "nodes"_a, "threads"_a = 1);
}
