#include "acceptor.h"

#include "arrays.h"
#include "bind_top.h"

namespace rescore {

using namespace nb::literals;

namespace {

template <typename T>
std::vector<T> copied(In<T, 1> array) {
  return {array.data(), array.data() + array.size()};
}

uint32_t expect_state(const Acceptor& acceptor, int64_t state) {
  expect_range("state", state, 0, static_cast<int64_t>(acceptor.states()) - 1);
  return static_cast<uint32_t>(state);
}

}  // namespace

void bind_acceptor(nb::module_& m) {
  nb::class_<Acceptor>(m, "Acceptor")
      .def(
          "__init__",
          [](Acceptor* made, In<uint64_t, 1> first, In<int32_t, 1> tokens, In<uint32_t, 1> targets, uint32_t start) {
            new (made) Acceptor(copied(first), copied(tokens), copied(targets), start);
          },
          "first"_a.noconvert(), "tokens"_a.noconvert(), "targets"_a.noconvert(), nb::kw_only(), "start"_a)
      .def_ro("start", &Acceptor::start)
      .def("tokens",
           [](const Acceptor& own, int64_t state) {
             const uint32_t at = expect_state(own, state);
             return keep(std::vector<int32_t>(own.begin(at), own.end(at)));
           })
      .def("next", [](const Acceptor& own, int64_t state, int32_t token) -> int64_t {
        const uint32_t target = own.next(expect_state(own, state), token);
        return target == Acceptor::kNowhere ? -1 : static_cast<int64_t>(target);
      });
}

}  // namespace rescore
