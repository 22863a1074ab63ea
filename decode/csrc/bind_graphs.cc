// Python bindings of the search of graphs.

#include <nanobind/stl/string.h>

#include "batch.h"
#include "best_paths.h"
#include "bind_decode.h"
#include "graph_paths.h"
#include "nodes.h"
#include "parallel.h"

namespace rescore {

using namespace nb::literals;

namespace {

[[noreturn]] void refuse(size_t graph, int64_t arc, const std::string& expected, int64_t got) {
  throw std::invalid_argument("graph " + std::to_string(graph) + ", arc " + std::to_string(arc) + ": expected " +
                              expected + ", got " + std::to_string(got));
}

// An array of a graph; another dtype is a TypeError.
template <typename T, int Dims>
In<T, Dims> array_of(const nb::handle& item, const char* name) {
  In<T, Dims> array;
  if (!nb::try_cast(item, array, false))
    throw nb::type_error((std::string("graph: ") + name + ": expected a contiguous array of its dtype").c_str());
  return array;
}

// A graph from (first [S + 1], targets [A], tokens [A], cost [A], labels [J, A]); every index is checked.
Graph graph_of(size_t number, const nb::handle& item, const std::vector<const Automaton*>& lms) {
  const auto parts = nb::cast<nb::tuple>(item);
  expect_size("graph: first, targets, tokens, cost, labels", parts.size(), 5);
  const auto first = array_of<int64_t, 1>(parts[0], "first");
  const auto targets = array_of<int32_t, 1>(parts[1], "targets");
  const auto tokens = array_of<int32_t, 1>(parts[2], "tokens");
  const auto cost = array_of<double, 1>(parts[3], "cost");
  const auto labels = array_of<int32_t, 2>(parts[4], "labels");
  const auto arcs = static_cast<int64_t>(targets.size());
  expect_range("graph: states", static_cast<int64_t>(first.size()) - 1, 1, kNone - 1);
  expect_range("graph: arcs", arcs, 0, kMaxTransitions);
  expect_size("graph: tokens", tokens.size(), targets.size());
  expect_size("graph: cost", cost.size(), targets.size());
  expect_size("graph: labels, one row per model", labels.shape(0), lms.size());
  expect_size("graph: labels", labels.size(), targets.size() * lms.size());
  Graph graph{first.data(), targets.data(), tokens.data(), cost.data(), {}, static_cast<int64_t>(first.size()) - 1};
  if (graph.first[0] != 0 || graph.first[graph.states] != arcs ||
      !std::is_sorted(graph.first, first.data() + first.size()))
    throw std::invalid_argument("graph " + std::to_string(number) + ": expected arcs by state");
  for (int64_t state = 0; state < graph.states; ++state)
    for (int64_t arc = graph.first[state]; arc < graph.first[state + 1]; ++arc)
      if (graph.targets[arc] <= state || graph.targets[arc] >= graph.states)
        refuse(number, arc, "a state after " + std::to_string(state) + " and below " + std::to_string(graph.states),
               graph.targets[arc]);
  for (size_t j = 0; j < lms.size(); ++j) {
    graph.labels.push_back(labels.data() + j * arcs);
    for (int64_t arc = 0; arc < arcs; ++arc)
      if (const int32_t label = graph.labels[j][arc]; label < -1 || label >= static_cast<int64_t>(lms[j]->vocab_size))
        refuse(number, arc, "-1 or a token id below " + std::to_string(lms[j]->vocab_size), label);
  }
  return graph;
}

nb::list best_strings(const nb::list& models, const nb::list& graphs, In<uint32_t, 2> starts, In<double, 1> alpha,
                      int paths, int64_t most, int threads) {
  const ModelList list(models);
  std::vector<const Automaton*> lms;
  for (size_t j = 0; j < list.count; ++j) lms.push_back(&list.model[j]->lm());
  expect_range("paths p", paths, 1, kMaxPaths);
  expect_range("most", most, 1, kMaxTransitions);
  expect_range("threads", threads, 1, 1024);
  expect_size("alpha", alpha.size(), lms.size());
  expect_size("starts, one row per graph", starts.shape(0), graphs.size());
  expect_size("starts, one per model", starts.shape(1), lms.size());
  for (size_t i = 0; i < starts.size(); ++i) expect_state(*lms[i % lms.size()], starts.data()[i]);
  std::vector<Graph> read;
  for (const nb::handle item : graphs) read.push_back(graph_of(read.size(), item, lms));
  std::vector<GraphPaths> found(read.size());
  {
    nb::gil_scoped_release release;
    parallel_for(static_cast<int64_t>(read.size()), threads, [&](int64_t b) {
      thread_local GraphSearch search;
      try {
        found[b] = search.run(lms, alpha.data(), read[b], starts.data() + b * lms.size(), paths, most);
      } catch (const std::invalid_argument& error) {
        throw std::invalid_argument("graph " + std::to_string(b) + ", " + error.what());
      } catch (const std::length_error& error) {
        throw std::length_error("graph " + std::to_string(b) + ": " + error.what());
      }
    });
  }
  nb::list out;
  for (GraphPaths& one : found)
    out.append(nb::make_tuple(keep(std::move(one.cost)), keep(std::move(one.first)), keep(std::move(one.arcs))));
  return out;
}

}  // namespace

void bind_graphs(nb::module_& m) {
  m.def("best_strings", &best_strings, "models"_a, "graphs"_a, "starts"_a.noconvert(), "alpha"_a.noconvert(),
        nb::kw_only(), "paths"_a, "most"_a = kMaxTransitions, "threads"_a = 1);
}

}  // namespace rescore
