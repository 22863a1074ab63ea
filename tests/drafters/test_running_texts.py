"""Counts of the running text during decoding, against the model's own forward passes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.running_text import Text
from support.tiny_blockwise import V, predicted, text, trained

from rescore.decode.drafters.drafter import EMPTY
from rescore.decode.drafters.running_texts import RunningTexts, top_predictions
from rescore.decode.drafters.tree_drafter import TreeDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.models.blockwise_target import BlockwiseTarget
from rescore.decode.rescoring.calibrated import CalibratedTrees
from rescore.decode.rescoring.calibration import HEADLESS, TOP, Calibration
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.verify.draft import Draft
from rescore.lm.ngram import NGram


class Watched(TreeDrafter):
    """Keeps the steps and the texts of one request."""

    def open(self, prompts, shaping):
        session, self.steps = super().open(prompts, shaping), []
        search = session.proposer.search
        self.texts, read = search._texts, search.read

        def keep(step):
            self.steps.append(step)
            read(step)

        search.read = keep
        return session


@pytest.mark.parametrize("rejected", [False, True])
def test_counts_are_those_of_the_models_own_predictions(rejected):
    prompt = text(9, seed=3)
    drafter = Watched(None, Rescorer(NGram.uniform(V), calibration=HEADLESS), nodes=5, depth=3, rejected=rejected)
    generate(BlockwiseTarget(trained()), [prompt], drafter, Options(max_tokens=12))
    twin = Text(prompt[:1].tolist(), HEADLESS.text, None, [*HEADLESS.soft, 0.0])
    for step in drafter.steps:
        history = step.histories[0].tolist()
        if rejected:
            tree = step.last[0].tree
            for node in set(range(tree.size)) - set(step.last[0].accepted):
                path = tree.tokens[tree.path_to(node)].tolist()
                twin.foresee(path, predicted([*twin.tokens, *path]))
        while len(twin.tokens) < len(history):
            at = len(twin.tokens)
            twin.extend(history[:at], history[at : at + 1], [predicted(history[:at])])
    other, ids = np.full(V, 1 / V), np.arange(V, dtype=np.int32)
    for draft in ((), (3,), (history[-2], history[-1])):
        mixture = drafter.texts.texts[0].mixture(np.array(draft, np.int32), np.array(HEADLESS.text), ids)
        assert mixture[0] + mixture[1] * other == pytest.approx(twin.distribution(draft, other), abs=2e-5)


class Steps:
    """Drafts nothing, and keeps the steps."""

    drawn = 0

    def open(self, prompts, shaping):
        self.steps = []
        return self

    def propose(self, step):
        self.steps.append(step)
        return [Draft(tree=EMPTY)]


@torch.inference_mode()
def test_only_the_end_of_a_long_prompt_is_predicted():
    prompt, seen = text(30, seed=4), Steps()
    generate(BlockwiseTarget(trained()), [prompt], seen, Options(max_tokens=9))
    first = seen.steps[0]
    rescorer = CalibratedTrees(NGram.uniform(V), HEADLESS)
    short, whole = (RunningTexts(rescorer, 1, prompt=most) for most in (5, 1000))
    for texts in (short, whole):
        texts.read(first)
    history = first.histories[0].tolist()
    known = [{}] * (len(history) - 6) + [predicted(history[:at]) for at in range(len(history) - 6, len(history))]
    twin = Text(history, HEADLESS.text, known, [*HEADLESS.soft, 0.0])
    strength, ids, other = np.array(HEADLESS.text), np.arange(V, dtype=np.int32), np.full(V, 1 / V)
    share, rest = short.texts[0].mixture(np.array([history[3]], np.int32), strength, ids)
    assert share + rest * other == pytest.approx(twin.distribution((history[3],), other), abs=2e-5)
    assert whole.texts[0].mixture(np.array([history[3]], np.int32), strength, ids)[1] != pytest.approx(rest, abs=1e-6)


@torch.inference_mode()
def test_of_steps_that_were_not_read_only_the_tokens_count():
    prompt, seen = text(9, seed=3), Steps()
    generate(BlockwiseTarget(trained()), [prompt], seen, Options(max_tokens=9))
    texts = RunningTexts(CalibratedTrees(NGram.uniform(V), HEADLESS), 1, prompt=0)
    for step in (seen.steps[0], seen.steps[4]):
        texts.read(step)
    history = seen.steps[4].histories[0].tolist()
    read = len(seen.steps[0].histories[0]) - 1, len(history) - 1
    known = [predicted(history[:at]) if at in read else {} for at in range(len(history))]
    twin = Text(history, HEADLESS.text, known, [*HEADLESS.soft, 0.0])
    strength, ids, other = np.array(HEADLESS.text), np.arange(V, dtype=np.int32), np.full(V, 1 / V)
    for at in (*read, read[0] + 2):
        draft = tuple(history[at - 2 : at])
        share, rest = texts.texts[0].mixture(np.array(draft, np.int32), strength, ids)
        assert share + rest * other == pytest.approx(twin.distribution(draft, other), abs=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_predictions_are_the_softmax(dtype):
    logits = (torch.randn(5, 40, generator=torch.Generator().manual_seed(1)) * 4).to(dtype)
    ids, p = top_predictions(logits)
    wanted = torch.softmax(logits.double(), dim=-1).numpy()
    assert ids.shape == p.shape == (5, TOP) and ids.dtype == np.int32 and p.dtype == np.float32
    assert p == pytest.approx(np.take_along_axis(wanted, ids, axis=1), abs=1e-6)
    assert p == pytest.approx(-np.sort(-wanted, axis=1)[:, :TOP], abs=1e-6)
    for got, wanted in zip(top_predictions(logits[:2], logits[2:]), (ids, p)):
        assert got.tolist() == wanted.tolist()
    few, _ = top_predictions(logits[:, :3])
    assert few.shape == (5, 3)


def test_calibrations_of_soft_counts():
    assert Calibration(text=(1.0, 2.0), soft=(0.0, 0.5)).shares.tolist() == [0, 0.5]
    assert Calibration(text=(1.0, 2.0)).shares.tolist() == [0, 0] and Calibration(text=None).shares.size == 0
    assert Calibration.from_json(HEADLESS.to_json()) == HEADLESS
    old = {name: value for name, value in Calibration().to_json().items() if name != "soft"}
    assert Calibration.from_json(old) == Calibration()
    with pytest.raises(ValueError, match="soft: expected at most one share for each order of text"):
        Calibration(text=(1.0,), soft=(0.0, 0.5))
    with pytest.raises(ValueError, match="soft: expected numbers from 0 to 1, got 1.5"):
        Calibration(text=(1.0,), soft=(1.5,))
