"""`rescore cost` and `rescore bench passes`: what they read, print and refuse."""

from __future__ import annotations

import json

import pytest
from support import cli

from rescore.decode.cost import cost_inputs
from rescore.decode.cost.cost_model import ACCELERATORS, Precision, Roofline, Way, forecast, per_token
from rescore.decode.cost.cost_tables import BATCHES
from rescore.decode.cost.model_shape import PRESETS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A report of `rescore run` as it is."""
    from rescore.decode.cli import main

    folder = tmp_path_factory.mktemp("cost")
    made = cli.make_dump(folder / "dump")
    cli.make_model(folder / "lm.ngram", made)
    words = [
        "run",
        folder / "dump",
        "--lm",
        folder / "lm.ngram",
        "--paths",
        4,
        "--threads",
        1,
        "--json",
        folder / "run.json",
    ]
    assert main([str(word) for word in words]) == 0
    return folder / "run.json"


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
    assert ways["tree 16"] == Way(
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
        capsys,
        "cost",
        "--model",
        "llama-3-8b",
        "--run",
        run,
        "--gpu",
        "a100",
        "--batch",
        4,
        "--length",
        300,
        "--overhead-us",
        50,
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


def test_tables(run, capsys, tmp_path):
    words = [
        "cost",
        "--model",
        "llama-3-70b",
        "--run",
        run,
        "--way",
        "mine=3,12,2",
        "--gpu",
        "4800,989,141",
        "--json",
        tmp_path / "c.json",
    ]
    out = cli.call(capsys, *words).out
    assert (
        "predicted, not measured" in out
        and "1 text at once after 1,024 tokens; fastest:" in out
        and "64 texts at once" in out
    )
    assert "pays below" in out and "mine" in out and "!" in out  # 70 billion parameters do not fit into 141 GB
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["machine"]["bandwidth"] == 4.8e12 and not any(row["fits"] for row in found["forecasts"])


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
    way = Way(name="neural", tokens_per_pass=2, verified=3, slots=3, small=small, small_passes=3)
    clock = Roofline(accelerator=ACCELERATORS["h100"])
    assert row["step_ms"] == pytest.approx(1e3 * clock.seconds(shape, way, batch=1, length=1024))
    without = clock.seconds(shape, Way(name="one", tokens_per_pass=2, verified=3, slots=3), batch=1, length=1024)
    plain = clock.seconds(small, Way(name="small", tokens_per_pass=1), batch=1, length=1024)
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
    assert f"passes as measured in {passes}" in out and "bound" not in out
    assert "--batch 3: " in cli.refusal(capsys, *words, "--batch", 3, status=2)
    assert "expected passes after 65 tokens, got passes after 64: set --length to one of these" in cli.refusal(
        capsys, *words[:-1], 65
    )


def test_passes_are_measured(capsys, tmp_path):
    pytest.importorskip("torch")
    words = ["bench", "passes", "--shape", "tiny", "--batch", 2, "--length", 9, "--repeats", 1, "--threads", 1]
    pytest.importorskip("transformers")
    result = cli.call(capsys, *words, "--json", tmp_path / "p.json")
    assert result.status == 0 and "batch 2, 9 tokens in the cache" in result.out
    (own,) = json.loads((tmp_path / "p.json").read_text())["passes"]
    assert (
        own["tokens"] == [2 * width for width in (1, 2, 3, 5, 9, 17, 33, 65, 129)]
        and sorted(own["seconds"]) == own["seconds"]
    )
    assert cost_inputs.read_passes(tmp_path / "p.json", 9)[2].seconds.tolist() == own["seconds"]


def test_passes_of_a_model(capsys, tmp_path):
    torch = pytest.importorskip("torch")
    from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTransformer

    model = BlockwiseTransformer(
        BlockwiseConfig(
            vocab_size=20, heads=2, layers=1, width=8, attention_heads=1, hidden=8, head_hidden=8, context=160
        )
    )
    model.save(tmp_path / "model.safetensors", dtype=torch.float32)
    words = ["bench", "passes", "--model", tmp_path / "model.safetensors", "--batch", 1, "--repeats", 1, "--threads", 1]
    assert len(cli.figures(capsys, *words, "--length", 20)["passes"][0]["tokens"]) == 9
    refused = cli.refusal(capsys, *words, "--length", 40, status=2)
    assert (
        "--length 40: expected at most 31, since the model's context is 160 tokens and the widest pass reads 129"
        in refused
    )


@pytest.mark.parametrize("more", [[], ["--model", "m", "--shape", "tiny"]])
def test_passes_of_one_model(capsys, more):
    pytest.importorskip("torch")
    assert "--model, --shape: expected exactly one of them" in cli.refusal(capsys, "bench", "passes", *more, status=2)


@pytest.mark.parametrize(
    "more, message",
    [
        ([], "--model: expected a model's shape, or --paper for the paper's table"),
        (["--model", "7b"], "--run, --way, --neural: expected at least one of them"),
        (
            ["--model", "7b", "--way", "x=2,8", "--passes", "p", "--gpu", "l4"],
            "--passes replaces the machine: leave out --gpu",
        ),
        (
            ["--model", "7b", "--way", "x=2,8", "--way", "x=3,8"],
            "--way x: expected a name that no other way has",
        ),
        (
            ["--model", "7b", "--way", "autoregressive=3,8"],
            "--way autoregressive: expected a name that no other way has",
        ),
        (
            ["--model", "7b", "--neural", "tiny=2"],
            "--neural: expected the number of heads, from --run or --slots, got none",
        ),
        (
            ["--model", "7b", "--neural", "tiny=2", "--slots", 3, "--passes", "p"],
            "--neural: measured passes do not include the small model's",
        ),
        (
            ["--model", "7b", "--neural", "tiny"],
            "'tiny': expected NAME=TOKENS or PATH=TOKENS, with a number of tokens per pass",
        ),
        (["--model", "7b", "--way", "x=2"], "'x=2': expected NAME=TOKENS,VERIFIED or NAME=TOKENS,VERIFIED,ROWS"),
        (["--model", "7b", "--way", "=2,8"], "expected NAME=TOKENS,VERIFIED"),
        (
            ["--model", "7b", "--way", "x=2,8", "--bandwidth-share", 2],
            "--bandwidth-share: expected a finite number above 0 and at most 1",
        ),
    ],
)
def test_misuse(capsys, more, message):
    assert message in cli.refusal(capsys, "cost", *more, status=2)


def test_impossible_figures(capsys):
    assert r"x: expected at most 1 + verified = 3 tokens per pass, got 4" in cli.refusal(
        capsys, "cost", "--model", "7b", "--way", "x=4,2"
    )


@pytest.mark.parametrize(
    "gpu, message",
    [
        ("abacus", "accelerator abacus: expected one of h200, h100"),
        ("1,2,x", "accelerator 1,2,x: could not convert"),
        ("1,2,0", "accelerator 1,2,0: memory: expected a finite number above 0"),
    ],
)
def test_no_such_accelerator(capsys, gpu, message):
    assert message in cli.refusal(capsys, "cost", "--model", "7b", "--way", "x=2,8", "--gpu", gpu)


def test_no_such_model(capsys, tmp_path):
    refused = cli.refusal(capsys, "cost", "--model", tmp_path, "--way", "x=2,8")
    assert (
        f"{tmp_path}: expected one of tiny, 1.5b, 7b, llama-3-8b, llama-3-70b, paper-1.5b, a config.json, "
        "a .safetensors file of ours" in refused
    )


def test_models_from_files(tmp_path):
    pytest.importorskip("torch")
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
        ("{", "expected JSON, got text that does not parse"),
        ("[]", "expected a JSON object, got list"),
        ("{}", "overall: .*none; give a report of `rescore run --json`"),
        ('{"settings": {}, "overall": 3}', "overall: .*3"),
        (
            '{"settings": {}, "overall": [{"dump": "a", "block_efficiency": {}, "verified_per_pass": {}}, '
            '{"dump": "b", "block_efficiency": {}, "verified_per_pass": {}}]}',
            "expected one of the dumps a, b, got none: name it with --dump",
        ),
        (
            '{"settings": {}, "overall": [{"dump": "a", "block_efficiency": {"base": 0.5}, "verified_per_pass": '
            '{"base": 8}}]}',
            "base: tokens_per_pass: expected",
        ),
        (
            '{"settings": {}, "overall": [{"dump": "a", "block_efficiency": {"base": NaN}, "verified_per_pass": '
            '{"base": 8}}]}',
            "NaN",
        ),
        (
            '{"settings": {}, "overall": [{"dump": "a", "block_efficiency": {"base": 1}, "verified_per_pass": '
            '{"base": NaN}}]}',
            "NaN",
        ),
        (
            '{"settings": {}, "overall": [{"dump": "a", "block_efficiency": {"base": 1%s}, "verified_per_pass": '
            '{"base": 8}}]}' % ("0" * 400),
            r"block_efficiency\['base'\]: .*got 1000",
        ),
    ],
)
def test_refused_reports(tmp_path, text, message):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        cost_inputs.read_ways(tmp_path / "run.json")
    assert str(tmp_path / "run.json") in str(caught.value)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"passes": 3}, "passes: .*3"),
        ({"passes": [{"batch": 1}]}, r"passes\[0\].length: .*none"),
        (
            {"passes": [{"batch": 1, "length": 64, "tokens": [1, 1], "seconds": [1, 2]}]},
            "tokens: expected ascending numbers",
        ),
        (
            {"passes": [{"batch": 0, "length": 64, "tokens": [1], "seconds": [1]}]},
            r"passes\[0\].batch: .*got 0",
        ),
        (
            {"passes": [{"batch": 1, "length": 64, "tokens": [10**30], "seconds": [1]}]},
            r"tokens\[0\]: .*got 1000",
        ),
        (
            {"passes": [{"batch": 1, "length": 64, "tokens": [1.5], "seconds": [1]}]},
            r"tokens\[0\]: .*got 1.5",
        ),
        (
            {"passes": [{"batch": 1, "length": "64", "tokens": [1], "seconds": [1]}]},
            "length: .*'64'",
        ),
        ({"passes": []}, "expected passes after 64 tokens, got passes after none"),
    ],
)
def test_refused_passes(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        cost_inputs.read_passes(write_passes(tmp_path / "p.json", **changes), 64)


def test_names_of_a_stranger_do_not_reach_the_terminal_as_they_are(run, capsys, tmp_path):
    report = json.loads(run.read_text())
    for part in ("block_efficiency", "verified_per_pass"):
        report["overall"][0][part]["\x1b[2Jx"] = 2
    (tmp_path / "run.json").write_text(json.dumps(report))
    out = cli.call(capsys, "cost", "--model", "7b", "--run", tmp_path / "run.json").out
    assert "\x1b" not in out and "\\x1b[2Jx" in out


def test_names_in_the_help_are_those_there_are(capsys):
    text = " ".join(cli.call(capsys, "cost", "--help-all").out.split())
    for name in (*ACCELERATORS, *PRESETS):
        assert name in text
    assert "1, 8 and 64" in text and BATCHES == (1, 8, 64)
