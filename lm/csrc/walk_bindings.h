#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "automaton.h"

namespace rescore {
// (cost, order, state, state after the last token) of a text.
nanobind::tuple py_walk(const Automaton& lm, nanobind::ndarray<const int32_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu> tokens, uint64_t state);
}  // namespace rescore
