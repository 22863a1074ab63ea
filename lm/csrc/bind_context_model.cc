#include "bind_lm.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <mutex>
#include <shared_mutex>

#include "arrays.h"
#include "context_model.h"

namespace rescore {

using namespace nb::literals;

namespace {

using Shares = std::array<ContextCounts::Share, ContextCounts::kMaxOrder>;

Shares shares_of(const std::string& name, In<double, 2> values) {
  expect_size((name + ": constant, of ln total, of ln distinct").c_str(), values.shape(1), 3);
  Shares found;
  for (size_t o = 0; o < values.shape(0); ++o) {
    const double* one = values.data() + 3 * o;
    found[o] = {one[0], one[1], one[2]};
  }
  return found;
}

void extend(ContextModel& model, In<int32_t, 1> tokens, bool prompt) {
  expect_tokens("tokens", tokens, -1);
  nb::gil_scoped_release release;
  const std::lock_guard writing(model.counts().mutex());
  for (size_t i = 0; i < tokens.shape(0); ++i) model.extend(tokens.data()[i], prompt);
}

// Extends the text and returns what each order, then the longest match, knew of each token before, of what followed and
// of what was predicted: count, total, distinct [n, order + 1, 2, 3]; with `other`, what it knows of another text,
// which is not counted.
Out<float> evidence(ContextModel& model, In<int32_t, 1> tokens, bool other) {
  static_assert(sizeof(ContextCounts::Evidence) == 3 * sizeof(float));
  expect_tokens("tokens", tokens);
  auto known = make<float>({tokens.shape(0), model.counts().order() + 1, 2, 3});
  auto* out = reinterpret_cast<ContextCounts::Evidence*>(known.data);
  {
    nb::gil_scoped_release release;
    const std::lock_guard writing(model.counts().mutex());
    const ContextCounts& counts = model.counts();
    ContextCounts::State state;
    for (size_t i = 0; i < tokens.shape(0); ++i) {
      const uint32_t token = tokens.data()[i];
      counts.evidence(other ? state : model.state(), token, out + 2 * i * (counts.order() + 1));
      if (other)
        state = counts.step(state, token);
      else
        model.extend(token);
    }
  }
  return known.array;
}

void foresee(ContextModel& model, In<int32_t, 1> draft, In<int32_t, 1> ids, In<float, 1> p) {
  expect_tokens("draft", draft);
  expect_size("p, one of each token", p.shape(0), ids.shape(0));
  Prediction predicted{ids.data(), p.data(), 0};
  for (; predicted.size < static_cast<int>(ids.shape(0)) && predicted.ids[predicted.size] >= 0; ++predicted.size)
    if (!(predicted.p[predicted.size] >= 0 && predicted.p[predicted.size] <= 1))
      throw std::invalid_argument("p[" + std::to_string(predicted.size) + "]: expected a probability, got " +
                                  std::to_string(predicted.p[predicted.size]));
  nb::gil_scoped_release release;
  const std::lock_guard writing(model.counts().mutex());
  ContextCounts::Place place = model.place();
  for (size_t i = 0; i < draft.shape(0); ++i) place = model.counts().after(place, draft.data()[i]);
  model.counts().foresee(place, predicted);
}

// The probabilities of tokens [n] after the text and a draft from counts, and the weight of the other model.
std::tuple<Out<double>, double> mixture(const ContextModel& model, In<int32_t, 1> draft, In<int32_t, 1> tokens) {
  const ContextCounts& counts = model.counts();
  const std::shared_lock reading(counts.mutex());
  ContextCounts::State state = model.state();
  for (size_t i = 0; i < draft.shape(0); ++i) state = counts.step(state, draft.data()[i]);
  auto share = make<double>({tokens.shape(0)});
  const ContextCounts::Mixture found = counts.mixture(state);
  for (size_t i = 0; i < tokens.shape(0); ++i) {
    share.data[i] = found.copied == static_cast<uint32_t>(tokens.data()[i]) ? found.of_copied : 0;
    for (int part = 0; part < found.size; ++part)
      share.data[i] += found.parts[part].worth *
                       counts.lists().count(found.parts[part].owner, found.parts[part].list, tokens.data()[i]);
  }
  return {share.array, found.rest};
}

}  // namespace

void bind_context_model(nb::module_& m) {
  nb::class_<ContextModel>(m, "ContextModel")
      .def(
          "__init__",
          [](ContextModel* self, In<double, 2> shares, In<double, 2> predicted,
             std::optional<std::array<double, 3>> copied) {
            expect_range("shares, of every order", shares.shape(0), 1, ContextCounts::kMaxOrder);
            expect_size("predicted, of every order", predicted.shape(0), shares.shape(0));
            const Shares of_followed = shares_of("shares", shares), of_predicted = shares_of("predicted", predicted);
            ContextCounts::Share of_copied{};
            if (copied) of_copied = {(*copied)[0], (*copied)[1], (*copied)[2]};
            new (self)
                ContextModel(std::make_shared<ContextCounts>(static_cast<uint32_t>(shares.shape(0)), of_followed.data(),
                                                             of_predicted.data(), copied ? &of_copied : nullptr));
          },
          nb::kw_only(), nb::arg("shares").noconvert(), nb::arg("predicted").noconvert(), "copied"_a = nb::none())
      .def_prop_ro("order", [](const ContextModel& model) { return model.counts().order(); })
      .def_prop_ro("bytes", [](const ContextModel& model) { return model.counts().bytes(); })
      .def_prop_ro("size", &ContextModel::size)
      .def("sibling",
           [](const ContextModel& model) {
             const std::shared_lock reading(model.counts().mutex());
             return model.sibling();
           })
      .def("extend", &extend, nb::arg("tokens").noconvert(), nb::kw_only(), "prompt"_a = false)
      .def("begin",
           [](ContextModel& model) {
             nb::gil_scoped_release release;
             const std::lock_guard writing(model.counts().mutex());
             model.begin();
           })
      .def("foresee", &foresee, nb::arg("draft").noconvert(), nb::arg("ids").noconvert(), nb::arg("p").noconvert())
      .def("evidence", &evidence, nb::arg("tokens").noconvert(), nb::kw_only(), "other"_a = false)
      .def("mixture", &mixture, nb::arg("draft").noconvert(), nb::arg("tokens").noconvert());
}

}  // namespace rescore
