"""Everything that needs a GPU, in one run of a few minutes: `python tools/check/gpu.py`.

Prints a table: how far the demo model's logits on the GPU are from those on the CPU (fp32), and how many tokens a
second the trainer reads there (bf16), with its loss after the same steps on the CPU beside it; runs
tests/device/test_cuda.py and the kernels' tests; then decodes the demo's prompts with every drafter, and times passes
at the shapes of --shape (`rescore bench decode --replay`). Exit status 1 if the GPU disagrees, a text differs, or there
is none. Rescoring on the device is timed by tools/bench/device.py, with a model of 20 million n-grams, and checked
against the CPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from rescore.decode.cli import main as rescore
from rescore.decode.models.blockwise import BlockwiseTransformer
from rescore.lattice.dump import Dump

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "data" / "demo"
LOGIT_TOLERANCE = 2e-3  # fp32 sums in another order
STEPS = 40


def logit_difference(model: Path, dump: Dump) -> tuple[float, float]:
    """The largest difference of any head's logit between GPU and CPU, and the share of equal ten best candidates."""
    block = next(dump.blocks())
    ids = torch.from_numpy(block.tokens[:256].astype(np.int64))[None]
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.inference_mode():
        logits = []
        for device in ("cpu", "cuda"):
            net = BlockwiseTransformer.load(model).to(device)
            logits.append(net.all_logits(net(ids.to(device))).cpu())
    best = [one.topk(10).indices for one in logits]
    return float((logits[0] - logits[1]).abs().max()), float((best[0] == best[1]).float().mean())


def train(folder: Path, tokens: Path, hidden_gpu: bool) -> dict:
    """The last line of the curve of a short training."""
    command = [
        sys.executable,
        str(ROOT / "tools" / "train" / "bpd.py"),
        str(folder),
        "--train",
        f"demo={tokens}",
        "--valid",
        f"demo={tokens}",
        "--steps",
        str(STEPS),
        "--rows",
        "16",
        "--every",
        str(STEPS),
        "--bf16",
    ]
    environment = {"CUDA_VISIBLE_DEVICES": ""} if hidden_gpu else {}
    subprocess.run(
        ["env", *(f"{name}={value}" for name, value in environment.items()), *command],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return json.loads((folder / "curve.jsonl").read_text().splitlines()[-1])


def decode(demo: Path, shapes: list[str]) -> bool:
    """Prints the benchmarks of decoding; whether every drafter wrote the plain text."""
    lm = ["--lm", str(demo / "demo.ngram"), "--device", "cuda"]
    status = rescore(
        ["bench", "decode", "--model", str(demo / "model.safetensors"), "--prompts", str(demo / "sampled"), *lm]
    )
    timed = [
        rescore(
            [
                "bench",
                "decode",
                "--replay",
                str(demo / "sampled"),
                "--shape",
                shape,
                "--batch",
                "1",
                "--batch",
                "32",
                *lm,
            ]
        )
        for shape in shapes
    ]
    return status == 0 and not any(timed)


def kernels() -> bool:
    """Prints what rescoring takes; whether all that it found is what the CPU finds."""
    return subprocess.run([sys.executable, str(ROOT / "tools" / "bench" / "device.py")]).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, default=DEMO)
    parser.add_argument(
        "--shape", nargs="*", default=["1.5b", "7b"], help="of random weights to time (default: 1.5b 7b)"
    )
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device; nothing was checked", file=sys.stderr)
        return 1
    dump = Dump.open(args.demo / "forced")
    difference, equal = logit_difference(args.demo / "model.safetensors", dump)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "tokens.npy", np.concatenate([block.tokens for block in dump.blocks()]))
        runs = {where: train(folder / where, folder / "tokens.npy", where == "cpu") for where in ("gpu", "cpu")}
    losses = {where: run["loss"][0] for where, run in runs.items()}
    table = Table(title=f"{torch.cuda.get_device_name()}, torch {torch.__version__}", box=None)
    for column in ("check", "value", "wanted"):
        table.add_column(column)
    table.add_row("largest difference of a logit, fp32, GPU - CPU", f"{difference:.2e}", f"<= {LOGIT_TOLERANCE:g}")
    table.add_row("equal candidates among the ten best", f"{equal:.4%}", "")
    table.add_row(
        f"head 1's loss after {STEPS} bf16 steps, GPU / CPU",
        f"{losses['gpu']:.3f} / {losses['cpu']:.3f}",
        "within 0.05",
    )
    table.add_row(
        "tokens/s in training, GPU / CPU", f"{runs['gpu']['tokens_per_s']:,} / {runs['cpu']['tokens_per_s']:,}", ""
    )
    Console().print(table)
    tested = subprocess.run([sys.executable, "-m", "pytest", "-q", str(ROOT / "tests" / "device")]).returncode == 0
    same = all([kernels(), decode(args.demo, args.shape), tested])
    return 0 if same and difference <= LOGIT_TOLERANCE and abs(losses["gpu"] - losses["cpu"]) <= 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
