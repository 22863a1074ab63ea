#include "bind_decode.h"

#include <nanobind/stl/tuple.h>

#include <atomic>

#include "batch.h"
#include "batch_trees.h"
#include "lattice_walk.h"
#include "normalised.h"
#include "normalised_tree.h"
#include "parallel.h"

namespace rescore {

using namespace nb::literals;

namespace {

constexpr size_t kMostTransitions = size_t{1} << 25;                // per batch: some 1.3 GB with their nodes
constexpr double kLeastTemperature = 1e-6, kMostTemperature = 1e6;  // scores stay finite

// A batch that outlives the call: arrays are copied, since the caller may change them; models are kept alive.
class Normalised {
 public:
  Normalised(const nb::list& models, In<int32_t, 2> histories, In<int32_t, 3> ids, In<float, 3> cost,
             In<double, 2> alpha, double temperature, const nb::object& acceptor, size_t transitions, int threads)
      : batch_(ModelList(models), histories, ids, cost, alpha, 1, nb::cast<const Acceptor*>(acceptor)),
        ids_(ids.data(), ids.data() + ids.size()),
        cost_(cost.data(), cost.data() + cost.size()),
        alpha_(alpha.data(), alpha.data() + alpha.size()) {
    if (!(temperature >= kLeastTemperature && temperature <= kMostTemperature))
      throw std::invalid_argument("temperature: expected 0.000001 to 1000000, got " + std::to_string(temperature));
    expect_range("threads", threads, 1, 1024);
    for (const nb::handle model : models) kept_.push_back(nb::borrow(model));
    kept_.push_back(acceptor);
    batch_.ids = ids_.data();
    batch_.cost = cost_.data();
    batch_.models.alpha = alpha_.data();
    nb::gil_scoped_release release;
    push_all(temperature, transitions, threads);
    batch_.histories = nullptr;  // not copied
  }

  std::tuple<Out<int32_t>, Out<double>, Out<double>, Out<int32_t>> sample(In<double, 3> uniforms, int threads) const {
    const size_t paths = expect_paths("uniforms", uniforms, threads);
    for (size_t i = 0; i < uniforms.size(); ++i)
      if (!(uniforms.data()[i] >= 0 && uniforms.data()[i] < 1))
        throw std::invalid_argument(place("uniforms", i, paths) + ": expected a number in [0, 1), got " +
                                    std::to_string(uniforms.data()[i]));
    auto tokens = make<int32_t>({batch_.rows, paths, batch_.slots});
    auto q = make<double>({batch_.rows, paths, batch_.slots, batch_.width});
    auto logq = make<double>({batch_.rows, paths});
    auto lengths = make<int32_t>({batch_.rows, paths});
    for_each_path(paths, threads, [&](const PushedWalk& walk, const Sausage& sausage, size_t at) {
      DrawnPath path{tokens.data + at * batch_.slots, q.data + at * batch_.slots * batch_.width, 0, 0};
      draw_path(walk, sausage, uniforms.data() + at * batch_.slots, path);
      logq.data[at] = path.logq;
      lengths.data[at] = path.length;
    });
    return {tokens.array, q.array, logq.array, lengths.array};
  }

  Out<double> rows(In<int32_t, 3> drafts, int threads) const {
    const size_t paths = expect_drafts(drafts, threads);
    auto q = make<double>({batch_.rows, paths, batch_.slots, batch_.width});
    for_each_path(paths, threads, [&](const PushedWalk& walk, const Sausage& sausage, size_t at) {
      follow_path(walk, sausage, drafts.data() + at * batch_.slots, q.data + at * batch_.slots * batch_.width);
    });
    return q.array;
  }

  nb::tuple trees(int nodes, int threads) const {
    expect_range("threads", threads, 1, 1024);
    return rescore::trees(batch_.rows, nodes, [&](const Trees& trees) {
      parallel_for(batch_.rows, threads, [&](int64_t b) {
        const Sausage sausage = batch_.sausage(b);
        NormalisedTreeSearch search;
        trees.counts[b] = search.run(PushedWalk(pushed_[b], sausage), sausage, trees.of(b));
      });
    });
  }

  Out<double> logq(In<int32_t, 3> drafts, int threads) const {
    const size_t paths = expect_drafts(drafts, threads);
    auto logq = make<double>({batch_.rows, paths});
    for_each_path(paths, threads, [&](const PushedWalk& walk, const Sausage& sausage, size_t at) {
      logq.data[at] = follow_path(walk, sausage, drafts.data() + at * batch_.slots, nullptr);
    });
    return logq.array;
  }

 private:
  void push_all(double temperature, size_t transitions, int threads) {
    pushed_.resize(batch_.rows);
    std::atomic<size_t> together{0};
    parallel_for(batch_.rows, threads, [&](int64_t b) {
      thread_local Pushing pushing;
      pushed_[b] = pushing.run(batch_.models, batch_.sausage(b), batch_.starts(b), temperature, transitions);
      if ((together += pushed_[b].of_arc.size()) > transitions)
        throw std::length_error("the compositions of the batch have more than " + std::to_string(transitions) +
                                " transitions together; normalise fewer lattices at once");
    });
  }

  // Calls visit(walk, sausage, index of the path) for every path of every lattice.
  template <typename Visit>
  void for_each_path(size_t paths, int threads, Visit visit) const {
    nb::gil_scoped_release release;
    parallel_for(batch_.rows, threads, [&](int64_t b) {
      const Sausage sausage = batch_.sausage(b);
      const PushedWalk walk(pushed_[b], sausage);
      for (size_t i = 0; i < paths; ++i) visit(walk, sausage, b * paths + i);
    });
  }

  // p of an array [B, p, T].
  template <typename Array>
  size_t expect_paths(const char* name, const Array& array, int threads) const {
    expect_range("threads", threads, 1, 1024);
    if (array.shape(0) != batch_.rows || array.shape(2) != batch_.slots)
      throw std::invalid_argument(std::string(name) + ": expected shape [" + std::to_string(batch_.rows) + ", p, " +
                                  std::to_string(batch_.slots) + "], got [" + std::to_string(array.shape(0)) + ", " +
                                  std::to_string(array.shape(1)) + ", " + std::to_string(array.shape(2)) + "]");
    return array.shape(1);
  }

  size_t expect_drafts(In<int32_t, 3> drafts, int threads) const {
    const size_t paths = expect_paths("drafts", drafts, threads);
    for (size_t i = 0; i < drafts.size(); ++i) {
      const int32_t token = drafts.data()[i];
      if (token < -1 || (token >= 0 && i % batch_.slots && drafts.data()[i - 1] < 0))
        throw std::invalid_argument(place("drafts", i, paths) +
                                    ": expected token ids, then padding -1 to the end, got " + std::to_string(token));
    }
    return paths;
  }

  std::string place(const char* name, size_t i, size_t paths) const {
    const size_t path = i / batch_.slots;
    return std::string(name) + "[" + std::to_string(path / paths) + ", " + std::to_string(path % paths) + ", " +
           std::to_string(i % batch_.slots) + "]";
  }

  Batch batch_;
  const std::vector<int32_t> ids_;
  const std::vector<float> cost_;
  const std::vector<double> alpha_;
  std::vector<nb::object> kept_;  // the models, the acceptor
  std::vector<PushedLattice> pushed_;
};

}  // namespace

void bind_normalised(nb::module_& m) {
  nb::class_<Normalised>(m, "Normalised")
      .def(nb::init<const nb::list&, In<int32_t, 2>, In<int32_t, 3>, In<float, 3>, In<double, 2>, double,
                    const nb::object&, size_t, int>(),
           "models"_a, "histories"_a.noconvert(), "ids"_a.noconvert(), "cost"_a.noconvert(), "alpha"_a.noconvert(),
           nb::kw_only(), "temperature"_a = 1.0, "acceptor"_a = nb::none(), "transitions"_a = kMostTransitions,
           "threads"_a = 1)
      .def("sample", &Normalised::sample, "uniforms"_a.noconvert(), nb::kw_only(), "threads"_a = 1)
      .def("rows", &Normalised::rows, "drafts"_a.noconvert(), nb::kw_only(), "threads"_a = 1)
      .def("trees", &Normalised::trees, nb::kw_only(), "nodes"_a, "threads"_a = 1)
      .def("logq", &Normalised::logq, "drafts"_a.noconvert(), nb::kw_only(), "threads"_a = 1);
}

}  // namespace rescore
