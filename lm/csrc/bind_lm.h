// Python bindings of language models.
#pragma once

#include <nanobind/nanobind.h>

namespace rescore {

void bind_automaton(nanobind::module_& m);      // Automaton, and functions that build its arrays
void bind_context_model(nanobind::module_& m);  // ContextModel
void bind_counting(nanobind::module_& m);       // sorting and counting the windows of a text
void bind_levels(nanobind::module_& m);         // the n-grams of an order

}  // namespace rescore
