#include <nanobind/stl/tuple.h>

#include <memory>

#include "bind_lm.h"
#include "encode.h"
#include "model.h"
#include "parallel.h"

namespace rescore {

using namespace nb::literals;

namespace {

using Bytes = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu, nb::ro>;  // dtype checked at run time

template <typename T>
Span<T> span(const nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>& array) {
  return {array.data(), array.shape(0)};
}

// The bytes of an array of uint16 (`wide`) or uint8.
Span<uint8_t> bytes_of(const char* name, const Bytes& array, bool wide) {
  if (array.dtype() != (wide ? nb::dtype<uint16_t>() : nb::dtype<uint8_t>()))
    throw nb::type_error((std::string(name) + ": expected an array of " + (wide ? "uint16" : "uint8")).c_str());
  return {static_cast<const uint8_t*>(array.data()), array.nbytes()};
}

void make_model(Model* self, In<uint64_t, 2> sizes, In<float, 1> root_cost, Bytes arc_token, In<uint8_t, 1> arcs,
                In<float, 1> arc_book, In<uint8_t, 1> contexts, In<float, 1> backoff_book, In<uint32_t, 1> wide,
                In<uint32_t, 1> first_state, In<uint32_t, 1> jumps, In<uint64_t, 1> backoff_state, uint32_t order,
                uint32_t vocab_size, uint32_t next_bits) {
  expect_size("sizes, of every order", sizes.shape(1), sizeof(Sizes) / sizeof(uint64_t));
  Sections sections;
  sections.sizes = {reinterpret_cast<const Sizes*>(sizes.data()), sizes.shape(0)};
  sections.root_cost = span(root_cost);
  sections.arc_token = bytes_of("arc_token", arc_token, vocab_size <= 1 << 16);
  sections.arcs = span(arcs);
  sections.arc_book = span(arc_book);
  sections.contexts = span(contexts);
  sections.backoff_book = span(backoff_book);
  sections.wide = span(wide);
  sections.first_state = span(first_state);
  sections.jumps = span(jumps);
  sections.backoff_state = span(backoff_state);
  const auto arrays = std::make_tuple(sizes, root_cost, arc_token, arcs, arc_book, contexts, backoff_book, wide,
                                      first_state, jumps, backoff_state);
  new (self) Model(sections, order, vocab_size, next_bits, std::make_shared<decltype(arrays)>(arrays));
}

void expect_token(const Automaton& lm, int64_t token, const char* name, size_t index) {
  if (token < 0 || token >= lm.vocab_size)
    throw std::invalid_argument(std::string(name) + "[" + std::to_string(index) + "]: expected a token id in [0, " +
                                std::to_string(lm.vocab_size) + "), got " + std::to_string(token));
}

uint32_t start(const Model& model, In<int32_t, 1> history) {
  return model.lm().start(history.data(), history.shape(0));
}

Out<uint32_t> start_batch(const Model& model, In<int32_t, 2> histories, int threads) {
  const size_t rows = histories.shape(0), width = histories.shape(1);
  auto states = make<uint32_t>({rows});
  const Automaton& lm = model.lm();
  {
    nb::gil_scoped_release release;
    parallel_for(rows, threads, [&](int64_t b) {
      states.data[b] = lm.state(suffixes_of_row(lm, histories.data() + b * width, width));
    });
  }
  return states.array;
}

std::tuple<uint32_t, double> step(const Model& model, uint64_t state, int64_t token) {
  expect_state(model.lm(), state);
  expect_token(model.lm(), token, "token", 0);
  const Step taken = model.lm().step(static_cast<uint32_t>(state), static_cast<uint32_t>(token));
  return {taken.next, taken.cost};
}

std::tuple<Out<float>, Out<uint32_t>> score(const Model& model, In<int32_t, 1> tokens, In<int64_t, 1> offsets,
                                            In<uint32_t, 1> states) {
  const Automaton& lm = model.lm();
  const size_t rows = states.shape(0), total = tokens.shape(0);
  expect_size("offsets", offsets.shape(0), rows + 1);
  for (size_t b = 0; b < rows; ++b) {
    expect_state(lm, states.data()[b]);
    if (offsets.data()[b] < 0 || offsets.data()[b] > offsets.data()[b + 1])
      throw std::invalid_argument("offsets[" + std::to_string(b) + "]: expected ascending offsets from 0");
  }
  if (offsets.data()[0] != 0) throw std::invalid_argument("offsets[0]: expected 0");
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

std::tuple<Out<float>, Out<uint8_t>, Out<uint32_t>, uint32_t> walk_text(const Model& model, In<int32_t, 1> tokens,
                                                                        uint64_t state) {
  const Automaton& lm = model.lm();
  const size_t count = tokens.shape(0);
  expect_state(lm, state);
  for (size_t i = 0; i < count; ++i) expect_token(lm, tokens.data()[i], "tokens", i);
  auto cost = make<float>({count});
  auto order = make<uint8_t>({count});
  auto before = make<uint32_t>({count});
  uint32_t at = static_cast<uint32_t>(state);
  {
    nb::gil_scoped_release release;
    for (size_t i = 0; i < count; ++i) {
      const Taken taken = lm.take(at, tokens.data()[i]);
      cost.data[i] = static_cast<float>(taken.cost);
      order.data[i] = static_cast<uint8_t>(lm.length(taken.state) + 1);
      before.data[i] = at;
      at = lm.next(taken.state, taken.arc, tokens.data()[i]);
    }
  }
  return {cost.array, order.array, before.array, at};
}

Out<float> distribution(const Model& model, uint64_t state) {
  const Automaton& lm = model.lm();
  expect_state(lm, state);
  auto cost = make<float>({lm.vocab_size});
  nb::gil_scoped_release release;
  lm.distribution(static_cast<uint32_t>(state), cost.data);
  return cost.array;
}

using PlainArrays = std::tuple<Out<uint64_t>, nb::object, Out<float>, Out<uint32_t>, Out<uint32_t>, Out<float>>;

PlainArrays plain(const Model& model) {
  const Automaton& lm = model.lm();
  auto begin = make<uint64_t>({lm.num_states + 1});
  auto cost = make<float>({lm.num_arcs});
  auto next = make<uint32_t>({lm.num_arcs});
  auto backoff_state = make<uint32_t>({lm.num_states});
  auto backoff_cost = make<float>({lm.num_states});
  const auto fill = [&](uint16_t* token16, uint32_t* token32) {
    nb::gil_scoped_release release;
    decode(lm, {begin.data, token16, token32, cost.data, next.data, backoff_state.data, backoff_cost.data});
  };
  nb::object token;
  if (lm.vocab_size <= 1 << 16) {
    auto narrow = make<uint16_t>({lm.num_arcs});
    fill(narrow.data, nullptr);
    token = nb::cast(narrow.array);
  } else {
    auto full = make<uint32_t>({lm.num_arcs});
    fill(nullptr, full.data);
    token = nb::cast(full.array);
  }
  return {begin.array, token, cost.array, next.array, backoff_state.array, backoff_cost.array};
}

using EncodedArrays = std::tuple<Out<uint64_t>, Out<uint8_t>, Out<uint8_t>, Out<float>, Out<uint8_t>, Out<float>,
                                 Out<uint32_t>, Out<uint32_t>, Out<uint32_t>, Out<uint64_t>>;

EncodedArrays encode_arrays(In<uint64_t, 1> arc_begin, Bytes arc_token, In<float, 1> arc_cost, In<uint32_t, 1> arc_next,
                            In<uint32_t, 1> backoff_state, In<float, 1> backoff_cost, uint32_t order,
                            uint32_t vocab_size, uint32_t next_bits, const nb::callable& choose_book) {
  expect_range("order", order, 1, kMaxOrder);
  expect_range("vocab_size", vocab_size, 1, 1 << 24);
  if (arc_begin.shape(0) == 0) expect_size("arc_begin", 0, 2);
  Plain plain;
  plain.arc_begin = span(arc_begin);
  plain.arcs = arc_token.shape(0);
  plain.cost = arc_cost.data();
  plain.next = arc_next.data();
  plain.backoff_state = backoff_state.data();
  plain.backoff_cost = backoff_cost.data();
  plain.order = order;
  plain.vocab_size = vocab_size;
  if (arc_token.dtype() == nb::dtype<uint16_t>()) {
    plain.token16 = static_cast<const uint16_t*>(arc_token.data());
  } else if (arc_token.dtype() == nb::dtype<uint32_t>()) {
    plain.token32 = static_cast<const uint32_t*>(arc_token.data());
  } else {
    throw nb::type_error("arc_token: expected an array of uint16 or uint32");
  }
  expect_size("arc_cost", arc_cost.shape(0), plain.arcs);
  expect_size("arc_next", arc_next.shape(0), plain.arcs);
  expect_size("backoff_state", backoff_state.shape(0), plain.states());
  expect_size("backoff_cost", backoff_cost.shape(0), plain.states());
  const auto choose = [&](const float* cost, uint64_t size) {
    nb::gil_scoped_acquire acquire;
    const auto book =
        nb::cast<In<float, 1>>(choose_book(nb::ndarray<nb::numpy, const float>(cost, {size}, nb::handle())));
    expect_range("book", book.shape(0), 0, 1 << 16);
    return std::vector<float>(book.data(), book.data() + book.shape(0));
  };
  Encoded made;
  {
    nb::gil_scoped_release release;
    made = encode(plain, next_bits, choose);
  }
  return {keep(std::move(made.sizes)),        keep(std::move(made.arc_token)),   keep(std::move(made.arcs)),
          keep(std::move(made.arc_book)),     keep(std::move(made.contexts)),    keep(std::move(made.backoff_book)),
          keep(std::move(made.wide)),         keep(std::move(made.first_state)), keep(std::move(made.jumps)),
          keep(std::move(made.backoff_state))};
}

Out<float> book_of(In<float, 1> cost) {
  nb::gil_scoped_release release;
  std::vector<float> book = exact_book(cost.data(), cost.shape(0));
  nb::gil_scoped_acquire acquire;
  return keep(std::move(book));
}

}  // namespace

void bind_automaton(nb::module_& m) {
  nb::class_<Model>(m, "Automaton")
      .def("__init__", &make_model, nb::arg("sizes").noconvert(), nb::arg("root_cost").noconvert(),
           nb::arg("arc_token").noconvert(), nb::arg("arcs").noconvert(), nb::arg("arc_book").noconvert(),
           nb::arg("contexts").noconvert(), nb::arg("backoff_book").noconvert(), nb::arg("wide").noconvert(),
           nb::arg("first_state").noconvert(), nb::arg("jumps").noconvert(), nb::arg("backoff_state").noconvert(),
           nb::kw_only(), "order"_a, "vocab_size"_a, "next_bits"_a)
      .def_prop_ro("num_states", [](const Model& model) { return model.lm().num_states; })
      .def_prop_ro("num_arcs", [](const Model& model) { return model.lm().num_arcs; })
      .def(
          "check", [](const Model& model) { model.lm().check(); }, nb::call_guard<nb::gil_scoped_release>())
      .def("plain", &plain)
      .def("start", &start, nb::arg("history").noconvert())
      .def("start_batch", &start_batch, nb::arg("histories").noconvert(), "threads"_a = 1)
      .def("step", &step, "state"_a, "token"_a)
      .def("score", &score, nb::arg("tokens").noconvert(), nb::arg("offsets").noconvert(),
           nb::arg("states").noconvert())
      .def("walk", &walk_text, nb::arg("tokens").noconvert(), "state"_a)
      .def("distribution", &distribution, "state"_a);
  m.def("encode", &encode_arrays, nb::arg("arc_begin").noconvert(), nb::arg("arc_token").noconvert(),
        nb::arg("arc_cost").noconvert(), nb::arg("arc_next").noconvert(), nb::arg("backoff_state").noconvert(),
        nb::arg("backoff_cost").noconvert(), nb::kw_only(), "order"_a, "vocab_size"_a, "next_bits"_a, "choose_book"_a);
  m.def("exact_book", &book_of, nb::arg("cost").noconvert());
}

}  // namespace rescore
