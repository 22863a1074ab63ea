"""A part of the grid of tools/check/lossless.py: every drafter conforms on every family of small models."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from support.slow import slow_but
from support.tools import load_tool

from rescore import Dump
from rescore.decode.conformance.checks import Status

check_lossless = load_tool("check/lossless")
small_models = load_tool("check/small_models")


@pytest.fixture(scope="module")
def material(demo):
    dump = Dump.open(demo / "sampled")
    text = check_lossless.text_of(dump)
    return check_lossless.prompts_of(dump, 5), text, check_lossless.model_of(text, dump.header.end_of_text)


GRID = [*((family, "float32") for family in small_models.FAMILIES), ("llama", "bfloat16")]
QUICK = ("llama", "float32"), ("blockwise", "float32")


@pytest.mark.parametrize("family, dtype", slow_but(QUICK, GRID))
def test_every_drafter_conforms(family, dtype, material):
    prompts, text, lm = material
    small = partial(small_models.small, family, text, lm.vocab_size, dtype=getattr(torch, dtype))
    model, other = small(steps=3, seed=1), small(steps=0, seed=2)
    for name, report in check_lossless.held(model, lm, other, prompts, tokens=12, tie=check_lossless.TIES[dtype]):
        assert report, f"{name}: {report}"
        assert dtype == "bfloat16" or all(one.status is not Status.NEAR_TIE for one in report.findings), str(report)
