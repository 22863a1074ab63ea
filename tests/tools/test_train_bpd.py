"""The trainer on tiny data: its losses against slow twins, resuming, distillation, and its messages."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from support.tools import load_tool

torch = pytest.importorskip("torch")

from support.tiny_blockwise import CONFIG, END, V, text, trained, untrained, write_prompts, write_tokenizer
from support.training_runs import curve, run, run_in_two_parts

from rescore.decode.models.blockwise import BlockwiseTransformer
from rescore.decode.models.blockwise_target import BlockwiseTarget

sample_text = load_tool("train/sample_text")
tied_loss = load_tool("train/tied_loss")
train_bpd = load_tool("train/bpd")
training_loop = load_tool("train/training_loop")
token_files = load_tool("train/token_files")

torch.set_num_threads(1)
LENGTH = 24


@pytest.fixture
def folder(tmp_path):
    """Token files, prompts, and a checkpoint with windows that it sampled itself."""
    np.save(tmp_path / "a.npy", text(2000, 1))
    np.save(tmp_path / "b.npy", text(900, 2))
    trained().save(tmp_path / "model.safetensors")
    write_prompts(tmp_path / "prompts.jsonl", 40)
    write_tokenizer(tmp_path / "tokenizer.json")
    return tmp_path


def train(folder, monkeypatch, out: str, more: str = "") -> None:
    files = f"--train a={folder}/a.npy*2 b={folder}/b.npy --valid b={folder}/b.npy"
    shape = f"--vocab-size {V} --layers 1 --width 64 --length {LENGTH} --rows 4 --later-fraction 0.5"
    run(train_bpd, monkeypatch, f"{folder / out} {files} {shape} --steps 9 --every 4 --log-every 2 {more}")


def sample(folder, monkeypatch, out: str, more: str = "") -> dict[str, np.ndarray]:
    line = (
        f"{folder}/model.safetensors --tokenizer {folder}/tokenizer.json --prompts {folder}/prompts.jsonl -o "
        f"{folder / out}"
    )
    run(sample_text, monkeypatch, f"{line} --length {LENGTH} --new-tokens 14 --rows 16 {more}")
    return dict(np.load(folder / out))


def weights(path) -> dict[str, torch.Tensor]:
    return BlockwiseTransformer.load(path).state_dict()


def test_cross_entropy_and_its_gradients(monkeypatch):
    monkeypatch.setattr(tied_loss, "CHUNK_ROWS", 5)
    torch.manual_seed(1)
    hidden, embedding = torch.randn(13, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    ids = torch.randint(11, (13,))
    loss = tied_loss.TiedCrossEntropy.apply(hidden, embedding, ids)
    got = (loss, *torch.autograd.grad(3 * loss, (hidden, embedding)))
    expected_loss = torch.nn.functional.cross_entropy(hidden @ embedding.T, ids)
    expected = (expected_loss, *torch.autograd.grad(3 * expected_loss, (hidden, embedding)))
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)


def test_later_heads_predict_the_token_j_ahead():
    model, ids = untrained(), torch.from_numpy(text(40, 3).astype(np.int64)).view(2, 20)
    with torch.no_grad():
        hidden = model(ids)
        losses = tied_loss.later_losses(
            model.heads[1:], [model.embedding.weight] * 3, hidden, ids, torch.tensor([0, 3, 16, 17, 25, 39])
        )
        logits = model.all_logits(hidden).log_softmax(-1)
    for j, loss in zip(range(2, CONFIG.heads + 1), losses):
        places = [(row, i) for row, i in ((0, 0), (0, 3), (0, 16), (0, 17), (1, 5), (1, 19)) if i + j < 20]
        expected = -np.mean([float(logits[row, i, j - 1, ids[row, i + j]]) for row, i in places])
        assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_own_positions_are_those_whose_past_and_target_were_drawn():
    start, stop, length = torch.tensor([3, 5]), torch.tensor([10, 7]), 12
    positions, reach = tied_loss.own_positions(start, stop, length)
    got = {(int(m) - d, d) for m, r in zip(positions, reach) for d in range(1, 9) if r >= d}
    expected = set()
    for row in range(2):
        drawn = set(range(start[row], stop[row]))
        for i in range(length):
            for d in range(1, 9):  # head d + 1 at i predicts token i + d + 1, after the tokens i + 1 .. i + d
                if set(range(i + 1, i + d + 2)) <= drawn:
                    expected.add((row * length + i, d))
    assert got == expected


def test_distillation_gradients_are_those_of_the_definition(monkeypatch):
    monkeypatch.setattr(tied_loss, "DISTILL_CHUNK_ROWS", 5)
    ids = torch.from_numpy(text(36, 4).astype(np.int64)).view(2, 18)
    start, stop = torch.tensor([4, 6]), torch.tensor([18, 12])
    model = untrained()
    hidden = model(ids).detach()
    positions, reach = tied_loss.own_positions(start, stop, 18)
    tables = [model.embedding.weight.detach()] * 3
    losses = tied_loss.distill(
        model.heads[1:],
        tables,
        lambda x: torch.softmax(model.logits(x, 1).detach() / 0.7, -1),
        hidden,
        positions,
        reach,
        measure=True,
    )
    got = {name: p.grad for name, p in model.named_parameters()}
    twin = untrained()
    logits, total = twin.all_logits(hidden), 0.0
    for j in range(2, CONFIG.heads + 1):
        terms = []
        for row in range(2):
            for i in range(int(start[row]) - 1, int(stop[row]) - j):
                target = torch.softmax(logits[row, i + j - 1, 0].detach() / 0.7, -1)
                terms.append(-(target * torch.log_softmax(logits[row, i, j - 1], -1)).sum())
        loss = sum(terms) / len(terms)
        assert losses[j - 2] == pytest.approx(loss.item(), rel=1e-5)
        total = total + loss
    total.backward()
    for name, parameter in twin.named_parameters():
        if name.startswith("heads.") and not name.startswith("heads.0."):
            torch.testing.assert_close(got[name], parameter.grad, atol=1e-6, rtol=1e-4)
        else:
            assert got[name] is None


def test_windows_depend_on_seed_and_step_alone(folder):
    specs = [f"a={folder}/a.npy*3", f"b={folder}/b.npy"]
    files = token_files.TokenFiles(specs, LENGTH, 1)
    np.testing.assert_allclose(files.shares, np.array([6000, 900]) / 6900)
    first = files.batch(5, 8)
    assert torch.equal(first.ids, token_files.TokenFiles(specs, LENGTH, 1).batch(5, 8).ids)
    assert not torch.equal(first.ids, files.batch(6, 8).ids)
    assert first.ids.shape == (8, LENGTH) and first.start.tolist() == [0] * 8 and first.stop.tolist() == [LENGTH] * 8


def test_training_lowers_the_loss_and_resumes_exactly(folder, monkeypatch):
    train(folder, monkeypatch, "whole")
    rows = curve(folder / "whole")
    assert [row["step"] for row in rows] == [-1, 0, 2, 4, 6, 8] and len(rows[1]["loss"]) == 9
    assert sum(rows[-1]["valid"]["b"]) < sum(rows[0]["valid"]["b"])
    assert run_in_two_parts(lambda: train(folder, monkeypatch, "parts"), monkeypatch, stop=5) == [1, 5, 9]
    whole, parts = weights(folder / "whole" / "model.safetensors"), weights(folder / "parts" / "model.safetensors")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert curve(folder / "parts") == rows


def test_the_curve_forgets_steps_that_are_run_again(tmp_path):
    path = tmp_path / "curve.jsonl"
    path.write_text('{"step": -1}\n{"step": 0}\n{"step": 20}\n{"step": 40}\n{"st')
    training_loop.cut_curve(path, 21)
    assert path.read_text() == '{"step": -1}\n{"step": 0}\n{"step": 20}\n'
    training_loop.cut_curve(path, 0)
    assert path.read_text() == ""


@pytest.mark.parametrize("arithmetic", ["--bf16", "--no-bf16"])
def test_distillation_changes_the_later_heads_alone_and_lowers_their_loss(folder, monkeypatch, arithmetic):
    sample(folder, monkeypatch, "own.npz", "--limit 60")
    files = f"--train own={folder}/own.npz --valid own={folder}/own.npz text={folder}/b.npy"
    line = (
        f"{folder}/out --distill {folder}/model.safetensors {files} --length {LENGTH} --rows 8 --steps 30 --every 10 "
        "--log-every 10"
    )
    run(train_bpd, monkeypatch, f"{line} {arithmetic}")
    before, after = weights(folder / "model.safetensors"), weights(folder / "out" / "model.safetensors")
    for name in before:
        later = name.startswith("heads.") and not name.startswith("heads.0.")
        assert torch.equal(before[name], after[name]) != later, name
    rows = curve(folder / "out")
    first, last = rows[0]["valid"], rows[-1]["valid"]
    assert rows[0]["step"] == -1 and len(first["own"]) == CONFIG.heads - 1 and len(first["text"]) == CONFIG.heads
    assert sum(last["own"]) < sum(first["own"])
    assert last["text"][0] == first["text"][0]


def test_sampled_windows_hold_prompt_continuation_and_end(folder, monkeypatch):
    own = sample(folder, monkeypatch, "own.npz", "--no-bf16")
    prompts = {tuple(json.loads(line)["prompt"]) for line in (folder / "prompts.jsonl").read_text().splitlines()}
    assert own["tokens"].shape == (80, LENGTH) and own["tokens"].dtype == np.uint16
    known = 0
    for tokens, start, stop in zip(own["tokens"].tolist(), own["start"], own["stop"]):
        known += any(tuple(tokens[:start]) == prompt[-start:] for prompt in prompts)
        written = tokens[start:stop]
        assert 1 <= len(written) <= 14 and END not in written[:-1]
        assert set(tokens[stop:]) <= {END}
        assert len(written) == 14 or written[-1] == END
    assert known >= 5
    assert len(set(map(tuple, own["tokens"].tolist()))) > 60


def test_sampled_tokens_have_the_models_distribution(folder):
    model = trained()
    prompt = np.tile(text(6, 7).astype(np.int64), (2000, 1))
    torch.manual_seed(0)
    drawn = sample_text.sample(BlockwiseTarget(model), prompt, 1, 0.7, END)[:, 0]
    with torch.no_grad():
        expected = torch.softmax(model.logits(model(torch.from_numpy(prompt[:1]))[0, -1], 1) / 0.7, -1).numpy()
    np.testing.assert_allclose(np.bincount(drawn, minlength=V) / 2000, expected, atol=0.05)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("a.npy", "expected NAME=FILE or NAME=FILE\\*WEIGHT with a weight above 0, got 'a.npy'"),
        ("a={folder}/a.npy*zero", "expected NAME=FILE or NAME=FILE\\*WEIGHT"),
        ("a={folder}/a.npy*-1", "with a weight above 0"),
        (
            "a={folder}/none.npy",
            "none.npy: expected an .npy of tokens or an .npz of sample_text.py, got a file that does not load",
        ),
        ("a={folder}/short.npy", r"short.npy: expected a flat array of more than 24 tokens, got shape \(24,\)"),
        ("a={folder}/few.npz", "few.npz: expected arrays tokens, start and stop, got none named start, stop"),
        ("a={folder}/wide.npz", r"wide.npz: expected windows of --length 24 tokens, got shape \(2, 30\)"),
    ],
)
def test_bad_token_files_are_named(folder, spec, message):
    np.save(folder / "short.npy", np.zeros(24, np.uint16))
    np.savez(folder / "few.npz", tokens=np.zeros((2, 24), np.uint16))
    np.savez(folder / "wide.npz", tokens=np.zeros((2, 30), np.uint16), start=np.zeros(2, int), stop=np.ones(2, int))
    with pytest.raises(SystemExit, match=message):
        token_files.TokenFiles([spec.format(folder=folder)], LENGTH, 1)


def test_names_come_once(folder):
    with pytest.raises(SystemExit, match="expected each name once, got 'a' twice"):
        token_files.TokenFiles([f"a={folder}/a.npy", f"a={folder}/b.npy"], LENGTH, 1)
    assert token_files.TokenFile(folder / "a.npy", LENGTH).size() == 2000


@pytest.mark.parametrize(
    ("module", "more", "message"),
    [
        (train_bpd, "--later-fraction 0", r"--later-fraction: expected a number in \(0, 1\], got 0.0"),
        (train_bpd, "--every 5", "--every 5: expected a multiple of --log-every 2"),
        (sample_text, "--length 14", "--new-tokens 14: expected fewer than --length 14"),
        (sample_text, "-o own.npy", "--output: expected a name that ends in .npz, got own.npy"),
    ],
)
def test_options_are_checked(folder, monkeypatch, capsys, module, more, message):
    with pytest.raises(SystemExit) as caught:
        train(folder, monkeypatch, "out", more) if module is train_bpd else sample(folder, monkeypatch, "own.npz", more)
    assert caught.value.code == 2
    assert re.search(message, capsys.readouterr().err)


def test_distillation_wants_windows(folder, monkeypatch):
    with pytest.raises(SystemExit, match="--distill: expected --train files of the model's own windows"):
        train(folder, monkeypatch, "out", f"--distill {folder}/model.safetensors")


def test_another_models_state_is_refused(folder, monkeypatch):
    train(folder, monkeypatch, "out")
    with pytest.raises(SystemExit, match="state.pt: expected the state of a model of the same shape, got another"):
        train(folder, monkeypatch, "out", "--layers 2")
