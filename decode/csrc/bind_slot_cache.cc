// Moves keys and values of accepted tokens in one call; torch would need two calls per layer and row.

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <vector>

#include "arrays.h"
#include "bind_decode.h"

namespace rescore {

using namespace nb::literals;

namespace {

// Bytes [rows, heads, slots, bytes of a slot].
using Store = nb::ndarray<uint8_t, nb::ndim<4>, nb::c_contig, nb::device::cpu>;

void move_slots(const std::vector<Store>& stores, In<int64_t, 1> rows, In<int64_t, 1> sources, In<int64_t, 1> targets) {
  const size_t moves = rows.size();
  expect_size("sources", sources.size(), moves);
  expect_size("targets", targets.size(), moves);
  for (const Store& store : stores)
    for (size_t i = 0; i < moves; ++i) {
      expect_range("rows", rows.data()[i], 0, static_cast<int64_t>(store.shape(0)) - 1);
      expect_range("sources", sources.data()[i], 0, static_cast<int64_t>(store.shape(2)) - 1);
      expect_range("targets", targets.data()[i], 0, static_cast<int64_t>(store.shape(2)) - 1);
    }
  nb::gil_scoped_release release;
  for (const Store& store : stores) {
    const size_t heads = store.shape(1), slots = store.shape(2), bytes = store.shape(3);
    for (size_t i = 0; i < moves; ++i)
      for (size_t head = 0; head < heads; ++head) {
        uint8_t* const base = store.data() + (rows.data()[i] * heads + head) * slots * bytes;
        std::memmove(base + targets.data()[i] * bytes, base + sources.data()[i] * bytes, bytes);
      }
  }
}

}  // namespace

void bind_slot_cache(nb::module_& m) {
  m.def("move_slots", &move_slots, "stores"_a.noconvert(), "rows"_a.noconvert(), "sources"_a.noconvert(),
        "targets"_a.noconvert());
}

}  // namespace rescore
