// Python bindings of this folder.
#pragma once

#include <nanobind/nanobind.h>

namespace rescore {

void bind_acceptor(nanobind::module_& m);  // Acceptor
void bind_top(nanobind::module_& m);       // top, top_predictions, best_tokens

}  // namespace rescore
