"""The loop that every trainer runs: a step's windows, gradients, two optimizers, a curve, a state to go on from.

A run is determined by its options: step s draws the same windows however often it was stopped before, so that a
resumed run ends with the weights, and the curve, of an uninterrupted one. OUT receives

    state.pt       step, fp32 weights that are trained and the optimizers' state; the same command goes on from it
    curve.jsonl    one line a logged step: step, loss (of every head, nats per token), norm (of the gradient),
                   tokens_per_s and, every `--every` steps and at the end, valid: per set, the losses of every head
    training.json  what was trained, and what it has cost so far

and what the trainer saves beside them.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from token_files import Batch, TokenFiles
from torch import Tensor, nn

from rescore.lm.atomic import replacing


class Trainee(Protocol):
    """What the loop trains."""

    weights: nn.Module
    """The fp32 weights that the optimizers work on: its parameters that want gradients."""

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those of `optimizers`, in its order."""

    def gradients(self, batch: Batch, step: int, logged: bool) -> Iterable[Tensor | float]:
        """Leaves the gradients of a step in `weights`; the losses, which may be none unless `logged`."""

    def refresh(self) -> None:
        """The optimizers have changed the weights."""

    def validate(self, valid: TokenFiles) -> dict[str, list[float]]:
        """Mean losses in nats per token of every head, by set."""

    def save(self, steps: int) -> None:
        """Write the model as it is after `steps` steps."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every trainer."""
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", nargs="+", required=True, metavar="NAME=FILE[*WEIGHT]")
    parser.add_argument("--valid", nargs="+", required=True, metavar="NAME=FILE")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rows", type=int, default=32, help="windows per step (default: 32)")
    parser.add_argument("--length", type=int, default=256, help="tokens per window (default: 256)")
    parser.add_argument(
        "--muon-lr", type=float, default=0.02, help="of the matrices between hidden states (default: 0.02)"
    )
    parser.add_argument(
        "--adam-lr", type=float, default=3e-3, help="of tables of tokens, norms and biases (default: 0.003)"
    )
    parser.add_argument(
        "--every", type=int, default=200, help="steps between validations and checkpoints (default: 200)"
    )
    parser.add_argument("--log-every", type=int, default=20, help="steps between lines of the curve (default: 20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--bf16",
        action=argparse.BooleanOptionalAction,
        default=fast_bf16(device()),
        help="passes in bfloat16, weights in fp32 (default: where the hardware has it)",
    )


def check_options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if args.every % args.log_every:
        parser.error(f"--every {args.every}: expected a multiple of --log-every {args.log_every}")


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def fast_bf16(device: str) -> bool:
    """Whether the device multiplies bfloat16 matrices itself."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def learning_rate(step: int, steps: int, decay: float = 0.4) -> float:
    """Warm-up over 100 steps or a tenth, plateau, then linear decay to zero over the last `decay` of the steps, in (0,
    1].
    """
    return min((step + 1) / min(100, max(1, steps // 10)), 1.0, max(1e-3, (steps - step) / (decay * steps)))


def optimizers(
    model: nn.Module, tables: Iterable[Tensor], muon_lr: float, adam_lr: float
) -> list[torch.optim.Optimizer]:
    """Muon for the matrices between hidden states; Adam for `tables`, which have a row per token or position, and the
    rest.
    """
    apart = {id(table) for table in tables}
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.dim() == 2 and id(p) not in apart]
    others = [p for p in trained if p.dim() != 2 or id(p) in apart]
    found: list[torch.optim.Optimizer] = []
    if matrices:
        found.append(torch.optim.Muon(matrices, lr=muon_lr, momentum=0.95, weight_decay=0.01))
    if others:
        found.append(torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0))
    for optimizer in found:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return found


class Pair:
    """fp32 weights for the optimizers and a copy in the arithmetic of the passes."""

    def __init__(self, master: nn.Module, device: str, dtype: torch.dtype):
        self.master = master.to(device)
        self.model = copy.deepcopy(self.master)
        self.high = list(self.master.parameters())
        self.low = list(self.model.parameters())
        for parameter in self.low:  # buffers keep their precision: rotary frequencies need it
            parameter.data = parameter.data.to(dtype)

    @torch.no_grad()
    def refresh(self) -> None:
        torch._foreach_copy_(self.low, self.high)

    def take_gradients(self) -> None:
        for low, high in zip(self.low, self.high):
            if high.requires_grad:
                high.grad, low.grad = low.grad.float(), None


def save_state(path: Path, step: int, seconds: float, weights: nn.Module, optims: list) -> None:
    trained = {name: p.detach() for name, p in weights.named_parameters() if p.requires_grad}
    state = {"step": step, "seconds": seconds, "model": trained, "optimizers": [o.state_dict() for o in optims]}
    with replacing(path) as file:
        torch.save(state, file)


def resume(path: Path, weights: nn.Module, optims: list[torch.optim.Optimizer], device: str) -> tuple[int, float]:
    """The step to go on with and the seconds spent: 0, or those of the state in `path`, which is loaded."""
    if not path.exists():
        return 0, 0.0
    state = torch.load(path, map_location=device, weights_only=True)
    trained = {name: p for name, p in weights.named_parameters() if p.requires_grad}
    shapes, saved = ({name: tuple(p.shape) for name, p in found.items()} for found in (trained, state["model"]))
    if shapes != saved:
        odd = sorted(name for name in shapes.keys() | saved.keys() if shapes.get(name) != saved.get(name))[0]
        raise SystemExit(
            f"{path}: expected the state of a model of the same shape, got another ({odd}: "
            f"expected {shapes.get(odd, 'none')}, "
            f"got {saved.get(odd, 'none')}); give an empty OUT or the same options"
        )
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(state["model"][name])
    for optim, kept in zip(optims, state["optimizers"]):
        optim.load_state_dict(kept)
    print(f"resumed at step {state['step']}", flush=True)
    return state["step"], state["seconds"]


def cut_curve(path: Path, first: int) -> None:
    """Drops the lines of `path` that step `first` and its followers will write again."""
    if not path.exists():
        return
    with open(path, encoding="utf-8") as lines:
        kept = [line for line in lines if line.endswith("\n") and (first and json.loads(line)["step"] < first)]
    with replacing(path) as file:
        file.write("".join(kept).encode())


def token_files(args: argparse.Namespace) -> tuple[TokenFiles, TokenFiles]:
    """Those of --train and --valid."""
    return TokenFiles(args.train, args.length, args.seed), TokenFiles(args.valid, args.length, args.seed)


def train(trainee: Trainee, files: TokenFiles, valid: TokenFiles, args: argparse.Namespace) -> None:
    """Runs the steps that are left of `args.steps`."""
    args.out.mkdir(parents=True, exist_ok=True)
    optims = trainee.optimizers()
    first, spent = resume(args.out / "state.pt", trainee.weights, optims, device())
    print(f"{trained_parameters(trainee.weights):,} parameters are trained", flush=True)
    trainee.refresh()
    cut_curve(args.out / "curve.jsonl", first)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with open(args.out / "curve.jsonl", "a", encoding="utf-8") as curve, Progress(*columns) as bar:
        shown = bar.add_task("", total=args.steps, completed=first)
        if first == 0:
            write(curve, bar, {"step": -1, "valid": trainee.validate(valid)})
        began, tokens = time.monotonic(), 0
        for step in range(first, args.steps):
            last = step == args.steps - 1
            logged = last or step % args.log_every == 0
            batch = files.batch(step, args.rows).to(device())
            found = trainee.gradients(batch, step, logged)
            norm = nn.utils.clip_grad_norm_(trainee.weights.parameters(), 1.0)
            follow(optims, learning_rate(step, args.steps))
            trainee.refresh()
            tokens += batch.ids.numel()
            speed = tokens / (time.monotonic() - began)
            bar.update(shown, completed=step + 1)
            if not logged:
                continue
            losses = [float(loss) for loss in found]
            row = {
                "step": step,
                "loss": [round(loss, 4) for loss in losses],
                "norm": round(float(norm), 3),
                "tokens_per_s": round(speed),
            }
            if not math.isfinite(sum(losses) + float(norm)):
                raise SystemExit(
                    f"step {step}: the loss is not finite ({row['loss']}); lower the learning rate and resume from "
                    "state.pt"
                )
            bar.update(shown, description=f"loss {losses[0]:.3f}, {speed:,.0f} tokens/s")
            if step % args.every == 0 or last:
                row["valid"] = trainee.validate(valid)
            write(curve, bar, row)
            if "valid" in row:
                seconds = spent + time.monotonic() - began
                trainee.save(step + 1)
                write_cost(trainee.weights, step + 1, seconds, args)
                save_state(args.out / "state.pt", step + 1, seconds, trainee.weights, optims)


def follow(optims: list[torch.optim.Optimizer], factor: float) -> None:
    """One step of every optimizer at `factor` of its rate."""
    for optim in optims:
        for group in optim.param_groups:
            group["lr"] = group["base_lr"] * factor
        optim.step()


def trained_parameters(weights: nn.Module) -> int:
    return sum(p.numel() for p in weights.parameters() if p.requires_grad)


def write_cost(weights: nn.Module, steps: int, seconds: float, args: argparse.Namespace) -> None:
    """training.json: `parameters` are those that are trained, `minutes` those of all runs together, validation
    included.
    """
    cost = {
        "parameters": trained_parameters(weights),
        "steps": steps,
        "of_steps": args.steps,
        "tokens": steps * args.rows * args.length,
        "minutes": round(seconds / 60, 1),
        "device": device(),
        "threads": torch.get_num_threads(),
        "bf16": args.bf16,
    }
    with replacing(args.out / "training.json") as file:
        file.write((json.dumps(cost, indent=2) + "\n").encode())


def write(curve, bar: Progress, row: dict) -> None:
    curve.write(json.dumps(row) + "\n")
    curve.flush()
    if "valid" in row:
        bar.console.print(json.dumps(row), soft_wrap=True, highlight=False)
