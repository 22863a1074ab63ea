#include "walk_bindings.h"

#include "python_arrays.h"
#include "walk.h"

namespace rescore {

nb::tuple py_walk(const Automaton& lm, In<int32_t, 1> tokens, uint64_t state) {
  const size_t count = tokens.shape(0);
  expect_range("state", state, 0, lm.num_states - 1);
  for (size_t i = 0; i < count; ++i)
    if (tokens.data()[i] < 0 || static_cast<uint32_t>(tokens.data()[i]) >= lm.vocab_size)
      expect_range(("tokens[" + std::to_string(i) + "]").c_str(), tokens.data()[i], 0, int64_t{lm.vocab_size} - 1);
  auto cost = make<float>({count});
  auto order = make<uint8_t>({count});
  auto before = make<uint32_t>({count});
  uint32_t after;
  {
    nb::gil_scoped_release release;
    after = walk(lm, static_cast<uint32_t>(state), tokens.data(), count, {cost.data, order.data, before.data});
  }
  return nb::make_tuple(cost.array, order.array, before.array, after);
}

}  // namespace rescore
