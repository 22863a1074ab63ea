#pragma once

#include <nanobind/nanobind.h>

namespace rescore {
void bind_counting(nanobind::module_& m);
void bind_levels(nanobind::module_& m);
}  // namespace rescore
