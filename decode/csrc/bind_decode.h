// Python bindings of the searches.
#pragma once

#include <nanobind/nanobind.h>

namespace rescore {

void bind_searches(nanobind::module_& m);       // best_paths, best_tree
void bind_graphs(nanobind::module_& m);         // best_strings
void bind_normalised(nanobind::module_& m);     // Normalised
void bind_slot_cache(nanobind::module_& m);     // move_slots
void bind_narrow_linear(nanobind::module_& m);  // narrow_linear, narrow_rows
void bind_feedback(nanobind::module_& m);       // acceptance, count_accepted, foresee_rejected
void bind_edit_model(nanobind::module_& m);     // EditModel

}  // namespace rescore
