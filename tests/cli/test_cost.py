"""`rescore cost` and `rescore bench passes`: what they read, print and refuse."""

import json

import pytest
from support import cli
from support.refusals import assert_named, refuses
from support.tiny_blockwise import untrained

from rescore.decode.cost import cost_inputs
from rescore.decode.cost.cost_model import ACCELERATORS, Method, Roofline, forecast, per_token
from rescore.decode.cost.model_shape import PRESETS
from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTransformer


@pytest.fixture(scope="module")
def run(world):
    """A report of `rescore run` as it is."""
    words = f"run {world}/dump --lm {world}/lm.ngram --paths 4 --threads 1 --json {world}/run.json"
    assert cli.main(words.split()) == 0
    return world / "run.json"


def test_ways_of_a_report(run):
    """Every drafter but the oracle; whole paths twice; the model alone has no heads."""
    ways = {way.name: way for way in cost_inputs.read_ways(run)}
    report = json.loads(run.read_text())
    (means,) = report["overall"]
    efficiency, verified = means["block_efficiency"]["tree 16"], means["verified_per_pass"]["tree 16"]
    drafting = 1e-3 * report["ms_per_lattice"][0]["tree"]
    tree = Method(name="tree 16", tokens_per_pass=efficiency, verified=verified, slots=3, drafting=drafting)
    assert ways["tree 16"] == tree
    assert "oracle" not in ways and ways["base"].drafting == 0 and ways["lm-alone 16"].slots == 0
    own, shared = ways["parallel-base, own caches"], ways["parallel-base, shared cache"]
    assert (own.rows, own.shared_cache, shared.shared_cache) == (4, False, True)
    assert own.tokens_per_pass == means["block_efficiency"]["parallel-base"]


def test_figures_are_the_cost_model_s(run, capsys):
    words = f"cost --model llama-3-8b --run {run} --gpu a100 --batch 4 --length 300 --overhead-us 50"
    report, ways = cli.figures(capsys, words), cost_inputs.read_ways(run)
    shape, clock = PRESETS["llama-3-8b"].with_block_heads(3), Roofline(accelerator=ACCELERATORS["a100"], overhead=5e-5)
    for row, one in zip(report["forecasts"], forecast(shape, ways, clock, batch=4, length=300), strict=True):
        told = (row["way"], row["step_ms"], row["tokens_per_s"], row["times_plain"])
        assert told == (one.way.name, 1e3 * one.step_s, one.tokens_per_s, one.times_plain) and row["fits"]
    for row, way in zip(report["per_token"][1:], ways, strict=True):
        own = per_token(shape, way, length=300)
        told = (row["parameter_bytes"], row["cache_bytes"]["300"], row["flops"])
        assert told == (own.parameter_bytes, own.cache_bytes, own.flops)
    (fastest,) = (row for row in report["forecasts"] if row["fastest"])
    assert fastest["tokens_per_s"] == max(row["tokens_per_s"] for row in report["forecasts"])


def test_where_drafts_stop_paying_is_exact(capsys):
    """The batch before the printed one is still faster."""
    words = ["cost", "--model", "7b", "--way", "mine=2.5,31", "--gpu", "l4", "--length", 100]
    edge = cli.figures(capsys, *words)["forecasts"][1]["stops_paying_at"]
    rows = cli.figures(capsys, *words, "--batch", edge - 1, "--batch", edge)["forecasts"]
    before, at = (row["times_plain"] for row in rows if row["way"] == "mine")
    assert before > 1 >= at


def test_a_neural_rescorer(capsys):
    """Three slots, three passes of the small model after the target's and its heads'."""
    (_, row) = cli.figures(capsys, "cost --model 7b --neural 1.5b=2 --slots 3 --batch 1")["forecasts"]
    shape, small = PRESETS["7b"].with_block_heads(3), PRESETS["1.5b"]
    way = Method(name="neural", tokens_per_pass=2, verified=3, slots=3, small=small, small_passes=3)
    clock = Roofline(accelerator=ACCELERATORS["h100"])
    assert row["step_ms"] == pytest.approx(1e3 * clock.seconds(shape, way, batch=1, length=1024))
    without = clock.seconds(shape, Method(name="one", tokens_per_pass=2, verified=3, slots=3), batch=1, length=1024)
    plain = clock.seconds(small, Method(name="small", tokens_per_pass=1), batch=1, length=1024)
    assert row["step_ms"] == pytest.approx(1e3 * (without + 3 * plain))


def test_measured_passes(capsys, tmp_path):
    """Seconds by straight lines between the measured ones; batches are those measured."""
    tables = [
        {"batch": 1, "length": 64, "tokens": [1, 129], "seconds": [0.01, 0.02]},
        {"batch": 2, "length": 64, "tokens": [2, 258], "seconds": [0.01, 0.04]},
    ]
    passes = tmp_path / "p.json"
    passes.write_text(json.dumps({"passes": tables}))
    words = ["cost", "--model", "tiny", "--way", "mine=2.5,64", "--passes", passes, "--length", 64]
    rows = cli.figures(capsys, *words)["forecasts"]
    assert [(row["batch"], row["way"]) for row in rows[1:]] == [(1, "mine"), (2, "autoregressive"), (2, "mine")]
    assert [row["step_ms"] for row in rows] == pytest.approx([10, 15, 10, 25])
    assert [row["times_plain"] for row in rows] == pytest.approx([1, 2.5 / 1.5, 1, 1.0])
    assert rows[1]["stops_paying_at"] == 2
    assert "bound" not in cli.done(capsys, *words).out
    cli.refusal(capsys, *words, "--batch", 3, status=2, names=["--batch", "3"])
    cli.refusal(capsys, *words[:-1], 65, names=["65", "64", "--length"])


def test_passes_are_measured(capsys, tmp_path):
    words = f"bench passes --shape tiny --batch 2 --length 9 --repeats 1 --threads 1 --json {tmp_path}/p.json"
    assert_named(cli.done(capsys, words).out, ["2", "9"])
    (own,) = json.loads((tmp_path / "p.json").read_text())["passes"]
    assert own["tokens"] == [2 * width for width in (1, 2, 3, 5, 9, 17, 33, 65, 129)]
    assert sorted(own["seconds"]) == own["seconds"]
    assert cost_inputs.read_passes(tmp_path / "p.json", 9)[2].seconds.tolist() == own["seconds"]


def test_passes_of_a_model(capsys, tmp_path):
    shape = {"layers": 1, "width": 8, "attention_heads": 1, "hidden": 8, "head_hidden": 8, "context": 160}
    BlockwiseTransformer(BlockwiseConfig(vocab_size=20, heads=2, **shape)).save(tmp_path / "model.safetensors")
    words = f"bench passes --model {tmp_path}/model.safetensors --batch 1 --repeats 1 --threads 1 --length"
    assert len(cli.figures(capsys, words, 20)["passes"][0]["tokens"]) == 9
    cli.refusal(capsys, words, 40, status=2, names=["--length", "40", "31", "160", "129"])


def test_models_from_files(tmp_path):
    untrained().save(tmp_path / "model.safetensors")
    shape = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8, "vocab_size": 500}
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(shape))
    for folder, file in ((tmp_path, "model.safetensors"), (tmp_path / "theirs", "config.json")):
        assert cost_inputs.open_shape(str(folder)) == cost_inputs.open_shape(str(folder / file))
    assert cost_inputs.open_shape(str(tmp_path)).block_parameters


def of_dumps(*rows: tuple[str, str]) -> str:
    """A report of dumps, by their block efficiencies and verified tokens."""
    means = (f'{{"dump": "{i}", "block_efficiency": {b}, "verified_per_pass": {v}}}' for i, (b, v) in enumerate(rows))
    return f'{{"settings": {{}}, "overall": [{", ".join(means)}]}}'


HUGE = f'{{"base": {10**400}}}'


def of_passes(**changes) -> str:
    """Measured passes of texts of 64 tokens."""
    return json.dumps({"passes": [{"batch": 1, "length": 64, "tokens": [1], "seconds": [1], **changes}]})


def read_passes(path) -> None:
    cost_inputs.read_passes(path, 64)


@pytest.mark.parametrize(
    "read, text, named",
    [
        (cost_inputs.read_ways, "{", ["parse"]),
        (cost_inputs.read_ways, "[]", ["list"]),
        (cost_inputs.read_ways, "{}", ["overall"]),
        (cost_inputs.read_ways, of_dumps(("{}", "{}"), ("{}", "{}")), ["--dump"]),
        (cost_inputs.read_ways, of_dumps(('{"base": 0.5}', '{"base": 8}')), ["base", "tokens_per_pass"]),
        (cost_inputs.read_ways, of_dumps(('{"base": 1}', '{"base": NaN}')), ["NaN"]),
        (cost_inputs.read_ways, of_dumps((HUGE, '{"base": 8}')), ["block_efficiency['base']", "1000"]),
        (read_passes, '{"passes": 3}', ["passes", "3"]),
        (read_passes, '{"passes": []}', ["64"]),
        (read_passes, of_passes(batch=0), ["passes[0]"]),
        (read_passes, of_passes(length="64"), ["length", "'64'"]),
        (read_passes, of_passes(tokens=[1, 1], seconds=[1, 2]), ["tokens"]),
        (read_passes, of_passes(tokens=[10**30]), ["tokens[0]", "1000"]),
    ],
)
def test_refused_files(tmp_path, read, text, named):
    path = tmp_path / "run.json"
    path.write_text(text)
    refuses(ValueError, lambda: read(path), path, *named)
