#include "bind_lm.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <mutex>
#include <optional>
#include <shared_mutex>

#include "arrays.h"
#include "context_model.h"

namespace rescore {

using namespace nb::literals;

namespace {

using Ids = std::optional<In<int32_t, 2>>;   // [n, k], padding -1 at the end of a row
using Shares = std::optional<In<float, 2>>;  // [n, k]

void expect_tokens(const char* name, In<int32_t, 1> tokens) {
  for (size_t i = 0; i < tokens.shape(0); ++i)
    if (tokens.data()[i] < 0)
      throw nb::value_error((std::string(name) + "[" + std::to_string(i) + "]: expected a token id, got " +
                             std::to_string(tokens.data()[i]))
                                .c_str());
}

// The checked predictions of n positions; empty ones if they are not given.
std::vector<Prediction> predictions(const Ids& ids, const Shares& p, size_t n) {
  std::vector<Prediction> found(n);
  if (!ids && !p) return found;
  if (!ids || !p) throw nb::type_error("ids and p: expected both, or neither");
  const size_t k = ids->shape(1);
  expect_size("ids, one row of each position", ids->shape(0), n);
  expect_size("p, one row of each position", p->shape(0), n);
  expect_size("p, as many columns as ids", p->shape(1), k);
  for (size_t i = 0; i < n; ++i) {
    Prediction& row = found[i] = {ids->data() + i * k, p->data() + i * k, 0};
    for (; row.size < static_cast<int>(k) && row.ids[row.size] >= 0; ++row.size)
      if (!(row.p[row.size] >= 0 && row.p[row.size] <= 1))
        throw nb::value_error(("p[" + std::to_string(i) + ", " + std::to_string(row.size) +
                               "]: expected a probability, got " + std::to_string(row.p[row.size]))
                                  .c_str());
  }
  return found;
}

void extend(ContextModel& model, In<int32_t, 1> tokens, const Ids& ids, const Shares& p) {
  expect_tokens("tokens", tokens);
  const std::vector<Prediction> predicted = predictions(ids, p, tokens.shape(0));
  nb::gil_scoped_release release;
  const std::lock_guard writing(model.mutex());
  for (size_t i = 0; i < tokens.shape(0); ++i) model.extend(tokens.data()[i], predicted[i]);
}

void foresee(ContextModel& model, In<int32_t, 1> draft, In<int32_t, 2> ids, In<float, 2> p) {
  expect_tokens("draft", draft);
  const Prediction predicted = predictions(ids, p, 1)[0];
  nb::gil_scoped_release release;
  const std::lock_guard writing(model.mutex());
  model.foresee(draft.data(), draft.shape(0), predicted);
}

// The probabilities of tokens [n] after the text and a draft from counts, and the weight of the other model.
std::tuple<Out<double>, double> mixture(const ContextModel& model, In<int32_t, 1> draft, In<double, 1> strength,
                                        In<int32_t, 1> tokens) {
  expect_size("strength, of every order", strength.shape(0), model.order());
  const std::shared_lock reading(model.mutex());
  uint32_t state = model.state();
  for (size_t i = 0; i < draft.shape(0); ++i) state = model.step(state, draft.data()[i]);
  auto share = make<double>({tokens.shape(0)});
  const ContextModel::Mixture found = model.mixture(state, strength.data());
  for (size_t i = 0; i < tokens.shape(0); ++i) {
    share.data[i] = 0;
    for (int part = 0; part < found.size; ++part)
      share.data[i] += found.parts[part].worth * model.count(found.parts[part].state, tokens.data()[i]);
  }
  return {share.array, found.rest};
}

}  // namespace

void bind_context_model(nb::module_& m) {
  nb::class_<ContextModel>(m, "ContextModel")
      .def(
          "__init__",
          [](ContextModel* self, In<double, 1> soft) {
            expect_range("soft, of every order", soft.shape(0), 1, ContextModel::kMaxOrder);
            for (size_t o = 0; o < soft.shape(0); ++o)
              if (!(soft.data()[o] >= 0 && soft.data()[o] <= 1))
                throw nb::value_error(("soft[" + std::to_string(o) + "]: expected a number in [0, 1], got " +
                                       std::to_string(soft.data()[o]))
                                          .c_str());
            new (self) ContextModel(static_cast<uint32_t>(soft.shape(0)), soft.data());
          },
          nb::kw_only(), nb::arg("soft").noconvert())
      .def_prop_ro("order", &ContextModel::order)
      .def_prop_ro("bytes", &ContextModel::bytes)
      .def_prop_ro("size", &ContextModel::size)
      .def("extend", &extend, nb::arg("tokens").noconvert(), nb::arg("ids").noconvert() = nb::none(),
           nb::arg("p").noconvert() = nb::none())
      .def("begin",
           [](ContextModel& model) {
             nb::gil_scoped_release release;
             const std::lock_guard writing(model.mutex());
             model.begin();
           })
      .def("foresee", &foresee, nb::arg("draft").noconvert(), nb::arg("ids").noconvert(), nb::arg("p").noconvert())
      .def("mixture", &mixture, nb::arg("draft").noconvert(), nb::arg("strength").noconvert(),
           nb::arg("tokens").noconvert());
}

}  // namespace rescore
