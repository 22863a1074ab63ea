"""All checks that need a GPU, in one run of some ten minutes: `python tools/check/gpu.py`.

Compares the logits of a random Llama with the CPU's (fp32), and the speed and loss of training heads (bf16) with the
CPU's after the same steps; runs tests/device; decodes the demo's prompts with the demo's model and heads, if its
package is installed; and times passes at the shapes of --shape (`rescore bench passes`). Exit status 1 if GPU
and CPU disagree, a text differs, or there is no GPU. tools/bench/device.py times rescoring on the device.
"""

from __future__ import annotations

import argparse
import copy
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

from rescore.decode.cli import main as rescore
from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.models.located import locate_model
from rescore.decode.training.heads_training import HeadsTraining, TrainingOptions
from rescore.decode.training.lessons import Lessons
from rescore.decode.training.training_run import Progress

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "data" / "demo"
MODEL = "smollm2"
LOGIT_TOLERANCE, LOSS_TOLERANCE = 2e-3, 0.05  # for fp32 and bf16 sums in another order
CONTENDERS = ("Hugging Face plain", "Hugging Face lookup 10", "blend-without-heads auto", "blend auto")
STEPS, BATCH = 40, 256
WIDTH, V, TEXTS, LENGTH = 256, 4096, 200, 100


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


def decode(shapes: list[str]) -> bool:
    """Prints the benchmarks of decoding and of passes. Returns whether all texts in float32 equal plain decoding.

    In bfloat16 passes of different widths round differently, and texts may differ.
    """
    same = True
    try:
        locate_model(MODEL)
    except FileNotFoundError as absent:
        print(f"decoding the demo's prompts is skipped: {absent}", file=sys.stderr)
    else:
        same = rescore(["bench", *decoding("float32")]) == 0
        rescore(["bench", *decoding("bfloat16")])
    passes = ("--device", "cuda", "--dtype", "bfloat16", "--batch", "1", "--batch", "32")
    return all([rescore(["bench", "passes", "--shape", shape, *passes]) == 0 for shape in shapes]) and same


def decoding(dtype: str) -> list[str]:
    """Arguments of `rescore bench` for a prompt of each of the demo's tasks."""
    model = ["--model", MODEL, "--chat", "--dtype", dtype, "--device", "cuda", "--heads", str(DEMO / "heads")]
    prompts = ["--settings", str(DEMO / "settings.json"), "--prompts", str(DEMO / "prompts.jsonl"), "--limit", "1"]
    only = [part for name in CONTENDERS for part in ("--only", name)]
    return ["decode", *model, *prompts, "--max-tokens", "64", *only]


def run(script: list[str]) -> bool:
    return subprocess.run([sys.executable, *script]).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shape", nargs="*", default=["1.5b", "7b"], help="shapes of random weights to time (default: 1.5b 7b)"
    )
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device; nothing was checked", file=sys.stderr)
        return 1
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
    same = all(
        [
            run([str(ROOT / "tools" / "bench" / "device.py")]),
            decode(args.shape),
            run(["-m", "pytest", "-q", "-n", "8", str(ROOT / "tests" / "device")]),
        ]
    )
    return 0 if same and difference <= LOGIT_TOLERANCE and abs(gpu.loss - cpu.loss) <= LOSS_TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
