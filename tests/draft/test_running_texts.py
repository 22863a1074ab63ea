"""Counts of the running text during decoding, against the model's own forward passes."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.running_text import Text
from support.scripted import Scripted
from support.tiny_blockwise import V, predicted, text, trained
from support.watched import Watched

from rescore import NGram, Rescorer, Sampling
from rescore.decode.draft.calibration import HEADLESS, PREDICTED, TOP
from rescore.decode.draft.tree_drafter import RunningTexts, TreeDrafter
from rescore.decode.loop.generate import Options, generate, top_predictions
from rescore.decode.loop.request import Request
from rescore.decode.models.blockwise import BlockwiseTarget
from rescore.decode.models.draft_step import DraftStep, LastPass, Read
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree

RESCORER = Rescorer(NGram.uniform(V), calibration=HEADLESS)


def twin_of(prompt):
    return Text(prompt, HEADLESS.text, PREDICTED, prompt=len(prompt))


def assert_same(counts, twin, drafts):
    other, ids = np.full(V, 1 / V), np.arange(V, dtype=np.int32)
    for draft in drafts:
        share, rest = counts.mixture(np.array(draft, np.int32), ids)
        assert share + rest * other == pytest.approx(twin.distribution(tuple(draft), other), abs=2e-5)


@pytest.mark.parametrize("rejected", [False, True])
def test_counts_are_those_of_the_models_own_passes(rejected):
    prompt = text(9, seed=3)
    drafter = Watched(TreeDrafter(None, RESCORER, nodes=5, depth=3, rejected=rejected))
    generate(BlockwiseTarget(trained()), [prompt], drafter, Options(max_tokens=12))
    twin, foreseen = twin_of(prompt.tolist()), 0
    for step in drafter.steps:
        history, tree = step.histories[0].tolist(), step.last[0].tree
        for node in sorted(set(range(tree.size)) - set(step.last[0].accepted)) if rejected else ():
            path = tree.tokens[tree.path_to(node)].tolist()
            twin.foresee(path, predicted([*twin.tokens, *path]))
            foreseen += 1
        twin.extend(history[len(twin.tokens) :])
    assert bool(foreseen) == rejected
    assert_same(drafter.session._texts.texts[0], twin, ((), (3,), (history[-2], history[-1])))


@torch.inference_mode()
def test_a_pass_is_read_after_steps_that_were_not():
    """Its rejected nodes follow all tokens but those that it accepted and the root token."""
    prompt, seen = text(9, seed=3), Watched(Scripted(lambda _: []))
    tree = TokenTree.from_parents([5, 7, 2], [-1, 0, -1])
    generate(BlockwiseTarget(trained()), [prompt], seen, Options(max_tokens=9))
    texts = RunningTexts(RESCORER.calibrated)
    texts.read(seen.steps[0])
    history = [*seen.steps[0].histories[0].tolist(), 4, 6, 5, 9]  # two tokens unread, one accepted, the root token
    ids, p = top_predictions(TOP, torch.randn(4, V, generator=torch.Generator().manual_seed(2)) * 3)
    read = Read(np.append(history[-3], tree.tokens), ids, p)
    last = LastPass(tree=tree, accepted=[0])
    step = replace(seen.steps[0], histories=[np.array(history)], last=[last], predictions=lambda k: [read])
    texts.read(step)
    twin = twin_of(prompt.tolist())
    twin.extend(history[len(prompt) : -2])
    for path, node in (((5, 7), 1), ((2,), 2)):
        twin.foresee(path, dict(zip(ids[1 + node].tolist(), p[1 + node])))
    twin.extend(history[-2:])
    assert_same(texts.texts[0], twin, ((), (7,), (5, 7), (2,), (6, 2), (9,)))


@pytest.mark.parametrize("groups", [(), (None, None, None), ("a", "b", "a"), ("a", "a", "b"), (0, 0, 0)])
def test_requests_of_a_group_share_their_counts(groups):
    """By default those with the same prompt, here the first and the last; in a group, a prompt counts once."""
    prompts, answers = [[1, 2, 3], [1, 2, 4], [1, 2, 3]], [[5, 6, 5], [5, 7, 7], [6, 6, 2]]
    of = groups if any(one is not None for one in groups) else ("a", "b", "a")
    texts, twins, blank = RunningTexts(RESCORER.calibrated), [], {}
    for prompt, group in zip(prompts, of):
        if of.count(group) == 1:
            twins.append(twin_of(prompt))
            continue
        behind = blank.setdefault(group, {(): twin_of(())})
        if tuple(prompt) not in behind:
            behind[tuple(prompt)] = behind[()].sibling()
            behind[tuple(prompt)].extend(prompt)
        twins.append(behind[tuple(prompt)].sibling())
    for length in (1, 3):
        histories = [np.array(prompt + answer[:length], np.int32) for prompt, answer in zip(prompts, answers)]
        texts.read(DraftStep(histories=histories, room=[9] * 3, groups=groups))
        for twin, answer in zip(twins, answers):
            twin.extend(answer[len(twin.tokens) - 3 : length])
    texts.select([2, 1])
    for place, row in enumerate((2, 1)):
        assert_same(texts.texts[place], twins[row], ((), (5,), (1, 2), (6, 5)))


@torch.inference_mode()
def test_samples_of_one_prompt_draft_from_each_other_and_stay_the_same():
    """Random numbers belong to the rows, so the texts are those decoded alone, in fewer passes."""
    prompt, target = text(9, seed=3), BlockwiseTarget(trained())
    drafter = TreeDrafter(None, RESCORER, nodes=5, depth=3)
    options = Options(max_tokens=24, shaping=Shaping(sampling=Sampling(temperature=0.7)))

    def passes(groups):
        found = generate(target, [Request(prompt=prompt, group=group) for group in groups], drafter, options)
        return [one.tokens.tolist() for one in found], sum(one.statistics.passes for one in found)

    apart, alone = passes(range(8))
    together, shared = passes([None] * 8)
    assert together == apart and shared < alone
