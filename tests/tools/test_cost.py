"""The cost of drafts: examples worked by hand, the paper's table, published sizes, and the drafters of a replay."""

import dataclasses
import json
import sys

import pytest
from support import cli
from support.refusals import refuses
from support.tools import load_tool

cost, shapes = load_tool("bench/cost"), load_tool("bench/shapes")

# 1104 parameters are read; 32 numbers are kept per token; two layers of width 8.
SHAPE = cost.Shape(read=1104, stored=1184, cache=32, attention=16, width=8, vocab_size=10)
TREE = cost.Way(name="tree", tokens_per_pass=2.0, verified=4)
# 1000 bytes and 10,000 operations per second are reached.
SLOW = cost.Accelerator(bandwidth=1000 / cost.REACHED, flops=10_000 / cost.COMPUTED, memory=1e4)


def figures(work) -> tuple[float, float, float]:
    return work.parameters, work.cache, work.flops


def test_a_step_by_hand():
    """A batch of 3 after 20 tokens, 5 tokens each; then 2 rows of 1 + 2 tokens that keep 20 each, or share them, and
    heads of 2 x 8 x 9 parameters that read the table's 80 as well.
    """
    (work,) = cost.step(SHAPE, TREE, batch=3, length=20)
    assert figures(work) == (2208, 3 * 25 * 64, 15 * (2208 + 4 * 2 * 8 * 25))
    rows = cost.Way(name="rows", tokens_per_pass=1.5, verified=4, rows=2, shared=False, slots=2)
    target, heads = cost.step(SHAPE, rows, batch=1, length=20)
    assert figures(target)[1:] == (64 * (40 + 6), 6 * (2208 + 64 * 23))
    assert figures(heads) == (2 * (144 + 80), 0, 2 * (144 + 2 * 80))
    shared = dataclasses.replace(rows, shared=True)
    assert cost.step(SHAPE, shared, batch=1, length=20)[0].cache == 64 * (20 + 6)
    assert cost.held(SHAPE, rows, batch=1, length=20) == 2 * (1184 + 144) + 64 * (40 + 6)


def test_time_by_hand():
    """Plain: 2208 + 21 x 64 bytes take 3.552 s, 2208 + 64 x 21 operations 0.355 s. The tree: 3.808 and 1.904 s, and 1 s
    of search.
    """
    tree, at = dataclasses.replace(TREE, drafting=1.0), {"batch": 1, "length": 20}
    assert cost.seconds(SHAPE, cost.PLAIN, SLOW, **at) == pytest.approx(3.552)
    assert cost.seconds(SHAPE, tree, SLOW, **at) == pytest.approx(4.808)
    assert cost.times_plain(SHAPE, tree, SLOW, **at) == pytest.approx(2 * 3.552 / 4.808)


def test_where_drafts_stop_paying_is_exact():
    slower = dataclasses.replace(SLOW, flops=4000 / cost.COMPUTED)
    edge = cost.pays_below(SHAPE, TREE, slower, 20)
    before, at = (cost.times_plain(SHAPE, TREE, slower, batch=batch, length=20) for batch in (edge - 1, edge))
    assert before > 1 >= at
    always = dataclasses.replace(TREE, tokens_per_pass=5.0)
    assert cost.pays_below(SHAPE, always, SLOW, 20) is None


PRINTED = """
3.000 1.823 1.811 1.811 1.747 1.669
0.113 0.074 0.073 0.076 0.140 0.134
0.453 0.280 0.278 0.290 0.338 0.323
0.906 0.555 0.552 0.574 0.602 0.575
1.812 1.106 1.098 1.144 1.129 1.079
0.931 0.57 0.567 0.635 0.621 0.593
"""


def test_the_papers_table_11():
    """Every printed cell. With a cache, parameters are the same, and what is kept is an eighth."""
    printed = [[float(cell) for cell in line.split()] for line in PRINTED.split("\n") if line]
    found = cost.table_11()
    for row, own in zip(printed, zip(*found.values()), strict=True):
        assert own == pytest.approx(row, abs=5e-4)
    for way in cost.PAPERS_WAYS:
        own = cost.per_token(cost.PAPER, way, 2048 - (way is cost.PAPERS_WAYS[0]))
        assert 1e-9 * own.parameters == pytest.approx(found[way.name][0])
        assert 8e-9 * own.cache == pytest.approx(found[way.name][4])


@pytest.mark.parametrize(
    "name, parameters", [("7b", 6_738_415_616), ("llama-3-8b", 8_030_261_248), ("llama-3-70b", 70_553_706_496)]
)
def test_published_sizes(name, parameters):
    assert cost.Shape.of(shapes.SHAPES[name]).stored == parameters


@pytest.mark.parametrize("family, tied", [("llama", False), ("gpt2", True), ("qwen3", True)])
def test_what_a_pass_reads(family, tied):
    """All matrices but a table that is only looked up."""
    import torch
    import transformers
    from support.tiny_families import small_config

    config = small_config(family, tie_word_embeddings=tied, **({"n_inner": None} if family == "gpt2" else {}))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    matrices = {name: one.numel() for name, one in model.named_parameters() if one.ndim == 2 and "wpe" not in name}
    table = model.get_input_embeddings().weight.numel()
    assert cost.Shape.of(config).read == sum(matrices.values()) - (0 if tied else table)


def test_what_is_refused():
    from transformers import MixtralConfig, T5Config

    refuses(ValueError, lambda: cost.Shape.of(MixtralConfig()), "num_local_experts")
    refuses(ValueError, lambda: cost.Shape.of(T5Config()), "encoder")
    refuses(ValueError, lambda: cost.way("w=3,1"), "w", "2", "3")


@pytest.mark.slow
def test_drafters_of_a_replay(world, monkeypatch, capsys):
    """Every drafter but the oracle, whole paths twice; the model alone has no heads. The fastest is printed as such."""
    cli.done(capsys, f"run {world}/dump --lm {world}/lm.ngram --paths 4 --threads 1 --json {world}/run.json")
    report = json.loads((world / "run.json").read_text())
    ways = {way.name: way for way in cost.ways_of(report, None)}
    (means,) = report["overall"]
    both = {"parallel-base", "parallel-rescored"}
    assert ways.keys() == means["block_efficiency"].keys() - {"oracle"} | {f"{name}, own caches" for name in both}
    own, shared = ways["parallel-base, own caches"], ways["parallel-base"]
    assert (own.rows, own.shared, shared.rows, shared.shared) == (4, False, 4, True)
    assert ways["base"].drafting == 0 and ways["tree 16"].drafting > 0
    assert (ways["tree 16"].slots, ways["lm-alone 16"].slots) == (3, 0)
    monkeypatch.setattr(sys, "argv", ["cost.py", "tiny", "--run", f"{world}/run.json", "--batch", "2", "--length", "9"])
    cost.main()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    (row,) = (row for row in rows if len(row) == 8 and row[0] == "tree 16")
    shape, at = cost.Shape.of(shapes.SHAPES["tiny"]), {"batch": 2, "length": 9}
    way, gpu = ways["tree 16"], cost.ACCELERATORS["h100"]
    assert float(row[1]) == pytest.approx(1e3 * cost.seconds(shape, way, gpu, **at), abs=5e-3)
    assert float(row[4]) == pytest.approx(cost.times_plain(shape, way, gpu, **at), abs=5e-3)
