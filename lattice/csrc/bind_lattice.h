// Python bindings of this folder.
#pragma once

#include <nanobind/nanobind.h>

namespace rescore {

void bind_lattice(nanobind::module_& m);  // Acceptor, top, top_predictions, best_tokens

}  // namespace rescore
