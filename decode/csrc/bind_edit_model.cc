#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cmath>

#include "arrays.h"
#include "bind_decode.h"
#include "edit_model.h"

namespace rescore {

using namespace nb::literals;

namespace {

EditModel::State state_after(const EditModel& model, In<int32_t, 1> draft) {
  EditModel::State state = model.state();
  for (size_t i = 0; i < draft.shape(0); ++i) state = model.step(state, draft.data()[i]);
  return state;
}

// The probabilities of tokens [n] after the text and a draft from copies, and the weight of the other model.
std::tuple<Out<double>, double> mixture(const EditModel& model, In<int32_t, 1> draft, In<int32_t, 1> tokens) {
  auto share = make<double>({tokens.shape(0)});
  std::fill_n(share.data, tokens.shape(0), 0.0);
  double rest = 1;
  model.copies(state_after(model, draft), [&](uint32_t token, double p) {
    rest -= p;
    for (size_t i = 0; i < tokens.shape(0); ++i)
      if (static_cast<uint32_t>(tokens.data()[i]) == token) share.data[i] += p;
  });
  return {share.array, rest};
}

}  // namespace

void bind_edit_model(nb::module_& m) {
  nb::class_<EditModel>(m, "EditModel")
      .def(
          "__init__",
          [](EditModel* self, In<int32_t, 1> tokens, std::array<double, 6> arcs, std::array<double, 2> share) {
            expect_tokens("tokens", tokens);
            for (const double weight : arcs)
              if (!(weight > 0 && weight < 1)) throw std::invalid_argument("arcs: expected weights between 0 and 1");
            if (!(arcs[0] + arcs[1] + arcs[2] < 1))
              throw std::invalid_argument("arcs: expected the first three below 1 together");
            for (const double weight : share)
              if (!std::isfinite(weight)) throw std::invalid_argument("share: expected finite weights");
            new (self) EditModel(tokens.data(), tokens.shape(0), {arcs[0], arcs[1], arcs[2], arcs[3], arcs[4], arcs[5]},
                                 {share[0], share[1]});
          },
          "tokens"_a.noconvert(), nb::kw_only(), "arcs"_a, "share"_a)
      .def(
          "extend",
          [](EditModel& model, In<int32_t, 1> tokens) {
            expect_tokens("tokens", tokens);
            for (size_t i = 0; i < tokens.shape(0); ++i) model.extend(tokens.data()[i]);
          },
          "tokens"_a.noconvert())
      .def("mixture", &mixture, "draft"_a.noconvert(), "tokens"_a.noconvert());
}

}  // namespace rescore
