"""Train a blockwise transformer on token files; resumable, CPU or CUDA, bf16 where the hardware has it.

    python tools/train_bpd.py OUT --train gsm8k=train.gsm8k.npy*2 --valid gsm8k=valid.gsm8k.npy --steps 6000

Token files are flat uint16/int32 arrays; `*2` weighs a file's share of the windows. OUT receives `model.safetensors`,
`state.pt` (to resume: run the same command again) and `curve.jsonl` (training and validation loss of every head).
The loss is the sum over heads of appendix C.1; heads 2..h are evaluated on a random `--later-fraction` of the
positions and weighted by `--later-weight`.

    python tools/train_bpd.py OUT --distill model.safetensors --train own=own.npz --valid own=own.valid.npz --steps 1000

trains heads 2..h alone, with the rest of the given model frozen, on windows of its own continuations
(`sample_text.py`): head j learns the target's distribution at `--temperature` j positions ahead.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from rescore.decode.blockwise import BlockwiseConfig, BlockwiseTransformer
from rescore.lm.atomic import replacing
from tied_loss import distill, first_loss, later_losses, own_positions
from token_files import Batch, TokenFiles


@torch.no_grad()
def validate(model: BlockwiseTransformer, files: TokenFiles, device: str, temperature: float) -> dict[str, list[float]]:
    """Mean loss in nats per token and file: of every head on text, of heads 2..h against head 1 on a model's own windows."""
    out = {}
    for name, file in files.files.items():
        batch = file.spread(64 if file.windows else 16).to(device)
        hidden = model(batch.ids)
        if file.windows:
            positions, reach = own_positions(batch.start, batch.stop, batch.ids.shape[1])
            losses = distill(model, hidden, positions, reach, temperature, measure=True)
        else:
            rows = torch.arange(batch.ids.numel(), device=device)
            losses = [first_loss(model, hidden, batch.ids), *later_losses(model, hidden, batch.ids, rows)]
        out[name] = [round(float(loss), 4) for loss in losses]
    return out


def learning_rate(step: int, steps: int, decay: float = 0.4) -> float:
    """Warm-up over 100 steps or a tenth, plateau, then linear decay to zero over the last `decay` of the steps, in (0, 1]."""
    return min((step + 1) / min(100, max(1, steps // 10)), 1.0, max(1e-3, (steps - step) / (decay * steps)))


def optimizers(model: nn.Module, muon_lr: float, adam_lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices between hidden states, Adam for the embedding and the norms."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in trained if p.dim() == 2 and not name.startswith("embedding")]
    others = [p for name, p in trained if p.dim() != 2 or name.startswith("embedding")]
    return [
        torch.optim.Muon(matrices, lr=muon_lr, momentum=0.95, weight_decay=0.01),
        torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def save_state(path: Path, step: int, master: nn.Module, optims: list) -> None:
    with replacing(path) as file:
        torch.save({"step": step, "model": master.state_dict(), "optimizers": [o.state_dict() for o in optims]}, file)


def resume(path: Path, master: nn.Module, optims: list[torch.optim.Optimizer], device: str) -> int:
    """The step to go on with: 0, or the one after that of the state in `path`, which is loaded."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location=device, weights_only=True)
    try:
        master.load_state_dict(state["model"])
    except RuntimeError as error:
        raise SystemExit(f"{path}: expected the state of a model of the same shape, got another; give an empty OUT or the same options: {error}") from None
    for optim, saved in zip(optims, state["optimizers"]):
        optim.load_state_dict(saved)
    print(f"resumed at step {state['step']}", flush=True)
    return state["step"]


def new_model(args: argparse.Namespace) -> BlockwiseTransformer:
    """The fp32 weights that the optimizers work on."""
    if not args.distill:
        shape = {"layers": args.layers, "width": args.width, "hidden": 4 * args.width, "attention_heads": args.width // 64}
        return BlockwiseTransformer(BlockwiseConfig(vocab_size=args.vocab_size, **shape))
    model = BlockwiseTransformer.load(args.distill)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("heads.") and not name.startswith("heads.0."))
    return model


class Pair:
    """fp32 weights for the optimizers and a copy in the arithmetic of the passes."""

    def __init__(self, master: BlockwiseTransformer, device: str, dtype: torch.dtype):
        self.master = master.to(device)
        self.model = BlockwiseTransformer(master.config).to(device=device, dtype=dtype)
        self.low, self.high = list(self.model.parameters()), list(self.master.parameters())
        for low, high in zip(self.low, self.high):
            low.requires_grad_(high.requires_grad)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        torch._foreach_copy_(self.low, self.high)

    def take_gradients(self) -> None:
        for low, high in zip(self.low, self.high):
            if high.requires_grad:
                high.grad, low.grad = low.grad.float(), None


def train_gradients(model: BlockwiseTransformer, trunk: nn.Module, batch: Batch, args: argparse.Namespace, step: int, log: bool) -> list[Tensor]:
    """Gradients of the weighted losses of all heads; the losses."""
    hidden = trunk(batch.ids)
    order = torch.randperm(batch.ids.numel(), generator=torch.Generator().manual_seed(step))
    chosen = order[: int(batch.ids.numel() * args.later_fraction)].to(batch.ids.device)
    losses = [first_loss(model, hidden, batch.ids), *later_losses(model, hidden, batch.ids, chosen)]
    (losses[0] + args.later_weight * sum(losses[1:])).backward()
    return [loss.detach() for loss in losses]


def distill_gradients(model: BlockwiseTransformer, trunk: nn.Module, batch: Batch, args: argparse.Namespace, step: int, log: bool) -> list[float]:
    """Gradients of heads 2..h on the model's own windows; the losses where they are logged, for they take as long again."""
    with torch.no_grad():
        hidden = trunk(batch.ids)
    positions, reach = own_positions(batch.start, batch.stop, batch.ids.shape[1])
    if args.later_fraction < 1:
        order = torch.randperm(len(positions), generator=torch.Generator().manual_seed(step))
        chosen = order[: int(len(positions) * args.later_fraction)].to(positions.device)
        positions, reach = positions[chosen], reach[chosen]
    return distill(model, hidden, positions, reach, args.temperature, measure=log)


def train(args: argparse.Namespace) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    files = TokenFiles(args.train, args.length, args.seed)
    valid = TokenFiles(args.valid, args.length, args.seed)
    if args.distill and not all(file.windows for file in files.files.values()):
        raise SystemExit("--distill: expected --train files of the model's own windows (.npz of sample_text.py), got flat tokens")
    pair = Pair(new_model(args), device, torch.bfloat16 if args.bf16 else torch.float32)
    optims = optimizers(pair.master, args.muon_lr, args.adam_lr)
    first = resume(args.out / "state.pt", pair.master, optims, device)
    pair.refresh()
    trunk = torch.compile(pair.model) if args.compile else pair.model
    gradients = distill_gradients if args.distill else train_gradients
    curve = open(args.out / "curve.jsonl", "a", encoding="utf-8")
    began, tokens_seen = time.time(), 0
    if args.distill and first == 0:
        write(curve, {"step": -1, "valid": validate(pair.model, valid, device, args.temperature)})
    for step in range(first, args.steps):
        last = step == args.steps - 1
        logged = last or step % args.log_every == 0
        batch = files.batch(step, args.rows).to(device)
        losses = gradients(pair.model, trunk, batch, args, step, logged)
        pair.take_gradients()
        norm = nn.utils.clip_grad_norm_(pair.master.parameters(), 1.0)
        factor = learning_rate(step, args.steps)
        for optim, base in zip(optims, (args.muon_lr, args.adam_lr)):
            for group in optim.param_groups:
                group["lr"] = base * factor
            optim.step()
        pair.refresh()
        tokens_seen += batch.ids.numel()
        if logged:
            row = {"step": step, "loss": [round(float(loss), 4) for loss in losses], "norm": round(float(norm), 3),
                   "tokens_per_s": round(tokens_seen / (time.time() - began))}
            if not math.isfinite(sum(row["loss"]) + row["norm"]):
                raise SystemExit(f"step {step}: the loss is not finite ({row['loss']}); lower the learning rate and resume from state.pt")
            if step % args.every == 0 or last:
                row["valid"] = validate(pair.model, valid, device, args.temperature)
                save_state(args.out / "state.pt", step + 1, pair.master, optims)
                pair.master.save(args.out / "model.safetensors", metadata(args, step + 1))
            write(curve, row)


def metadata(args: argparse.Namespace, steps: int) -> dict[str, str]:
    """What the checkpoint says of its making."""
    return {"step": str(steps)} | ({"distilled_at_temperature": str(args.temperature)} if args.distill else {})


def write(curve, row: dict) -> None:
    curve.write(json.dumps(row) + "\n")
    curve.flush()
    print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", nargs="+", required=True, metavar="NAME=FILE[*WEIGHT]")
    parser.add_argument("--valid", nargs="+", required=True, metavar="NAME=FILE")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rows", type=int, default=32, help="windows per step (default: 32)")
    parser.add_argument("--length", type=int, default=256, help="tokens per window (default: 256)")
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256, help="a multiple of 64 (default: 256)")
    parser.add_argument("--later-fraction", type=float, help="share of positions that heads 2..h see (default: 0.125; with --distill 1)")
    parser.add_argument("--later-weight", type=float, default=0.5, help="weight of each later head's loss (default: 0.5)")
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=3e-3)
    parser.add_argument("--distill", type=Path, metavar="INIT", help="train heads 2..h of this model on its own continuations")
    parser.add_argument("--temperature", type=float, default=0.7, help="of the target distribution in --distill (default: 0.7)")
    parser.add_argument("--every", type=int, default=200, help="steps between validations and checkpoints (default: 200)")
    parser.add_argument("--log-every", type=int, default=20, help="steps between lines of the curve (default: 20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False)
    args = parser.parse_args()
    if args.later_fraction is None:
        args.later_fraction = 1.0 if args.distill else 0.125
    if not 0 < args.later_fraction <= 1:
        parser.error(f"--later-fraction: expected a number in (0, 1], got {args.later_fraction}")
    if args.every % args.log_every:
        parser.error(f"--every {args.every}: expected a multiple of --log-every {args.log_every}")
    args.out.mkdir(parents=True, exist_ok=True)
    train(args)


if __name__ == "__main__":
    main()
