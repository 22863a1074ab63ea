#include "bind_lm.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <stdexcept>

#include "arrays.h"
#include "context_model.h"

namespace rescore {

using namespace nb::literals;

namespace {

void extend(ContextModel& model, In<int32_t, 1> tokens) {
  if (model.is_read())
    throw std::runtime_error(
        "extend: expected a text that no other thread drafts from now, got one that is read: wait for its trees");
  for (size_t i = 0; i < tokens.shape(0); ++i)
    if (tokens.data()[i] < 0)
      throw nb::value_error(
          ("tokens[" + std::to_string(i) + "]: expected a token id, got " + std::to_string(tokens.data()[i])).c_str());
  for (size_t i = 0; i < tokens.shape(0); ++i) model.extend(tokens.data()[i]);
}

// The shares of tokens [n] after the text and a draft, and that of the other model.
std::tuple<Out<double>, double> mixture(const ContextModel& model, In<int32_t, 1> draft, In<double, 1> strength,
                                        In<int32_t, 1> tokens) {
  expect_size("strength, of every order", strength.shape(0), model.order());
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
          [](ContextModel* self, int64_t order) {
            expect_range("order", order, 1, ContextModel::kMaxOrder);
            new (self) ContextModel(static_cast<uint32_t>(order));
          },
          nb::kw_only(), "order"_a)
      .def_prop_ro("order", &ContextModel::order)
      .def_prop_ro("bytes", &ContextModel::bytes)
      .def_prop_ro("size", &ContextModel::size)
      .def("extend", &extend, nb::arg("tokens").noconvert())
      .def("mixture", &mixture, nb::arg("draft").noconvert(), nb::arg("strength").noconvert(),
           nb::arg("tokens").noconvert());
}

}  // namespace rescore
