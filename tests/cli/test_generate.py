"""`rescore generate`: text as it comes, on pipes and terminals, with every drafter; why drafts do not pay."""

import argparse
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import gmean
from support import cli, tiny_transformers
from support.tiny_blockwise import END, V, text, trained, untrained, write_blend_settings, write_prompts, write_settings

from rescore.decode.cli.comparison import difference, explain_payoff
from rescore.decode.cli.verbs.generate import Typewriter, wants_colour
from rescore.decode.draft.registry import SPECS
from rescore.decode.loop import generate as loop
from rescore.decode.loop.generate import Chunk, Options, generate
from rescore.decode.loop.payoff import MOST, Speedup
from rescore.decode.loop.request import Finish, Statistics, Stopping
from rescore.decode.loop.text_stream import TextStream
from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTarget
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.open_target import use_threads
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lm.build.in_memory import build

PROMPTS = ["w3 w4 w5", "w7 w9", "w2 w2 w11 w6"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generate")
    trained().save(folder / "model.safetensors", dtype=torch.float32)
    cli.make_tokenizer(folder / "tokenizer.json", V)
    build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, end_of_text=END).save(folder / "lm.ngram")
    write_settings(folder / "s.json", folder / "lm.ngram")
    prompts = write_prompts(folder / "prompts.jsonl")
    made = f"dump make --model {folder} --tokenizer {folder}/tokenizer.json --prompts {prompts} -o {folder}/dump"
    assert cli.main([*made.split(), "--kind", "greedy", "--max-tokens", "20"]) == 0
    return folder


def ids(prompt: str) -> np.ndarray:
    return np.array([int(word[1:]) for word in prompt.split()])


def plain(shaping: Shaping = Shaping()) -> list[list[int]]:  # noqa: B008
    options = Options(max_tokens=30, shaping=shaping, stopping=Stopping(tokens=frozenset({END})))
    texts = generate(BlockwiseTarget(trained()), [ids(prompt) for prompt in PROMPTS], None, options)
    return [one.tokens.tolist() for one in texts]


def spelt(tokens: list[int]) -> str:
    """As a text that goes on: each word behind a blank; the end of text is not spelt."""
    return "".join(f" w{token}" for token in tokens if token != END)


def words(world, *more, prompts=PROMPTS[:1]) -> list:
    return ["generate", "--model", world / "model.safetensors", "--max-tokens", 30, "--threads", 1, *more, *prompts]


def test_one_text(world, capsys):
    result = cli.call(capsys, *words(world))
    (expected,) = plain()[:1]
    assert (result.status, result.out) == (0, spelt(expected) + "\n")
    lines = dict(line.split(maxsplit=1) for line in result.err.splitlines())
    assert lines["tokens"] == str(len(expected)) and list(lines) == ["tokens", "passes", "accepted", "drafted", "time"]


def test_several_texts_stand_one_behind_the_other(world, capsys):
    out = cli.call(capsys, *words(world, prompts=PROMPTS)).out
    texts = enumerate(zip(PROMPTS, plain()), 1)
    assert out == "\n".join(f"==> {i}/3: {prompt} <==\n{spelt(tokens)}\n" for i, (prompt, tokens) in texts)


def test_standard_input(world, capsys, monkeypatch, tmp_path):
    (tmp_path / "prompt").write_text(PROMPTS[0])
    monkeypatch.setattr("sys.stdin", open(tmp_path / "prompt"))
    assert cli.call(capsys, *words(world, prompts=["-"])).out == spelt(plain()[0]) + "\n"


@pytest.mark.parametrize("limit, used", [("1", 1), ("2", 2), ("8", 3), ("", 3), ("none", 3)])
def test_no_more_threads_than_openmp_gives(monkeypatch, limit, used):
    """Asked for more than that, oneDNN leaves parts of products of bfloat16 unwritten."""
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_THREAD_LIMIT", limit)
    try:
        use_threads(3)
        assert torch.get_num_threads() == used
    finally:
        torch.set_num_threads(before)


DRAFTERS = {
    "tree": ["--lm", "LM", "--nodes", 12],
    "tree of heads": ["--nodes", 12],
    "tree tuned": ["--settings", "SETTINGS", "--nodes", 12],
    "tree tuned of heads": ["--settings", "SETTINGS", "--without", "lm", "--nodes", 12],
    "paths": ["--lm", "LM", "--paths", 4],
    "paths, one": ["--lm", "LM", "--alpha", "0.5,0.4,0.3", "--paths", 1],
    "paths of heads": ["--paths", 4, "--layout", "rows", "--top-k", 3],
    "paths tuned": ["--settings", "SETTINGS"],
    "medusa-tree": ["--counts", "COUNTS", "--nodes", 12],
    "neural": ["--neural", "MODEL", "--paths", 2],
    "draft-model": ["--draft-model", "MODEL", "--ahead", 3],
    "blend tuned": ["--settings", "SETTINGS", "--nodes", 12, "--top-k", 3],
    "blend tuned auto": ["--settings", "SETTINGS"],
    "blend tuned of the text": ["--settings", "SETTINGS", "--without", "heads", "--without", "lm", "--nodes", 12],
    "blend": ["--lm", "LM", "--nodes", 12],
    "blend without lm": ["--lm", "LM", "--nodes", 12, "--without", "lm"],
    "blend without heads": ["--lm", "LM", "--nodes", 12, "--without", "heads"],
    "blend without text": ["--lm", "LM", "--nodes", 12, "--without", "text"],
    "blend of lm": ["--lm", "LM", "--nodes", 9, "--ahead", 5, "--without", "heads", "--without", "text"],
    "blend of lm auto": ["--lm", "LM", "--without", "heads", "--without", "text"],
    "blend and a model": ["--draft-model", "MODEL", "--nodes", 12],
    "eagle-2-tree": ["--nodes", 12],
    "prompt-lookup": ["--ahead", 4],
    "token-recycling": [],
    "suffix-decoding": ["--nodes", 12],
    "logit-spec": [],
    "racer": [],
    "none": [],
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_gives_the_models_own_text(world, capsys, name):
    names = {"LM": world / "lm.ngram", "MODEL": world / "model.safetensors", "SETTINGS": world / "s.json"}
    names["COUNTS"], drafter = world / "dump", name.replace(",", "").split()[0]
    options = ["--drafter", drafter, "--temperature", 0, *(names.get(word, word) for word in DRAFTERS[name])]
    got, expected = cli.figures(capsys, *words(world, *options, prompts=PROMPTS)), plain()
    assert [one["tokens"] for one in got["texts"]] == expected
    assert [one["text"] for one in got["texts"]] == [spelt(tokens) for tokens in expected]
    assert got["tokens"] == sum(map(len, expected)) and got["drafter"] == drafter
    assert (got["drafted"] > 0) == (got["passes"] < got["tokens"]) == (name != "none")
    assert got["accepted_by_position"] == sorted(got["accepted_by_position"], reverse=True)


@pytest.mark.parametrize("drafter", ["tree", "none"])
def test_drawn_text_is_that_of_its_seed(world, capsys, drafter):
    shaping = Shaping(sampling=Sampling(temperature=0.8, top_p=0.9, top_k=7, seed=5), repetition_penalty=1.2)
    options = ["--temperature", 0.8, "--top-p", 0.9, "--sample-top-k", 7, "--seed", 5, "--repetition-penalty", 1.2]
    got = cli.figures(capsys, *words(world, "--drafter", drafter, *options, prompts=PROMPTS))
    assert [one["tokens"] for one in got["texts"]] == plain(shaping)


def test_drawn_drafts(world, capsys):
    got = cli.figures(capsys, *words(world, "--drafter", "drawn", "--temperature", 0.8, "--paths", 2))
    assert got["drafted"] > 0 and len(got["texts"][0]["tokens"]) <= 30
    small = ["--drafter", "draft-model", "--draft-model", world / "model.safetensors"]
    draft = cli.figures(capsys, *words(world, *small, "--temperature", 0.8))
    # Its own model: nothing is refused.
    assert draft["accepted_by_position"][0] == pytest.approx(draft["passes"] - 1, abs=2)


@pytest.mark.parametrize("at, length", [(3, 1), (2, 7)])
def test_stop_strings_end_texts_and_are_not_shown(world, capsys, at, length):
    whole = spelt(plain()[0])
    stop = whole[at : at + length]
    got = cli.figures(capsys, *words(world, "--stop", stop, "--stop", "never"))
    assert got["texts"][0] == got["texts"][0] | {"text": whole[: whole.find(stop)], "finish": "stop_string"}
    assert cli.call(capsys, *words(world, "--stop", stop)).out == whole[: whole.find(stop)] + "\n"


def test_compare(world, capsys, tmp_path):
    result = cli.call(capsys, *words(world, "--compare", "--json", tmp_path / "r.json", prompts=PROMPTS))
    assert result.status == 0 and result.out.startswith("==> 1/3") and re.search(r"^same text yes$", result.err, re.M)
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["same_text"] is True
    assert report["plain"]["passes"] == report["plain"]["tokens"] == report["tokens"] > report["passes"]
    assert report["rounds"][0] == pytest.approx(report["tokens_per_s"] / report["plain"]["tokens_per_s"])
    assert report["speedup"] == pytest.approx(gmean(report["rounds"])) and 3 <= len(report["rounds"]) <= MOST
    low, high = report["interval"]
    assert low < report["speedup"] < high and report["payoff"]["interval"] == [low, high]
    assert result.err.startswith(
        f"verdict   drafted {report['speedup']:.2f} times as fast ({low:.2f} to {high:.2f} in "
    )
    assert [one["tokens"] for one in report["plain"]["texts"]] == [one["tokens"] for one in report["texts"]]
    told = [line.split(maxsplit=1) for line in result.err.splitlines() if line.startswith(("why", "try"))]
    payoff = report["payoff"]
    assert told == [["why", line] for line in payoff["why"]] + [["try", line] for line in payoff["try"]]
    assert payoff["pays"] == (payoff["try"] == [])


def test_rounds_decode_as_if_for_the_first_time(world, capsys, monkeypatch):
    """Otherwise later ones would profit from the same text."""
    forgotten = []
    monkeypatch.setattr("rescore.decode.cli.comparison.forget", forgotten.append)
    report = cli.figures(capsys, *words(world, "--compare"))
    assert len(forgotten) == 2 * len(report["rounds"])  # after warming up too, but not before the first drafted one


def test_a_difference_is_shown(world, capsys, monkeypatch):
    """Drafts drawn from q change which numbers draw the text, not its law."""
    result = cli.call(capsys, *words(world, "--compare", "--drafter", "drawn", "--temperature", 1.5))
    told = r"^same text no, 1 of 1 differ\nplain +text 1 from token \d+: '.*'\ndrafted +text 1 from token \d+: "
    assert re.search(told, result.err, re.M)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-3), (torch.bfloat16, None)])
def test_greedy_texts_that_differ_show_how_far_apart_their_tokens_are(dtype, near):
    model = tiny_transformers.build("qwen3").to(dtype)
    target = CausalLMTarget(model)
    prompt, same = np.array([3, 4, 5], np.int32), [7, 8]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *same]])).logits[0, -1].float()
    decoder = SimpleNamespace(opened=SimpleNamespace(target=target), text=SimpleNamespace(decode=str))
    ranked = logits.argsort(descending=True).tolist()
    for one, other in ((ranked[0], ranked[1]), (ranked[0], ranked[-1])):
        gap = float(logits[one] - logits[other])
        limit = near or 2 * torch.finfo(dtype).eps * float(logits[[one, other]].abs().max())
        (plain, drafted, apart) = difference(decoder, prompt, [*same, one, 1], [*same, other], 0, Shaping())
        assert str([one, 1]) in plain[1] and str([other]) in drafted[1]
        assert float(apart[1].split()[0]) == pytest.approx(gap, rel=0.06, abs=1e-5)
        assert ("near tie" in apart[1]) == (gap <= limit)
        assert len(difference(decoder, prompt, same, [*same, 1], 0, Shaping())) == 2  # one has ended


STREAM = loop.stream


def interrupted(*arguments):
    for count, chunk in enumerate(STREAM(*arguments)):
        if count == 4:
            raise KeyboardInterrupt
        yield chunk


def test_interrupted_text_stays(world, capsys, monkeypatch):
    monkeypatch.setattr(loop, "stream", interrupted)
    result = cli.call(capsys, *words(world, "--drafter", "none"))
    assert (result.status, result.out) == (130, spelt(plain()[0][:4]) + "\n")
    assert result.err == "rescore: interrupted; no incomplete files were left behind\n"


def test_standard_output_may_be_closed(world, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdout", None)
    assert cli.main([str(word) for word in words(world, "--json", tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["texts"][0]["text"] == spelt(plain()[0])


def test_colours_on_a_terminal(world):
    pytest.importorskip("pty")
    status, shown = cli.on_terminal(100, *words(world, "--drafter", "paths", "--paths", 1))
    assert status == 0
    coloured = shown.replace("\r\n", "\n").split("\n")[0]
    assert re.sub(r"\x1b\[\d+m", "", coloured) == spelt(plain()[0])
    assert coloured.startswith(" w")  # the prompt's pass gives a root token, plain
    runs = re.findall(r"\x1b\[(36|32)m((?: w\d+)\x1b\[0m)", coloured)
    assert {colour for colour, _ in runs} == {"36", "32"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_when_there_are_colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert [wants_colour(*of) for of in ((Terminal(), False), (Terminal(), True), (io.StringIO(), False))] == [1, 0, 0]
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert not wants_colour(Terminal(), False)


def test_terminals_are_not_steered_by_texts():
    out = Terminal()
    with Typewriter([TextStream(lambda ids: "\x1b[2Jx\ty\n" * len(ids))], [""], colour=True, out=out) as writer:
        for finish in (None, Finish.LENGTH):
            tokens = np.array([1], np.int32)
            writer.show(Chunk(request=0, tokens=tokens, accepted=0, finish=finish, statistics=Statistics()))
    assert out.getvalue() == "\\x1b[2Jx\ty\n" * 2


@pytest.fixture(scope="module")
def headless(tmp_path_factory):
    """A folder with a model without heads."""
    folder = tmp_path_factory.mktemp("headless")
    size = {"layers": 1, "width": 32, "attention_heads": 2, "hidden": 64, "head_hidden": 32, "context": 96}
    untrained(config=BlockwiseConfig(vocab_size=V, heads=1, **size)).save(folder / "model.safetensors")
    return folder


def test_models_without_heads(world, headless, capsys):
    call = ["generate", "--model", headless, "--tokenizer", world / "tokenizer.json", "--threads", 1, PROMPTS[0]]
    plain = cli.figures(capsys, *call, "--drafter", "none")
    for given in ((), ("--lm", world / "lm.ngram"), ("--nodes", 5, "--ahead", 3)):
        drafted = cli.figures(capsys, *call, *given)
        assert drafted["drafter"] == "blend" and drafted["texts"] == plain["texts"]


def test_settings_of_models_without_heads(world, headless, capsys, tmp_path):
    """Here such as never follow the running text: its drafts are worse than those of the default."""
    lm, settings = world / "lm.ngram", tmp_path / "s.json"
    write_blend_settings(settings, lm, text=((-20.0, 0.0, 0.0),) * 2)
    common = ["--tokenizer", world / "tokenizer.json", "--threads", 1, "--nodes", 4, "--max-tokens", 60, PROMPTS[0]]
    call = ["generate", "--model", headless, *common]
    tuned, default = (cli.figures(capsys, *call, *given) for given in (("--settings", settings), ("--lm", lm)))
    assert tuned["drafter"] == "blend" and tuned["texts"] == default["texts"] and tuned["passes"] > default["passes"]
    cli.refusal(capsys, *call, "--settings", world / "s.json", names=["3 slots", "dump"])
    for given in ((), ("--drafter", "blend")):
        cli.refusal(capsys, "generate", "--model", world, *common, "--settings", settings, *given, names=["3"])


def test_every_drafter_is_decoded_with():
    """All but `drawn`, which needs sampled text."""
    assert {name.replace(",", "").split()[0] for name in DRAFTERS} == SPECS.keys() - {"drawn"}


@pytest.mark.parametrize("compare", [False, True])
def test_a_memory_grows_from_call_to_call(world, capsys, tmp_path, compare):
    """Of what is written, and not of what --compare decodes beside it."""
    call = words(world, "--drafter", "blend", "--nodes", 12, "--memory", tmp_path / "m.npy", prompts=PROMPTS)
    first, again = (cli.figures(capsys, *call, *(["--compare"] if compare else [])) for _ in range(2))
    assert [one["tokens"] for one in again["texts"]] == [one["tokens"] for one in first["texts"]] == plain()
    assert again["passes"] < first["passes"]
    for report in (first, again) if compare else ():  # no round drafts from the text of an earlier one
        passes = report["passes"] - len(PROMPTS)
        assert report["payoff"]["tokens_per_pass"] == pytest.approx(1 + sum(report["accepted_by_position"]) / passes)
    texts = [[*ids(prompt), *tokens] for prompt, tokens in zip(PROMPTS, plain())]
    whole = [token for one in texts for token in (one if one[-1] == END else [*one, END])]
    assert sorted(np.load(tmp_path / "m.npy").tolist()) == sorted(2 * whole)


def test_a_prediction_is_copied(world, tmp_path, capsys):
    """The text is what it was, in fewer passes."""
    words = ["generate", "--model", world, "--max-tokens", "60", "--nodes", "16", "--threads", "1"]
    before = cli.figures(capsys, *words, PROMPTS[0])
    (tmp_path / "old.txt").write_text(before["texts"][0]["text"], encoding="utf-8")
    found = cli.figures(capsys, *words, "--prediction", tmp_path / "old.txt", PROMPTS[0])
    assert found["texts"] == before["texts"] and found["passes"] < before["passes"]
    assert found["accepted_prediction_tokens"] >= len(before["texts"][0]["tokens"]) - 1
    assert found["rejected_prediction_tokens"] == 0 and "accepted_prediction_tokens" not in before


# Ten passes of 30 ms with trees of 15 nodes, each second of which kept one token; plain ones take 10 ms.
DRAFTED = [Statistics(accepted=[1, 0] * 5, drafted=[15] * 10, verifying_us=300e3)]
PLAIN = [Statistics(accepted=[0] * 15, drafted=[0] * 15, verifying_us=150e3)]


def lines(kind, *, nodes=15, speedup=0.5, **given):
    args = argparse.Namespace(**{"lm": [], "without": [], "settings": None, "threads": 1, "device": None, **given})
    found = explain_payoff(args, kind, DRAFTED, PLAIN, Speedup((speedup,)), nodes=nodes)
    assert found.to_json()["try"] == list(found.remedies)
    return list(found.remedies)


@pytest.mark.parametrize(
    "kind, options, named",
    [
        ("blend", {}, ["--nodes auto", "--lm", "--drafter none"]),
        ("blend", {"lm": [(Path("lm.ngram"), 1.0)]}, ["--nodes auto", "--drafter none"]),
        (
            "blend",
            {"lm": [(Path("lm.ngram"), 1.0)], "without": ["text"]},
            ["--nodes auto", "--without", "--drafter none"],
        ),
        ("draft-model", {}, ["--ahead", "--drafter none"]),
        ("blend", {"speedup": 1.2}, []),
        ("blend", {"nodes": "auto"}, ["--lm", "--drafter none"]),
        ("paths", {}, ["--lm", "--drafter none"]),
    ],
)
def test_remedies_of_each_drafter(monkeypatch, kind, options, named):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    remedies = lines(kind, **options)
    assert len(remedies) == len(named) and all(one in remedy for one, remedy in zip(named, remedies))


@pytest.mark.parametrize("threads, device, more", [(1, None, 1), (4, "cpu", 0), (1, "cuda", 0)])
def test_processors_that_rest(monkeypatch, threads, device, more):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    remedies = lines("blend", threads=threads, device=device)
    assert sum("--threads 4" in one for one in remedies) == more
