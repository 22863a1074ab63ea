// The normalised lattices that Python sees.
#pragma once

#include "arrays.h"

namespace rescore {

// Normalised.
void bind_normalised(nb::module_& m);

}  // namespace rescore
