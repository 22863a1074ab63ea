"""All checks and figures that need a GPU, in sections, the most valuable first: `python tools/check/gpu.py`.

Every section is a process of its own with a time limit, and prints as it goes. `--from NAME` begins with a section,
`--only NAME` runs one. Exit status 1 if a section failed or there is no GPU; one that ran out of time is no failure.

captured   tests of captured passes (tests/device/test_captured.py)
decoding   the demo's prompts in bfloat16, one text at a time: drafts, plain passes, Hugging Face's lookup
float32    the same drafts in float32, where every text must be that of plain decoding
passes     times of passes of the demo's model and of the shapes of 1.5B and 7B parameters, captured and eager
compiled   Hugging Face's `generate`, compiled over a static cache, plain and with its lookup
flashspec  the same prompts with flashspec and its prompt lookup, if it is installed
batch      eight texts at a time
checks     logits and training beside the CPU's; the loop with every drafter and rule (tests/device/test_cuda.py)
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.lab.bench.decoding import System, SystemTimes, bench
from rescore.decode.lab.bench.huggingface import DRAFTING, LOOKUP, huggingface_contender
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.loop.prompts import PromptText
from rescore.decode.loop.request import Stopping
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.chat import ChatTemplate
from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.models.open import open_model
from rescore.decode.train.heads_training import HeadsTraining, TrainingOptions
from rescore.decode.train.lessons import Lessons
from rescore.decode.train.training_run import Progress
from rescore.lm.model.formats import load
from rescore.lm.model.tokenizer import TextTokenizer

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "data" / "demo"
MODEL = "smollm2"
TOKENS = 128  # of each text
SHAPES = ("1.5b", "7b")
LOGIT_TOLERANCE, LOSS_TOLERANCE = 2e-3, 0.05  # for fp32 and bf16 sums in another order
STEPS, BATCH = 40, 256
WIDTH, V, TEXTS, LENGTH = 256, 4096, 200, 100


class Demo:
    """The demo's model on the GPU, its first prompts of each task, and the options of decoding them."""

    def __init__(self, dtype: str, device: str, *, each: int = 1):
        self.opened = open_model(MODEL, heads=DEMO / "heads", dtype=getattr(torch, dtype), device=device)
        assert isinstance(self.opened.target, CausalLMTarget) and self.opened.tokenizer and self.opened.heads
        self.target = self.opened.target
        text = PromptText(TextTokenizer.open(self.opened.tokenizer), ChatTemplate(MODEL))
        self.prompts: dict[str, list[np.ndarray]] = {}
        for line in (DEMO / "prompts.jsonl").read_text().splitlines():
            row = json.loads(line)
            of_task = self.prompts.setdefault(row["task"], [])
            if len(of_task) < each:
                of_task.append(text.encode_chat(row["prompt"]))
        ends = Stopping(tokens=frozenset(self.opened.end_of_text))
        self.options = Options(max_tokens=TOKENS, stopping=ends)
        self.lm, self.lattice = load(DEMO / "demo.ngram"), HeadsLattice(heads=self.opened.heads)

    def ours(self, heads: bool, nodes: int | None) -> System:
        drafter = blended_drafter(self.target, self.lm, lattice=self.lattice if heads else None, nodes=nodes)
        name = f"{'heads' if heads else 'no heads'}, {nodes or 'auto'}"
        return System.of_drafter(self.target, name, drafter, TreeLayout())

    def eager(self, name: str, drafted: bool) -> System:
        """Ours in passes as they are."""
        target = CausalLMTarget(self.target.model)
        target.fixed = None
        return System.of_drafter(target, name, blended_drafter(target, self.lm) if drafted else None, TreeLayout())

    def hugging_face(self, name: str) -> System:
        return huggingface_contender(self.target.model, name, self.lm, drawn=False)

    def first_texts(self) -> None:
        """Times the first text of the process, and the same text once more."""
        prompt = next(iter(self.prompts.values()))[0]
        for when in ("cold", "warm", "warm"):
            began = time.perf_counter()
            (text,) = generate(self.target, [prompt], blended_drafter(self.target, self.lm), self.options)
            seconds, first = time.perf_counter() - began, 1e-6 * text.statistics.prompt_us
            print(f"{when}: {len(text.tokens) / seconds:.0f} tokens/s, first token after {first:.3f} s", flush=True)

    def compare(self, title: str, systems: Sequence[System], rounds: int, batch: int = 1) -> int:
        """Prints the systems beside plain decoding; returns how many texts differ from it."""
        (found,) = bench(self.target, self.prompts, systems, self.options, batches=[batch], repeats=rounds)
        table = Table(title=title, box=None)
        for name in ("", "tokens/s", "x plain", "least task", "tokens/pass", "ms/pass", "drafting", "differ"):
            table.add_column(name, justify="right" if name else "left")
        figures = [one.to_json(found[0]) for one in found]
        for one, row in zip(found, figures):
            table.add_row(*_cells(one, row))
        Console(width=120).print(table)
        return sum(row["different_texts"] or 0 for row in figures)


def _cells(one: SystemTimes, figures: dict[str, Any]) -> list[str]:
    texts = one.together.texts
    passes = [us for text in texts for us in text.pass_us[1:]]
    return [
        one.name,
        f"{figures['tokens_per_s']['median']:.1f}",
        f"{figures['times_plain']['median']:.2f}",
        f"{min(task['times_plain']['median'] for task in figures['tasks'].values()):.2f}",
        f"{figures['tokens_per_pass']:.2f}",
        f"{1e-3 * statistics.median(passes):.2f}" if passes else "-",
        f"{figures['drafting_share']:.0%}",
        str(figures["different_texts"]),
    ]


def captured(device: str) -> bool:
    return run(["-m", "pytest", "-q", str(ROOT / "tests" / "device" / "test_captured.py")])


def decoding(device: str) -> bool:
    demo = Demo("bfloat16", device)
    demo.first_texts()
    sizes = [demo.ours(heads, nodes) for heads in (False, True) for nodes in (None, 16, 64)]
    demo.compare("bfloat16", [*sizes, demo.hugging_face(DRAFTING)], 2)
    eager = [demo.eager("plain, eager", False), demo.eager("no heads, auto, eager", True)]
    demo.compare("bfloat16, eager", [*eager, demo.hugging_face(LOOKUP)], 1)
    return True


def float32(device: str) -> bool:
    demo = Demo("float32", device)
    return not demo.compare("float32", [demo.ours(heads, nodes) for heads in (False, True) for nodes in (None, 64)], 2)


def passes(device: str) -> bool:
    how = ["--device", device, "--dtype", "bfloat16", "--batch", "1", "8", "--repeats", "5"]
    good = True
    for which in (["--model", MODEL], *(["--shape", shape] for shape in SHAPES)):
        for more in ([], ["--eager"]):
            print(*which, *more, flush=True)
            good &= run([str(ROOT / "tools/bench/passes.py"), *which, *how, *more])
    return good


def compiled(device: str) -> bool:
    demo = Demo("bfloat16", device)
    model, ends = demo.target.model, sorted(demo.opened.end_of_text)
    common = {"max_new_tokens": TOKENS, "do_sample": False, "eos_token_id": ends, "pad_token_id": ends[0]}
    for name, more in (("plain", {}), ("lookup 10", {"prompt_lookup_num_tokens": 10})):

        def write(ids: torch.Tensor, more: dict[str, int] = more) -> int:
            mask = torch.ones_like(ids)
            text = model.generate(ids, attention_mask=mask, cache_implementation="static", **common, **more)
            return text.shape[1] - ids.shape[1]

        rates(f"generate, compiled over a static cache, {name}", demo, device, write)
    return True


def flashspec(device: str) -> bool:
    if find_spec("flashspec") is None:
        print("flashspec is not installed")
        return True
    from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
    from flashspec.engine import NgramDrafter, TargetModel

    demo = Demo("bfloat16", device)
    where = torch.device(device)
    target = TargetModel(MODEL, where, torch.bfloat16, model=demo.target.model)
    sampling, one = SamplingConfig(temperature=0.0), BanditConfig(n_arms=1)
    config = FlashSpecConfig(device=device, drafter_strategy="bandit", bandit=one, sampling=sampling)
    engine = SpeculativeEngine(config, [NgramDrafter()], target)

    def write(ids: torch.Tensor) -> int:
        return int(engine.generate(ids, max_new_tokens=TOKENS).n_tokens_generated)

    rates("flashspec, prompt lookup", demo, device, write)
    return True


def rates(name: str, demo: Demo, device: str, write: Callable[[torch.Tensor], int], rounds: int = 4) -> None:
    """Prints the seconds of the first text, and tokens per second of each round over the demo's prompts."""
    every = [torch.from_numpy(np.asarray(prompt, np.int64))[None].to(device) for (prompt,) in demo.prompts.values()]
    began = time.perf_counter()
    write(every[0])
    print(f"{name}: the first text takes {time.perf_counter() - began:.1f} s", flush=True)
    for _ in range(rounds):
        began = time.perf_counter()
        tokens = sum(write(ids) for ids in every)
        print(f"{name}: {tokens / (time.perf_counter() - began):.1f} tokens/s", flush=True)


def batch(device: str) -> bool:
    demo = Demo("bfloat16", device, each=8)
    demo.compare("bfloat16, eight texts at a time", [demo.ours(False, nodes) for nodes in (None, 16)], 2, batch=8)
    return True


def logit_difference() -> tuple[float, float]:
    """The largest difference of a logit between GPU and CPU, and the share of equal candidates in the top 10."""
    torch.backends.cuda.matmul.allow_tf32 = False
    config = LlamaConfig(vocab_size=V, hidden_size=512, intermediate_size=1536, num_hidden_layers=8)
    torch.manual_seed(0)
    model, ids = LlamaForCausalLM(config).eval(), torch.randint(V, (1, 256))
    with torch.inference_mode():
        # Logits of random weights are far below a trained model's; scaled, logits and rounding errors are comparable.
        logits = [
            copy.deepcopy(model).to(device)(ids.to(device)).logits.float().cpu() * config.hidden_size**0.5
            for device in ("cpu", "cuda")
        ]
    best = [one.topk(10).indices for one in logits]
    return float((logits[0] - logits[1]).abs().max()), float((best[0] == best[1]).float().mean())


@dataclass(frozen=True)
class Trained:
    """Mean loss on held-out texts, and positions per second."""

    loss: float
    rate: float


def train(folder: Path, device: str) -> Trained:
    """Trains heads for some steps on states of random texts in which each token determines the next."""
    draw = np.random.default_rng(0)
    follow = draw.permutation(V).astype(np.int32)
    tokens = np.empty((TEXTS, LENGTH), np.int32)
    tokens[:, 0] = draw.integers(0, V, TEXTS)
    for i in range(1, LENGTH):
        tokens[:, i] = follow[tokens[:, i - 1]]
    n = tokens.size
    table = torch.randn(V, WIDTH, generator=torch.Generator().manual_seed(0)) * WIDTH**-0.25
    shard = {
        "numbers": np.arange(TEXTS),
        "tokens": tokens.ravel(),
        "offsets": np.arange(0, n + 1, LENGTH),
        "hidden": table.numpy()[tokens.ravel()].astype(np.float16),
        "top_ids": np.stack((tokens.ravel(), follow[tokens.ravel()]), axis=-1),
        "top_logp": np.log(np.tile([[0.9, 0.1]], (n, 1))).astype(np.float16),
    }
    torch.manual_seed(0)
    heads = ConditionedHeads(
        slots=4, layers=2, embedding=table.to(device), table=table.to(device), vocabulary=torch.arange(V)
    ).to(device)
    lessons = Lessons([shard], heads.slots, held_out=10)
    options = TrainingOptions(batch=BATCH, rounds=STEPS * BATCH / len(lessons.train), every=STEPS, bfloat16=True)
    seen: list[Progress] = []
    HeadsTraining(heads, lessons, options, folder, {}).run(seen.append, lambda done, of: None)
    return Trained(loss=float(np.mean(seen[-1].loss)), rate=seen[-1].step * BATCH / seen[-1].seconds)


def checks(device: str) -> bool:
    difference, equal = logit_difference()
    with tempfile.TemporaryDirectory() as name:
        cpu, gpu = (train(Path(name) / device, device) for device in ("cpu", "cuda"))
    table = Table(title=f"{torch.cuda.get_device_name()}, torch {torch.__version__}", box=None)
    for column in ("check", "value", "wanted"):
        table.add_column(column)
    table.add_row("largest difference of a logit, fp32, GPU - CPU", f"{difference:.2e}", f"<= {LOGIT_TOLERANCE:g}")
    table.add_row("equal candidates among the ten best", f"{equal:.4%}", "")
    table.add_row(
        f"heads' loss after {STEPS} bf16 steps, GPU / CPU",
        f"{gpu.loss:.3f} / {cpu.loss:.3f}",
        f"within {LOSS_TOLERANCE:g}",
    )
    table.add_row("positions/s in training heads, GPU / CPU", f"{gpu.rate:,.0f} / {cpu.rate:,.0f}", "")
    Console().print(table)
    same = difference <= LOGIT_TOLERANCE and abs(gpu.loss - cpu.loss) <= LOSS_TOLERANCE
    return all([same, run(["-m", "pytest", "-q", "-n", "8", str(ROOT / "tests" / "device" / "test_cuda.py")])])


def run(script: list[str]) -> bool:
    return subprocess.run([sys.executable, *script]).returncode == 0


@dataclass(frozen=True, slots=True)
class Section:
    """A section, and the seconds that it may take."""

    run: Callable[[str], bool]
    limit: int


SECTIONS = {
    "captured": Section(captured, 60),
    "decoding": Section(decoding, 150),
    "float32": Section(float32, 90),
    "passes": Section(passes, 150),
    "compiled": Section(compiled, 150),
    "flashspec": Section(flashspec, 150),
    "batch": Section(batch, 60),
    "checks": Section(checks, 240),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="first", choices=SECTIONS, default="captured", help="the first section to run")
    parser.add_argument("--only", choices=SECTIONS, help="the section to run, in this process and without a limit")
    parser.add_argument("--device", default="cuda", help="cpu: to try the script (default: cuda)")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device; nothing was checked", file=sys.stderr)
        return 1
    if args.only:
        return 0 if SECTIONS[args.only].run(args.device) else 1
    failed = []
    for name in [*SECTIONS][[*SECTIONS].index(args.first) :]:
        began, limit = time.perf_counter(), SECTIONS[name].limit
        print(f"--- {name}, at most {limit} s", flush=True)
        again = [sys.executable, __file__, "--only", name, "--device", args.device]
        section = subprocess.Popen(again, start_new_session=True)
        try:
            if section.wait(limit):
                failed.append(name)
        except subprocess.TimeoutExpired:
            print(f"{name} ran out of time; to run it alone: {' '.join(again)}", flush=True)
        finally:
            if section.poll() is None:
                os.killpg(section.pid, signal.SIGKILL)  # with what it has started
        print(f"--- {name}: {time.perf_counter() - began:.0f} s{', FAILED' * (name in failed)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
