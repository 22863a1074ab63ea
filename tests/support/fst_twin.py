"""The slow twin of `rescore.lm.model.fst`: an automaton added to a VectorFst of OpenFst, arc by arc."""

from typing import Any

from rescore.lm.model.ngram import NGram


def added_arc_by_arc(model: NGram, failure_label: int = 0, start: int = 0) -> Any:
    import pywrapfst

    arrays = model.arrays
    fst = pywrapfst.VectorFst("standard")
    fst.add_states(len(arrays.backoff_state))

    def add(state: int, label: int, cost: float, after: int) -> None:
        fst.add_arc(state, pywrapfst.Arc(label, label, pywrapfst.Weight("tropical", float(cost)), int(after)))

    for state in range(len(arrays.backoff_state)):
        if state:
            add(state, failure_label, arrays.backoff_cost[state], arrays.backoff_state[state])
        for arc in range(int(arrays.arc_begin[state]), int(arrays.arc_begin[state + 1])):
            add(state, int(arrays.arc_token[arc]) + 1, arrays.arc_cost[arc], arrays.arc_next[arc])
        fst.set_final(state)
    fst.set_start(start)
    return fst
