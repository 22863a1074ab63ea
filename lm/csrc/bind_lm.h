// What Python sees of language models.
#pragma once

#include <nanobind/nanobind.h>

namespace rescore {

void bind_automaton(nanobind::module_& m);      // Automaton, and the functions that make its arrays
void bind_context_model(nanobind::module_& m);  // ContextModel
void bind_counting(nanobind::module_& m);       // windows of a text, sorted and counted
void bind_levels(nanobind::module_& m);         // the n-grams of an order

}  // namespace rescore
