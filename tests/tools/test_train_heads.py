"""The trainer of Medusa heads on tiny data: its losses against definitions, the frozen model, the checkpoint's public
form.
"""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import pytest
from support.tools import load_tool

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors.torch import load_file
from support.tiny_blockwise import END, V, text
from support.tiny_causal import LENGTH, write_inputs
from support.training_runs import curve, run, run_in_two_parts
from torch import nn

from rescore.decode.models.causal_lm import CausalLMTarget

sample_text = load_tool("train/sample_text")
tied_loss = load_tool("train/tied_loss")
train_heads = load_tool("train/heads")
train_lm = load_tool("train/small_lm")

torch.set_num_threads(1)
COUNT, WIDTH = 3, 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Token files, a causal language model trained on them, and windows that it sampled itself."""
    folder = write_inputs(tmp_path_factory.mktemp("heads"))
    with pytest.MonkeyPatch.context() as patch:
        files = (
            f"--train a={folder}/a.npy --valid b={folder}/b.npy --tokenizer {folder}/tokenizer.json --config "
            f"{folder}/shape.json"
        )
        run(train_lm, patch, f"{folder}/lm {files} --length {LENGTH} --rows 16 --steps 81 --every 40")
        sample(folder, patch, "own.npz")
    return folder


def sample(folder, monkeypatch, out: str) -> dict[str, np.ndarray]:
    line = f"{folder}/lm --tokenizer {folder}/tokenizer.json --prompts {folder}/prompts.jsonl -o {folder / out}"
    run(sample_text, monkeypatch, f"{line} --length {LENGTH} --new-tokens 14 --rows 16")
    return dict(np.load(folder / out))


def train(folder, monkeypatch, out, more: str = "") -> None:
    files = f"--base {folder}/lm --valid own={folder}/own.npz text={folder}/b.npy"
    steps = "--rows 4 --steps 9 --every 4 --log-every 2"
    run(train_heads, monkeypatch, f"{out} {files} --heads {COUNT} --length {LENGTH} {steps} {more}")


OWN = "--own --train own={folder}/own.npz"
TEXT = "--train a={folder}/a.npy"


def digests(folder) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def base(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder / "lm", dtype=torch.float32).eval()


@pytest.mark.parametrize("kind", [OWN, TEXT])
@pytest.mark.parametrize("arithmetic", ["--bf16", "--no-bf16"])
def test_heads_learn_and_the_model_stays(folder, tmp_path, monkeypatch, kind, arithmetic):
    before, seen = digests(folder / "lm"), []
    weights = base(folder).to(torch.bfloat16 if arithmetic == "--bf16" else torch.float32).state_dict()
    opened = train_heads.open_model
    monkeypatch.setattr(train_heads, "open_model", lambda *given: seen.append(opened(*given)) or seen[-1])
    train(
        folder,
        monkeypatch,
        tmp_path / "out",
        f"{kind.format(folder=folder)} {arithmetic} --steps 61 --every 60 --log-every 20 --rows 16",
    )
    assert digests(folder / "lm") == before
    after = seen[0].state_dict()
    assert all(torch.equal(after[name], weights[name]) for name in weights) and not any(
        p.grad is not None for p in seen[0].parameters()
    )
    rows = curve(tmp_path / "out")
    name = "own" if kind == OWN else "text"
    assert len(rows[-1]["loss"]) == COUNT
    assert all(last < first for first, last in zip(rows[0]["valid"][name], rows[-1]["valid"][name]))


def test_untrained_heads_are_the_models_next_token_head(folder, tmp_path, monkeypatch):
    """Losses before the first step: the model's own logits at i, read as predictions of the token at i + j."""
    train(folder, monkeypatch, tmp_path / "out", f"{TEXT.format(folder=folder)} --no-bf16")
    tokens = np.load(folder / "b.npy")
    starts = np.linspace(0, len(tokens) - LENGTH, 16).astype(int)
    ids = torch.from_numpy(np.stack([tokens[i : i + LENGTH] for i in starts]).astype(np.int64))
    with torch.no_grad():
        logp = base(folder)(input_ids=ids).logits.log_softmax(-1)
    for j, loss in enumerate(curve(tmp_path / "out")[0]["valid"]["text"], start=2):
        expected = -logp[:, :-j].gather(2, ids[:, j:, None]).mean()
        assert loss == pytest.approx(expected.item(), abs=1e-4)


@pytest.mark.parametrize("kind", [OWN, TEXT])
def test_a_stopped_run_ends_as_an_uninterrupted_one(folder, tmp_path, monkeypatch, kind):
    line = kind.format(folder=folder) + " --layers 2 --untied"
    train(folder, monkeypatch, tmp_path / "whole", line)
    run_in_two_parts(lambda: train(folder, monkeypatch, tmp_path / "parts", line), monkeypatch, stop=5)
    assert curve(tmp_path / "whole") == curve(tmp_path / "parts")
    whole, parts = (load_file(tmp_path / name / "medusa_lm_head.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys() and all(torch.equal(whole[name], parts[name]) for name in whole)


class Block(nn.Module):
    """As published with the paper."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + nn.functional.silu(self.linear(x))


@pytest.mark.parametrize("untied", [False, True])
def test_the_checkpoint_has_the_public_form(folder, tmp_path, monkeypatch, untied):
    """A list of stacks under the published names takes it whole, and predicts as well as the curve says."""
    out = tmp_path / "out"
    train(folder, monkeypatch, out, f"{TEXT.format(folder=folder)} --layers 2 --no-bf16 {'--untied' if untied else ''}")
    config = json.loads((out / "config.json").read_text())
    assert config == {"medusa_num_heads": COUNT, "medusa_num_layers": 2, "base_model_name_or_path": str(folder / "lm")}
    model = base(folder)
    heads = nn.ModuleList(
        nn.Sequential(Block(), Block(), *[nn.Linear(WIDTH, V, bias=False)] * untied) for _ in range(COUNT)
    )
    heads.load_state_dict(load_file(out / "medusa_lm_head.safetensors"), strict=True)
    tokens = np.load(folder / "b.npy")
    starts = np.linspace(0, len(tokens) - LENGTH, 16).astype(int)
    ids = torch.from_numpy(np.stack([tokens[i : i + LENGTH] for i in starts]).astype(np.int64))
    with torch.no_grad():
        hidden = model.model(input_ids=ids).last_hidden_state
        for j, (head, loss) in enumerate(zip(heads, curve(out)[-1]["valid"]["text"]), start=2):
            logits = head(hidden) if untied else model.lm_head(head(hidden))
            expected = nn.functional.cross_entropy(logits[:, :-j].flatten(0, 1), ids[:, j:].flatten())
            assert loss == pytest.approx(expected.item(), abs=1e-4)


def test_gradients_of_own_tables_are_those_of_the_definition(monkeypatch):
    monkeypatch.setattr(tied_loss, "DISTILL_CHUNK_ROWS", 5)
    torch.manual_seed(3)
    shared, hidden = torch.randn(V, WIDTH) / 4, torch.randn(2, 18, WIDTH)
    positions, reach = tied_loss.own_positions(torch.tensor([4, 6]), torch.tensor([18, 12]), 18)

    def target(x):
        return torch.softmax(x @ shared.T / 0.7, -1)

    tables = [(shared + 0.1 * j).requires_grad_() for j in range(1, COUNT + 1)]
    tied_loss.distill([nn.Identity()] * COUNT, tables, target, hidden, positions, reach, measure=False)
    for j, table in enumerate(tables, start=2):
        twin, terms = table.detach().clone().requires_grad_(), []
        for row, start, stop in ((0, 4, 18), (1, 6, 12)):
            for i in range(start - 1, stop - j):
                logp = torch.log_softmax(hidden[row, i] @ twin.T, -1)
                terms.append(-(target(hidden[row, i + j - 1]) * logp).sum())
        (sum(terms) / len(terms)).backward()
        torch.testing.assert_close(table.grad, twin.grad, atol=1e-6, rtol=1e-4)


def test_windows_of_a_causal_model_are_its_own(folder):
    own = dict(np.load(folder / "own.npz"))
    assert own["tokens"].shape == (80, LENGTH) and own["tokens"].dtype == np.uint16
    for tokens, start, stop in zip(own["tokens"].tolist(), own["start"], own["stop"]):
        written = tokens[start:stop]
        assert 1 <= len(written) <= 14 and END not in written[:-1] and set(tokens[stop:]) <= {END}
        assert len(written) == 14 or written[-1] == END


def test_tokens_sampled_from_a_causal_model_have_its_distribution(folder):
    """The second token after dropping rows that ended, so that the cache has been cut down."""
    prompt = np.tile(text(6, 7).astype(np.int64), (3000, 1))
    model = base(folder)
    torch.manual_seed(0)
    drawn = sample_text.sample(CausalLMTarget(model), prompt, 2, 0.7, END)
    with torch.no_grad():
        first = torch.softmax(model(input_ids=torch.from_numpy(prompt[:1])).logits[0, -1] / 0.7, -1).numpy()
        usual = int(first.argmax())
        longer = torch.from_numpy(np.append(prompt[0], usual))[None]
        second = torch.softmax(model(input_ids=longer).logits[0, -1] / 0.7, -1).numpy()
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=V) / 3000, first, atol=0.04)
    after = drawn[drawn[:, 0] == usual, 1]
    np.testing.assert_allclose(np.bincount(after, minlength=V) / len(after), second, atol=0.04)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (OWN.replace("--own", ""), "flat tokens without it, got windows"),
        (TEXT + " --own", "with --own, flat tokens without it, got flat"),
    ],
)
def test_the_kind_of_text_is_checked(folder, tmp_path, monkeypatch, kind, more):
    with pytest.raises(SystemExit, match=re.escape("expected windows (.npz of sample_text.py)") + ".*" + more):
        train(folder, monkeypatch, tmp_path / "out", kind.format(folder=folder))


def test_the_models_folder_is_no_place_for_heads(folder, monkeypatch):
    before = digests(folder / "lm")
    with pytest.raises(SystemExit, match="lm: expected another folder than --base, whose config.json it would replace"):
        train(folder, monkeypatch, folder / "lm", TEXT.format(folder=folder))
    assert digests(folder / "lm") == before
