"""Neural rescoring against loops that reread the whole text for every candidate, and against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.refusals import refuses
from support.steps import texts_of

torch = pytest.importorskip("torch")

from support.drafts import strings
from support.tiny_blockwise import CONFIG, V, text, trained, untrained

from rescore import HeadsLattice, Options, Sausage, generate
from rescore.decode.draft.lattice_drafters import PathDrafter
from rescore.decode.draft.neural_drafter import NeuralDrafter, NeuralRescorer
from rescore.decode.models.blockwise import BlockwiseHeads, BlockwiseTarget

MODEL = untrained(config=structs.replace(CONFIG, heads=1))


def cost_after(history) -> np.ndarray:
    """-ln p(. | history), float64 [V], the whole text read anew."""
    with torch.no_grad():
        logits = MODEL.logits(MODEL(torch.tensor([list(history)]))[0, -1], 1)
    return -logits.double().log_softmax(-1).numpy()


def beams_by_hand(sausage: Sausage, history, alpha, paths: int) -> list[tuple[int, ...]]:
    """The prefixes that a beam keeps, slot by slot; with one path algorithm 2 of Kim et al."""
    beam: list[tuple[float, list[int]]] = [(0.0, [])]
    kept: list[tuple[int, ...]] = []
    for t in range(int(sausage.lengths)):
        slot = [(int(token), float(cost)) for token, cost in zip(sausage.ids[t], sausage.cost[t]) if token >= 0]
        beam = sorted(
            (before + cost + alpha[t] * cost_after([*history, *tokens])[token], [*tokens, token])
            for before, tokens in beam
            for token, cost in slot
        )[:paths]
        kept += [tuple(tokens) for _, tokens in beam]
    return kept


def trees_of(sausages: Sausage, histories, **options):
    rescorer = NeuralRescorer(BlockwiseTarget(MODEL), **{"vocab_size": V, **options})
    return rescorer.trees(rescorer.open(histories, sausages.ids.shape[1]), sausages, texts_of(histories))


@st.composite
def lattices(draw, slots: int = 3, width: int = 3):
    """A batch of ragged lattices, each with the tokens before it."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    parts, histories = [], []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.lists(st.integers(1, width), min_size=1, max_size=slots))
        ids, logp = np.full((slots, width), -1), np.full((slots, width), -np.inf)
        for t, k in enumerate(rows):
            ids[t, :k] = random.permutation(V)[:k]
            logp[t, :k] = np.sort(-random.exponential(2, k))[::-1]
        parts.append(Sausage.from_topk(ids, logp))
        histories.append(random.integers(0, V, random.integers(1, 9)).astype(np.int32))
    return Sausage.batch(parts), histories


alphas = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0, 3.0]).map(lambda a: [a] * 3),
    st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.0]), min_size=3, max_size=3),
)


@settings(max_examples=40)
@given(lattices(), alphas, st.sampled_from([1, 2, 3, 27]))
def test_a_beam_keeps_the_best_prefixes_of_each_slot(case, alpha, paths):
    sausages, histories = case
    trees = trees_of(sausages, histories, alpha=alpha, paths=paths)
    for b, history in enumerate(histories):
        assert sorted(strings(trees[b])) == sorted(beams_by_hand(sausages[b], history, alpha, paths))


@pytest.mark.parametrize("paths", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("costs", [[[1.0, 1.0]] * 3, [[1.0, 2.0], [1.0, 5.0], [1.0, 4.0]]])
def test_ties_are_broken_by_rank_first_slot_first(costs, paths):
    """Of strings that all cost the same, and of 1 + 5 + 1 and 2 + 1 + 4, where the cheaper prefix is not that of the
    better ranks.
    """
    sausages = Sausage.from_topk([[[3, 1], [7, 2], [5, 4]]], -np.array([costs]))
    found = strings(trees_of(sausages, [np.array([1, 2], np.int32)], alpha=0.0, paths=paths)[0])
    held = [()]
    for t in range(3):
        grown = [(*path, rank) for path in held for rank in range(2)]
        held = sorted(grown, key=lambda path: (sum(costs[t][rank] for t, rank in enumerate(path)), path))[:paths]
        wanted = {tuple(int(sausages.ids[0, t, rank]) for t, rank in enumerate(path)) for path in held}
        assert {path for path in found if len(path) == t + 1} == wanted


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_candidate_that_the_model_cannot_write_is_not_chosen(alpha):
    sausages = Sausage.from_topk([[[V, 1]], [[V, V + 1]]], [[[-0.1, -2.0]], [[-0.1, -2.0]]])
    options = {"histories": [np.array([1, 2], np.int32)] * 2, "vocab_size": V + 2, "alpha": alpha}
    trees = trees_of(sausages, **options)
    assert trees.count.tolist() == [1, 0] and trees.tokens.tolist() == [[1], [-1]]
    nothing = Sausage(ids=np.full((2, 1, 2), -1, np.int32), cost=np.full((2, 1, 2), np.inf, np.float32))
    trees = trees_of(nothing, **options)
    assert trees.count.tolist() == [0, 0] and trees[1].size == 0


@pytest.mark.parametrize("paths", [1, 4])
def test_drafts_that_the_target_rescores_take_fewer_passes(paths):
    target, slots = BlockwiseTarget(trained()), HeadsLattice(heads=BlockwiseHeads(trained()), top_k=4)
    neural = NeuralDrafter(slots, NeuralRescorer(target, vocab_size=V, alpha=0.6, paths=paths))
    prompts = [text(4 + i, seed=50 + i).astype(np.int64) for i in range(5)]
    drafters = (None, PathDrafter(slots), neural)
    found = [generate(target, prompts, drafter, Options(max_tokens=24)) for drafter in drafters]
    texts = [[one.tokens.tolist() for one in own] for own in found]
    plain, base, passes = (sum(one.statistics.passes for one in own) for own in found)
    assert texts[0] == texts[1] == texts[2] and passes < base < plain


@pytest.mark.parametrize(
    "options, named",
    [
        ({"paths": 0}, ["paths", "0"]),
        ({"alpha": [[1.0]]}, ["alpha", "[T]", "[1, 1]"]),
        *(({"alpha": [0.5, value]}, ["alpha", "1000", value]) for value in (-1.0, float("inf"), float("nan"))),
        ({"alpha": [0.5, 1.0]}, ["alpha", "1", "2"]),
    ],
)
def test_weights_and_sizes_that_are_refused(options, named):
    sausages = Sausage.from_topk([[[1]]], [[[0.0]]])
    refuses(ValueError, lambda: trees_of(sausages, [np.array([1])], **options), *named)
