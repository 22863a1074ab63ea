"""`rescore cost` and `rescore bench passes`: what they read, print and refuse."""

import json

import pytest
from support import cli
from support.refusals import assert_named, refused, refuses

from rescore.decode.cost import cost_inputs
from rescore.decode.cost.cost_model import ACCELERATORS, Method, Precision, Roofline, forecast, per_token
from rescore.decode.cost.model_shape import PRESETS


@pytest.fixture(scope="module")
def run(world):
    """A report of `rescore run` as it is."""
    words = f"run {world}/dump --lm {world}/lm.ngram --paths 4 --threads 1 --json {world}/run.json"
    assert cli.main(words.split()) == 0
    return world / "run.json"


def write_passes(path, **changes):
    tables = [
        {"batch": 1, "length": 64, "tokens": [1, 129], "seconds": [0.01, 0.02]},
        {"batch": 2, "length": 64, "tokens": [2, 258], "seconds": [0.01, 0.04]},
    ]
    path.write_text(json.dumps({"passes": tables, **changes}))
    return path


def test_the_paper_s_table(capsys):
    report = cli.figures(capsys, "cost", "--paper")
    assert [f"{value:.3f}" for value in report["rows"][0]["computed"]] == report["rows"][0]["printed"]
    out = cli.call(capsys, "cost", "--paper").out
    assert "computed (printed)" in out and "0.570 (0.57)" in out and "parallel 4-gram" in out


def test_ways_of_a_report(run):
    """Every drafter but the oracle; whole paths twice; the model alone has no heads."""
    ways = {way.name: way for way in cost_inputs.read_ways(run)}
    report = json.loads(run.read_text())
    (means,) = report["overall"]
    assert ways["tree 16"] == Method(
        name="tree 16",
        tokens_per_pass=means["block_efficiency"]["tree 16"],
        verified=means["verified_per_pass"]["tree 16"],
        slots=3,
        drafting=1e-3 * report["ms_per_lattice"][0]["tree"],
    )
    assert "oracle" not in ways and ways["base"].drafting == 0 and ways["lm-alone 16"].slots == 0
    for name in ("parallel-base", "parallel-rescored"):
        own, shared = ways[f"{name}, own caches"], ways[f"{name}, shared cache"]
        assert (own.rows, own.shared_cache, shared.shared_cache) == (4, False, True)
        assert own.tokens_per_pass == means["block_efficiency"][name]


def test_figures_are_the_cost_model_s(run, capsys):
    report = cli.figures(
        capsys, *f"cost --model llama-3-8b --run {run} --gpu a100 --batch 4 --length 300 --overhead-us 50".split()
    )
    shape = PRESETS["llama-3-8b"].with_block_heads(3)
    ways, clock = cost_inputs.read_ways(run), Roofline(accelerator=ACCELERATORS["a100"], overhead=5e-5)
    for row, one in zip(report["forecasts"], forecast(shape, ways, clock, batch=4, length=300), strict=True):
        assert (row["way"], row["step_ms"], row["tokens_per_s"], row["times_plain"]) == (
            one.way.name,
            1e3 * one.step_s,
            one.tokens_per_s,
            one.times_plain,
        )
        assert row["fits"] and row["bound"] in ("memory", "compute")
    for row, way in zip(report["per_token"][1:], ways, strict=True):
        own = per_token(shape, way, length=300)
        assert (row["parameter_bytes"], row["cache_bytes"]["300"], row["flops"]) == (
            own.parameter_bytes,
            own.cache_bytes,
            own.flops,
        )
        assert row["cache_bytes"].keys() == {"128", "300", "512", "1024", "2048"}
    assert sum(row["fastest"] for row in report["forecasts"]) == 1
    assert max(report["forecasts"], key=lambda row: row["tokens_per_s"])["fastest"]


def test_where_drafts_stop_paying_is_exact(capsys):
    """The batch before the printed one is still faster."""
    words = ["cost", "--model", "7b", "--way", "mine=2.5,31", "--gpu", "l4", "--length", 100]
    (edge,) = {row["stops_paying_at"] for row in cli.figures(capsys, *words)["forecasts"] if row["way"] == "mine"}
    at = {
        row["batch"]: row["times_plain"]
        for row in cli.figures(capsys, *words, "--batch", edge - 1, "--batch", edge)["forecasts"]
        if row["way"] == "mine"
    }
    assert at[edge - 1] > 1 >= at[edge]


def test_bytes_and_slots(run, capsys):
    report = cli.figures(
        capsys, "cost", "--model", "7b", "--run", run, "--slots", 8, "--parameter-bytes", "0.5", "--cache-bytes", 1
    )
    shape = PRESETS["7b"].with_block_heads(8)
    way = next(way for way in cost_inputs.read_ways(run) if way.name == "lm-alone 16")
    own = per_token(shape, way, length=1024, precision=Precision(parameter=0.5, cache=1))
    row = next(row for row in report["per_token"] if row["way"] == "lm-alone 16")
    assert (row["parameter_bytes"], row["cache_bytes"]["1024"]) == (own.parameter_bytes, own.cache_bytes)
    assert report["model"]["block_parameters"] == 8 * 4096 * 4097


def test_a_neural_rescorer(capsys):
    """Three slots, three passes of the small model after the target's and its heads'."""
    (_, row) = cli.figures(capsys, "cost", "--model", "7b", "--neural", "1.5b=2", "--slots", 3, "--batch", 1)[
        "forecasts"
    ]
    shape, small = PRESETS["7b"].with_block_heads(3), PRESETS["1.5b"]
    way = Method(name="neural", tokens_per_pass=2, verified=3, slots=3, small=small, small_passes=3)
    clock = Roofline(accelerator=ACCELERATORS["h100"])
    assert row["step_ms"] == pytest.approx(1e3 * clock.seconds(shape, way, batch=1, length=1024))
    without = clock.seconds(shape, Method(name="one", tokens_per_pass=2, verified=3, slots=3), batch=1, length=1024)
    plain = clock.seconds(small, Method(name="small", tokens_per_pass=1), batch=1, length=1024)
    assert row["step_ms"] == pytest.approx(1e3 * (without + 3 * plain))


def test_measured_passes(run, capsys, tmp_path):
    """Seconds by straight lines between the measured ones; batches are those measured."""
    passes = write_passes(tmp_path / "p.json")
    words = ["cost", "--model", "tiny", "--way", "mine=2.5,64", "--passes", passes, "--length", 64]
    rows = cli.figures(capsys, *words)["forecasts"]
    assert [(row["batch"], row["way"]) for row in rows] == [
        (1, "autoregressive"),
        (1, "mine"),
        (2, "autoregressive"),
        (2, "mine"),
    ]
    assert [row["step_ms"] for row in rows] == pytest.approx([10, 15, 10, 25])
    assert [row["times_plain"] for row in rows] == pytest.approx([1, 2.5 / 1.5, 1, 1.0])
    assert rows[1]["stops_paying_at"] == 2
    out = cli.call(capsys, *words).out
    assert "bound" not in out
    assert_named(out, [passes])
    cli.refusal(capsys, *words, "--batch", 3, status=2, names=["--batch", "3"])
    cli.refusal(capsys, *words[:-1], 65, names=["65", "64", "--length"])


def test_passes_are_measured(capsys, tmp_path):
    words = ["bench", "passes", "--shape", "tiny", "--batch", 2, "--length", 9, "--repeats", 1, "--threads", 1]
    result = cli.call(capsys, *words, "--json", tmp_path / "p.json")
    assert result.status == 0
    assert_named(result.out, ["2", "9"])
    (own,) = json.loads((tmp_path / "p.json").read_text())["passes"]
    assert own["tokens"] == [2 * width for width in (1, 2, 3, 5, 9, 17, 33, 65, 129)]
    assert sorted(own["seconds"]) == own["seconds"]
    assert cost_inputs.read_passes(tmp_path / "p.json", 9)[2].seconds.tolist() == own["seconds"]


def test_passes_of_a_model(capsys, tmp_path):
    import torch

    from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTransformer

    model = BlockwiseTransformer(
        BlockwiseConfig(
            vocab_size=20, heads=2, layers=1, width=8, attention_heads=1, hidden=8, head_hidden=8, context=160
        )
    )
    model.save(tmp_path / "model.safetensors", dtype=torch.float32)
    words = ["bench", "passes", "--model", tmp_path / "model.safetensors", "--batch", 1, "--repeats", 1, "--threads", 1]
    assert len(cli.figures(capsys, *words, "--length", 20)["passes"][0]["tokens"]) == 9
    cli.refusal(capsys, *words, "--length", 40, status=2, names=["--length", "40", "31", "160", "129"])


@pytest.mark.parametrize("more", [[], ["--model", "m", "--shape", "tiny"]])
def test_passes_of_one_model(capsys, more):
    cli.refusal(capsys, "bench", "passes", *more, status=2, names=["--model", "--shape"])


@pytest.mark.parametrize(
    "more, message",
    [
        ([], ["--model", "--paper"]),
        (["--model", "7b"], ["--run", "--way", "--neural"]),
        (["--model", "7b", "--way", "x=2,8", "--passes", "p", "--gpu", "l4"], ["--passes", "--gpu"]),
        (["--model", "7b", "--way", "x=2,8", "--way", "x=3,8"], ["--way"]),
        (["--model", "7b", "--way", "autoregressive=3,8"], ["--way"]),
        (["--model", "7b", "--neural", "tiny=2"], ["--neural", "--run", "--slots"]),
        (["--model", "7b", "--neural", "tiny=2", "--slots", 3, "--passes", "p"], ["--neural"]),
        (["--model", "7b", "--neural", "tiny"], ["'tiny'"]),
        (["--model", "7b", "--way", "x=2"], ["'x=2'"]),
        (["--model", "7b", "--way", "=2,8"], ["VERIFIED"]),
        (["--model", "7b", "--way", "x=2,8", "--bandwidth-share", 2], ["--bandwidth-share", "0", "1"]),
    ],
)
def test_misuse(capsys, more, message):
    cli.refusal(capsys, "cost", *more, status=2, names=message)


def test_impossible_figures(capsys):
    cli.refusal(capsys, "cost", "--model", "7b", "--way", "x=4,2", names=["x", "1", "3", "4"])


@pytest.mark.parametrize(
    "gpu, message", [("abacus", ["accelerator abacus", "h200", "h100"]), ("1,2,x", ["1,2,x"]), ("1,2,0", ["1,2,0"])]
)
def test_no_such_accelerator(capsys, gpu, message):
    cli.refusal(capsys, "cost", "--model", "7b", "--way", "x=2,8", "--gpu", gpu, names=message)


def test_no_such_model(capsys, tmp_path):
    cli.refusal(
        capsys,
        *f"cost --model {tmp_path} --way x=2,8".split(),
        names=[tmp_path, "7b", "llama-3-8b", "llama-3-70b", "paper-1.5b", "config.json"],
    )


def test_models_from_files(tmp_path):
    from support.tiny_blockwise import untrained

    (tmp_path / "ours").mkdir()
    untrained().save(tmp_path / "ours" / "model.safetensors")
    ours = cost_inputs.open_shape(str(tmp_path / "ours"))
    assert ours == cost_inputs.open_shape(str(tmp_path / "ours" / "model.safetensors")) and ours.block_parameters
    (tmp_path / "config.json").write_text(
        json.dumps({"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8, "vocab_size": 500})
    )
    assert cost_inputs.open_shape(str(tmp_path)) == cost_inputs.open_shape(str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", ["parse"]),
        ("[]", ["list"]),
        ("{}", ["overall"]),
        ('{"settings": {}, "overall": 3}', ["overall", "3"]),
        (
            '{"settings": {}, "overall": [{"dump": "a", "block_efficiency": {}, "verified_per_pass": {}}, '
            '{"dump": "b", "block_efficiency": {}, "verified_per_pass": {}}]}',
            ["--dump"],
        ),
        (
            '{"settings": {}, "overall": [{"dump": "a", "block_efficiency": {"base": 0.5}, "verified_per_pass": '
            '{"base": 8}}]}',
            ["base", "tokens_per_pass"],
        ),
        (
            '{"settings": {}, "overall": [{"dump": "a", "block_efficiency": {"base": NaN}, "verified_per_pass": '
            '{"base": 8}}]}',
            ["NaN"],
        ),
        (
            '{"settings": {}, "overall": [{"dump": "a", "block_efficiency": {"base": 1}, "verified_per_pass": '
            '{"base": NaN}}]}',
            ["NaN"],
        ),
        (
            '{"settings": {}, "overall": [{"dump": "a", "block_efficiency": {"base": 1%s}, "verified_per_pass": '
            '{"base": 8}}]}' % ("0" * 400),
            ["block_efficiency['base']", "1000"],
        ),
    ],
)
def test_refused_reports(tmp_path, text, message):
    (tmp_path / "run.json").write_text(text)
    with refused(ValueError, *message) as caught:
        cost_inputs.read_ways(tmp_path / "run.json")
    assert str(tmp_path / "run.json") in str(caught.value)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"passes": 3}, ["passes", "3"]),
        ({"passes": [{"batch": 1}]}, ["passes[0]"]),
        (
            {"passes": [{"batch": 1, "length": 64, "tokens": [1, 1], "seconds": [1, 2]}]},
            ["tokens"],
        ),
        (
            {"passes": [{"batch": 0, "length": 64, "tokens": [1], "seconds": [1]}]},
            ["passes[0]"],
        ),
        (
            {"passes": [{"batch": 1, "length": 64, "tokens": [10**30], "seconds": [1]}]},
            ["tokens[0]", "1000"],
        ),
        (
            {"passes": [{"batch": 1, "length": 64, "tokens": [1.5], "seconds": [1]}]},
            ["tokens[0]", "1.5"],
        ),
        (
            {"passes": [{"batch": 1, "length": "64", "tokens": [1], "seconds": [1]}]},
            ["length", "'64'"],
        ),
        ({"passes": []}, ["64"]),
    ],
)
def test_refused_passes(tmp_path, changes, message):
    refuses(ValueError, lambda: cost_inputs.read_passes(write_passes(tmp_path / "p.json", **changes), 64), *message)


def test_names_of_a_stranger_do_not_reach_the_terminal_as_they_are(run, capsys, tmp_path):
    report = json.loads(run.read_text())
    for part in ("block_efficiency", "verified_per_pass"):
        report["overall"][0][part]["\x1b[2Jx"] = 2
    (tmp_path / "run.json").write_text(json.dumps(report))
    out = cli.call(capsys, "cost", "--model", "7b", "--run", tmp_path / "run.json").out
    assert "\x1b" not in out and "\\x1b[2Jx" in out
