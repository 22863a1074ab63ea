// Python bindings of top.h.
#pragma once

#include <nanobind/nanobind.h>

namespace rescore {

void bind_top(nanobind::module_& m);  // top, top_predictions, best_tokens

}  // namespace rescore
