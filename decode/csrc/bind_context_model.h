// ContextModel, as Python sees it.
#pragma once

#include "arrays.h"

namespace rescore {

void bind_context_model(nb::module_& m);

}  // namespace rescore
