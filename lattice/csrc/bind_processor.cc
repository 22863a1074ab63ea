// The instruction sets of the processor, by which Python chooses a compiled core.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "levels.h"

NB_MODULE(_processor, m) { m.def("levels", &rescore::levels); }
