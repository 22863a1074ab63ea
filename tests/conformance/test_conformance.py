"""The harness: right decoders pass whatever the seed, and each planted fault is found by its check."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats
from support.faulty import FAULTS, Speculative, Tables, text_of
from support.refusals import refuses

from rescore.decode.conformance import Parameters, Plain, conforms
from rescore.decode.conformance.checks import CHECKS, FEATURES, Status
from rescore.decode.conformance.reference import g_statistic, of_table, same_law, upper_tail
from rescore.lattice.structure import Acceptor

PROMPTS = [[3, 1], [5], [2, 6, 7, 1, 4], [1, 1, 2]]
STATISTICAL = ("q of another temperature", "seeds per batch", "grammar on the first node alone")
FAILED, PASSED, NEAR_TIE, NOT_TRIED = Status.FAILED, Status.PASSED, Status.NEAR_TIE, Status.NOT_TRIED


def decoder(seed: int, fault: str = "") -> Speculative:
    model = Tables(seed)
    return Speculative(model, Tables(seed + 1000, near=model), fault)


def held(decode, reference=None, **options):
    return conforms(decode, reference or decode.model, PROMPTS, **{"text_of": text_of, "samples": 500, **options})


def statuses(report) -> dict[str, Status]:
    return {one.check: one.status for one in report.findings}


@pytest.mark.parametrize("seed", range(3))
def test_a_right_decoder_passes_every_check(seed):
    report = held(decoder(seed), seed=seed)
    assert report and statuses(report) == dict.fromkeys(CHECKS, PASSED), str(report)


@pytest.mark.slow
def test_forty_right_decoders_pass():
    for seed in range(40):
        report = held(decoder(seed), seed=seed)
        assert report, f"seed {seed}: {report}"


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault):
    report = held(decoder(1, fault))
    assert not report and report[FAULTS[fault]].status is FAILED, str(report)
    assert str(report).startswith("does NOT conform:") and FAULTS[fault] in str(report)


@pytest.mark.parametrize("plain, samples", [(False, 2000), pytest.param(True, 16000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", ["", "the most probable token after a draft"])
def test_the_token_after_a_long_draft_is_tried(fault, plain, samples):
    """Drafts of nine good tokens. Between two samples, whose laws are unknown, it takes more texts."""
    model = Tables(1)
    decode = Speculative(model, Tables(1001, near=model, weight=0.1), fault, depth=9)
    report = held(decode, Plain(decoder(1).plainly) if plain else None, lacks=FEATURES - {"sampling"}, samples=samples)
    assert report["law"].status is (FAILED if fault else PASSED), str(report)


@pytest.mark.parametrize("fault", ["", *STATISTICAL, "end token ignored inside a draft"])
def test_a_decoder_without_drafts_is_a_reference_too(fault):
    """A structure must be given then, since there is no vocabulary to choose one from."""
    turns = Acceptor([(turn, x, 1 - turn) for turn in range(2) for x in (1 + turn, 3 + turn, 5 + turn)], final={0})
    report = held(decoder(2, fault), Plain(decoder(2).plainly), structure=turns, end_token=0)
    assert report[FAULTS[fault]].status is FAILED if fault else report, str(report)


def test_lacking_features_are_not_tried():
    asked: list[Parameters] = []

    def decode(prompts, parameters):
        assert len(prompts) == 1
        asked.append(parameters)
        return right(prompts, parameters)

    right = decoder(0)
    report = conforms(decode, right.model, PROMPTS, lacks=FEATURES, text_of=text_of)
    assert statuses(report) == {name: NOT_TRIED if needs else PASSED for name, (needs, _) in CHECKS.items()}
    assert set(asked) == {Parameters(max_new_tokens=24)}
    decode.lacks = FEATURES - {"sampling", "penalty"}
    tried = conforms(decode, right.model, PROMPTS, samples=200)
    assert {name for name, status in statuses(tried).items() if status is PASSED} == {
        *("greedy", "penalty", "law", "law, penalty", "independent rows")
    }


def test_near_ties_are_apart():
    """Tokens 6 and 7 have nearly the same logits everywhere, and the decoder exchanges them."""
    right, other = Tables(4), Tables(4)
    for ours, theirs in zip(right.parts, other.parts):
        ours[:, 7], theirs[:, 7] = ours[:, 6] - 1e-5, theirs[:, 6] + 1e-5
    decode, lacks = Speculative(other, Tables(5, near=other)), FEATURES - {"batches"}
    report = held(decode, right, lacks=lacks)
    assert report and report["greedy"].status is NEAR_TIE
    assert "expected token 6, got token 7" in report["greedy"].evidence
    assert not held(decode, right, lacks=lacks, tie=1e-6)


def test_what_a_decoder_raises_or_returns_is_evidence():
    right = decoder(0)

    def raises(prompts, parameters):
        if parameters.end_tokens:
            raise KeyError("no end tokens here")
        return right(prompts, parameters)

    report = held(raises, right.model, samples=50)
    assert report["greedy"].status is PASSED
    assert report["end tokens"].status is FAILED and "no end tokens here" in report["end tokens"].evidence
    fewer = held(lambda prompts, parameters: right(prompts, parameters)[:1], right.model, samples=50)
    assert fewer["greedy"].status is PASSED and "4 lists" in fewer["padding"].evidence
    report = held(lambda prompts, parameters: right(prompts, replace(parameters, cancel=None)), right.model, samples=50)
    assert [name for name, status in statuses(report).items() if status is FAILED] == ["cancelled requests"]


def test_arguments_are_checked():
    decode = decoder(0)
    refuses(ValueError, lambda: held(decode, lacks=("beams",)), "lacks", "beams")
    refuses(ValueError, lambda: held(decode, structure=Acceptor([(0, 1, 0)], final={0})), "end_token")
    for prompts in ([[1, 2]], [[1], []]):
        refuses(ValueError, partial(conforms, decode, decode.model, prompts), "prompts")


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 51, 200])
def test_the_upper_tail_is_that_of_chi_squared(freedom):
    for g in (0.0, 0.3, 1.0, freedom / 2, freedom, 2.0 * freedom, 40.0 + 3 * freedom):
        assert upper_tail(g, freedom) == pytest.approx(stats.chi2.sf(g, freedom), rel=1e-9, abs=1e-300)


def test_p_values_are_uniform():
    """Of laws, of tables, and of two samples, at the least expected counts: as many below p as p says."""
    rng, law = np.random.default_rng(0), np.array([0.5, 0.2, 0.2, 0.05, 0.05])
    assert upper_tail(*g_statistic([5, 1, 4], [5, 0, 5])) == 0  # what a law forbids
    of_law = [upper_tail(*g_statistic(rng.multinomial(200, law), 200 * law)) for _ in range(4000)]
    pairs = np.outer([0.6, 0.4], law / law.sum()).ravel()
    of_tables = [upper_tail(*of_table(rng.multinomial(600, pairs).reshape(2, 5))) for _ in range(4000)]
    texts = [(x, y) for x in range(5) for y in range(2)]

    def drawn():
        return [texts[i] for i in rng.choice(10, 200, p=pairs)]

    both = [upper_tail(*same_law(drawn(), drawn())) for _ in range(1000)]
    for found in (of_law, of_tables, both):
        for p in (0.01, 0.1, 0.5):
            below = sum(one < p for one in found)
            assert stats.binomtest(below, len(found), p).pvalue > 1e-4, (p, below)
