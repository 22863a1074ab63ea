// Python bindings of the n-grams of one order.

#include <nanobind/stl/tuple.h>

#include "arrays.h"
#include "bind_lm.h"
#include "level.h"

namespace rescore {
namespace {

using namespace nb::literals;

// An empty array means that there is none.
using Ids = In<uint32_t, 1>;
using Numbers = In<uint64_t, 1>;
using Values = In<double, 1>;
template <typename T>
using InOut = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class PyLevel {
 public:
  PyLevel(Ids context_token, Ids context_parent, Numbers begin, Ids token)
      : context_token_(context_token), context_parent_(context_parent), begin_(begin), token_(token) {
    if (begin.shape(0) < 1) throw std::invalid_argument("begin: expected at least one entry");
    level_.contexts = begin.shape(0) - 1;
    level_.grams = token.shape(0);
    if (begin.data()[0] != 0 || begin.data()[level_.contexts] != level_.grams)
      throw std::invalid_argument("begin: expected offsets from 0 to the number of n-grams");
    level_.begin = begin.data();
    level_.token = token.data();
    const bool root = context_token.shape(0) == 0 && level_.contexts == 1;
    if (!root) {
      expect_size("context_token", context_token.shape(0), level_.contexts);
      expect_size("context_parent", context_parent.shape(0), level_.contexts);
    }
    static const uint32_t none = 0;  // not null, since an order without n-grams is not the root
    level_.context_token = root ? nullptr : context_token.size() ? context_token.data() : &none;
    level_.context_parent = root ? nullptr : context_parent.size() ? context_parent.data() : &none;
  }
  const Level& get() const { return level_; }
  // A range of contexts, after checking that its offsets ascend. Others are not read: the file may be large.
  Range range(size_t from, size_t to) const {
    if (from > to || to > level_.contexts) throw std::invalid_argument("range: expected from <= to <= contexts");
    for (size_t context = from; context < to; ++context)
      if (level_.begin[context] > level_.begin[context + 1])
        throw std::invalid_argument("begin " + std::to_string(context + 1) +
                                    ": expected ascending offsets; the arrays are damaged");
    if (level_.begin[to] > level_.grams)
      throw std::invalid_argument("begin " + std::to_string(to) + ": expected an offset of at most " +
                                  std::to_string(level_.grams) + ", got " + std::to_string(level_.begin[to]) +
                                  "; the arrays are damaged");
    return {from, to};
  }
  // Only orders from 2 on have contexts with a first token.
  void expect_contexts(const char* name) const {
    if (level_.root())
      throw std::invalid_argument(std::string(name) + ": expected an order of at least 2, got the unigrams");
  }
  size_t grams(Range range) const { return level_.begin[range.to] - level_.begin[range.from]; }

 private:
  Ids context_token_, context_parent_;
  Numbers begin_;
  Ids token_;
  Level level_{};
};

// An array that `body` fills.
template <typename T, typename Body>
Out<T> filled(size_t size, Body body) {
  auto out = make<T>({size});
  nb::gil_scoped_release release;
  body(out.data);
  return out.array;
}

// Numbers of the n-grams and of the contexts of a range, which `body` fills.
template <typename Body>
nb::tuple of_grams_and_contexts(const PyLevel& level, Range range, Body body) {
  auto of_grams = make<double>({level.grams(range)});
  auto of_contexts = make<double>({range.to - range.from});
  {
    nb::gil_scoped_release release;
    body(of_grams.data, of_contexts.data);
  }
  return nb::make_tuple(of_grams.array, of_contexts.array);
}

Out<uint32_t> py_suffixes(const PyLevel& level, const PyLevel& below, size_t from, size_t to) {
  const Range range = level.range(from, to);
  return filled<uint32_t>(level.grams(range), [&](uint32_t* out) { suffixes(level.get(), below.get(), range, out); });
}

// kDiscounts: how many the method takes, 0 for any number.
template <auto kEstimate, size_t kDiscounts>
nb::tuple py_estimate(const PyLevel& level, const PyLevel& below, Values below_cost, Numbers count, Numbers total,
                      Values discount, size_t from, size_t to) {
  const Range range = level.range(from, to);
  expect_size("below_cost", below_cost.shape(0), below.get().grams);
  expect_size("count", count.shape(0), level.get().grams);
  expect_size("total", total.shape(0), level.get().contexts);
  if (kDiscounts) expect_size("discount", discount.shape(0), kDiscounts);
  if (discount.shape(0) == 0) throw std::invalid_argument("discount: expected at least one entry, got none");
  const Counted counted{count.data(), total.data(), discount.data(), discount.shape(0)};
  return of_grams_and_contexts(level, range, [&](double* cost, double* backoff) {
    kEstimate(level.get(), below.get(), below_cost.data(), counted, range, cost, backoff);
  });
}

nb::tuple py_normalise(const PyLevel& level, const PyLevel& below, Values below_cost, Values cost, size_t from,
                       size_t to) {
  const Range range = level.range(from, to);
  expect_size("below_cost", below_cost.shape(0), below.get().grams);
  expect_size("cost", cost.shape(0), level.get().grams);
  return of_grams_and_contexts(level, range, [&](double* scaled, double* backoff) {
    normalise(level.get(), below.get(), below_cost.data(), cost.data(), range, scaled, backoff);
  });
}

Out<double> py_sums(const PyLevel& level, const PyLevel& below, Values below_cost, Values cost, Values backoff,
                    Values below_sum, size_t from, size_t to) {
  const Range range = level.range(from, to);
  expect_size("below_cost", below_cost.shape(0), below.get().grams);
  expect_size("cost", cost.shape(0), level.get().grams);
  expect_size("backoff", backoff.shape(0), level.get().contexts);
  expect_size("below_sum", below_sum.shape(0), below.get().contexts);
  return filled<double>(to - from, [&](double* out) {
    sums(level.get(), below.get(), below_cost.data(), cost.data(), backoff.data(), below_sum.data(), range, out);
  });
}

Out<uint32_t> py_first_by_last_token(const PyLevel& level, Ids below_first, uint32_t vocab_size) {
  const bool first = below_first.shape(0) == 0;
  level.expect_contexts("level");
  if (!first) expect_size("below_first", below_first.shape(0), size_t{vocab_size} + 1);
  return filled<uint32_t>(size_t{vocab_size} + 1, [&](uint32_t* out) {
    first_by_last_token(level.get(), first ? nullptr : below_first.data(), vocab_size, out);
  });
}

Out<uint32_t> py_link(const PyLevel& level, const PyLevel& below, Ids below_link, const PyLevel& above, Ids above_first,
                      InOut<uint32_t> cursor, size_t from, size_t to) {
  const Range range = level.range(from, to);
  above.expect_contexts("above");
  expect_size("above_first", above_first.shape(0), cursor.shape(0) + 1);
  if (!level.get().root()) expect_size("below_link", below_link.shape(0), below.get().grams);
  return filled<uint32_t>(level.grams(range), [&](uint32_t* out) {
    link(level.get(), below.get(), below_link.data(), above.get(), above_first.data(),
         static_cast<uint32_t>(cursor.shape(0)), range, cursor.data(), out);
  });
}

void py_context_logps(const PyLevel& level, Values cost, Values logp, Ids link, InOut<double> above, size_t from,
                      size_t to) {
  const Range range = level.range(from, to);
  expect_size("cost", cost.shape(0), level.get().grams);
  expect_size("logp", logp.shape(0), level.get().contexts);
  expect_size("link", link.shape(0), level.get().grams);
  nb::gil_scoped_release release;
  context_logps(level.get(), cost.data(), logp.data(), link.data(), range, above.data(), above.shape(0));
}

Out<double> py_losses(const PyLevel& level, const PyLevel& below, Values below_cost, Values cost, Values backoff,
                      Values logp, size_t from, size_t to) {
  const Range range = level.range(from, to);
  expect_size("below_cost", below_cost.shape(0), below.get().grams);
  expect_size("cost", cost.shape(0), level.get().grams);
  expect_size("backoff", backoff.shape(0), level.get().contexts);
  expect_size("logp", logp.shape(0), level.get().contexts);
  return filled<double>(level.grams(range), [&](double* out) {
    losses(level.get(), below.get(), below_cost.data(), cost.data(), backoff.data(), logp.data(), range, out);
  });
}

// The children of the contexts from, .., to - 1 in the order above.
Range children(const PyLevel& above, size_t from, size_t to) {
  const uint32_t* parent = above.get().context_parent;
  const uint32_t* const end = parent + above.get().contexts;
  return above.range(std::lower_bound(parent, end, from) - parent, std::lower_bound(parent, end, to) - parent);
}

nb::tuple py_scores(const PyLevel& level, Values loss, const PyLevel* above, Values above_score, Values above_best,
                    Ids link, size_t from, size_t to) {
  const Range range = level.range(from, to);
  expect_size("loss", loss.shape(0), level.get().grams);
  if (above) {
    above->expect_contexts("above");
    expect_size("above_score", above_score.shape(0), above->get().grams);
    expect_size("above_best", above_best.shape(0), above->get().contexts);
    expect_size("link", link.shape(0), level.get().grams);
  }
  return of_grams_and_contexts(level, range, [&](double* score, double* best) {
    Above found{};
    if (above) found = {&above->get(), above_score.data(), above_best.data(), link.data(), children(*above, from, to)};
    scores(level.get(), loss.data(), found, range, score, best);
  });
}

nb::tuple py_select(const PyLevel& level, Values score, double limit, Values cost, Ids below_number, size_t from,
                    size_t to) {
  const Range range = level.range(from, to);
  level.expect_contexts("level");
  expect_size("score", score.shape(0), level.get().grams);
  expect_size("cost", cost.shape(0), level.get().grams);
  Selection kept;
  {
    nb::gil_scoped_release release;
    kept = select(level.get(), score.data(), limit, cost.data(), below_number.data(), below_number.shape(0), range);
  }
  return nb::make_tuple(keep(std::move(kept.context)), keep(std::move(kept.context_token)),
                        keep(std::move(kept.context_parent)), keep(std::move(kept.size)), keep(std::move(kept.token)),
                        keep(std::move(kept.cost)));
}

Out<uint32_t> py_next_states(const PyLevel& level, const PyLevel& below, Ids link, Ids below_next, uint32_t first_state,
                             size_t from, size_t to) {
  const Range range = level.range(from, to);
  const bool longest = link.shape(0) == 0;
  if (!longest) expect_size("link", link.shape(0), level.get().grams);
  if (!level.get().root()) expect_size("below_next", below_next.shape(0), below.get().grams);
  return filled<uint32_t>(level.grams(range), [&](uint32_t* out) {
    next_states(level.get(), below.get(), longest ? nullptr : link.data(), below_next.data(), first_state, range, out);
  });
}

}  // namespace

void bind_levels(nb::module_& m) {
  // Arrays are often maps of files: another dtype is an error, never a copy.
  const auto exact = [](const char* name) { return nb::arg(name).noconvert(); };
  const auto from = nb::arg("from_"), to = nb::arg("to");
  nb::class_<PyLevel>(m, "Level")
      .def(nb::init<Ids, Ids, Numbers, Ids>(), exact("context_token"), exact("context_parent"), exact("begin"),
           exact("token"));
  m.def("suffixes", &py_suffixes, "level"_a, "below"_a, from, to);
  const auto estimates = [&](const char* name, auto function) {
    m.def(name, function, "level"_a, "below"_a, exact("below_cost"), exact("count"), exact("total"), exact("discount"),
          from, to);
  };
  estimates("estimate", &py_estimate<&estimate, 0>);
  estimates("kneser_ney", &py_estimate<&kneser_ney, 3>);
  m.def("normalise", &py_normalise, "level"_a, "below"_a, exact("below_cost"), exact("cost"), from, to);
  m.def("sums", &py_sums, "level"_a, "below"_a, exact("below_cost"), exact("cost"), exact("backoff"),
        exact("below_sum"), from, to);
  m.def("first_by_last_token", &py_first_by_last_token, "level"_a, exact("below_first"), "vocab_size"_a);
  m.def("link", &py_link, "level"_a, "below"_a, exact("below_link"), "above"_a, exact("above_first"), exact("cursor"),
        from, to);
  m.def("context_logps", &py_context_logps, "level"_a, exact("cost"), exact("logp"), exact("link"), exact("above"),
        from, to);
  m.def("losses", &py_losses, "level"_a, "below"_a, exact("below_cost"), exact("cost"), exact("backoff"), exact("logp"),
        from, to);
  m.def("scores", &py_scores, "level"_a, exact("loss"), "above"_a.none(), exact("above_score"), exact("above_best"),
        exact("link"), from, to);
  m.def("select", &py_select, "level"_a, exact("score"), "limit"_a, exact("cost"), exact("below_number"), from, to);
  m.def("next_states", &py_next_states, "level"_a, "below"_a, exact("link"), exact("below_next"), "first_state"_a, from,
        to);
}

}  // namespace rescore
