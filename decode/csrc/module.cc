// The Python module of the native core.

#include "best_paths.h"
#include "best_tree.h"
#include "bind_decode.h"
#include "bind_lattice.h"
#include "bind_lm.h"
#include "context_model.h"
#include "models.h"
#include "order.h"
#include "sausage.h"
#include "top.h"
#include "weight.h"

using namespace rescore;

// Constants shared with Python.
static void bind_constants(nanobind::module_& m) {
  m.attr("MAX_SLOTS") = kMaxSlots;
  m.attr("MAX_CANDIDATES") = kMaxCandidates;
  m.attr("MAX_ORDER") = kMaxOrder;
  m.attr("MAX_TEXT_ORDER") = ContextCounts::kMaxOrder;
  m.attr("MAX_MODELS") = kMaxModels;
  m.attr("MAX_TOP") = kMaxTop;
  m.attr("MAX_PATHS") = kMaxPaths;
  m.attr("MAX_NODES") = kMaxNodes;
  m.attr("MAX_WEIGHT") = kMaxWeight;
  m.attr("LEAST_MASS") = kLeastMass;
  m.attr("RAREST") = kRarest;
  m.attr("NOTHING") = kNothing;
}

NB_MODULE(RESCORE_CORE, m) {
  m.doc() = "Native core of rescore; the functions are documented in _core.pyi.";
  m.attr("processor") = RESCORE_PROCESSOR;
  nanobind::set_leak_warnings(false);
  bind_constants(m);
  bind_automaton(m);
  bind_context_model(m);
  bind_counting(m);
  bind_levels(m);
  bind_lattice(m);
  bind_searches(m);
  bind_graphs(m);
  bind_normalised(m);
  bind_narrow_linear(m);
  bind_slot_cache(m);
  bind_feedback(m);
  bind_edit_model(m);
}
