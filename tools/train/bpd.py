"""Train a blockwise transformer on token files; resumable, CPU or CUDA, bf16 where the hardware has it.

    python tools/train/bpd.py OUT --train gsm8k=train.gsm8k.npy*2 --valid gsm8k=valid.gsm8k.npy --steps 6000

Token files are flat uint16/int32 arrays; `*2` weighs a file's share of the windows. OUT receives `model.safetensors`,
`state.pt` (to resume: run the same command again), `curve.jsonl` (training and validation loss of every head) and
`training.json`. The loss is the sum over heads of appendix C.1; heads 2..h are evaluated on a random `--later-fraction`
of the positions and weighted by `--later-weight`.

    python tools/train/bpd.py OUT --distill model.safetensors --train own=own.npz --valid own=own.valid.npz --steps 1000

trains heads 2..h alone, with the rest of the given model frozen, on windows of its own continuations
(`sample_text.py`): head j learns the target's distribution at `--temperature` j positions ahead.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tied_loss import distill, first_loss, later_losses, own_positions
from token_files import Batch, TokenFiles
from torch import Tensor
from training_loop import Pair, add_options, check_options, device, optimizers, token_files, train

from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTransformer


class Blockwise:
    """A `Trainee`: all heads and the trunk on text, or heads 2..h on the model's own windows."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        torch.manual_seed(args.seed)
        self.pair = Pair(new_model(args), device(), torch.bfloat16 if args.bf16 else torch.float32)
        self.weights, self.model = self.pair.master, self.pair.model
        self.trunk = torch.compile(self.model) if args.compile else self.model
        self.later = self.model.heads[1:]
        self.tables = [self.model.embedding.weight] * len(self.later)

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return optimizers(self.weights, [self.weights.embedding.weight], self.args.muon_lr, self.args.adam_lr)

    def refresh(self) -> None:
        self.pair.refresh()

    def gradients(self, batch: Batch, step: int, logged: bool) -> list[Tensor] | list[float]:
        losses = self.distill_gradients(batch, step, logged) if self.args.distill else self.text_gradients(batch, step)
        self.pair.take_gradients()
        return losses

    def text_gradients(self, batch: Batch, step: int) -> list[Tensor]:
        """Gradients of the weighted losses of all heads; the losses."""
        hidden = self.trunk(batch.ids)
        rows = part_of(torch.arange(batch.ids.numel(), device=hidden.device), self.args.later_fraction, step)
        losses = self.text_losses(hidden, batch.ids, rows)
        (losses[0] + self.args.later_weight * sum(losses[1:])).backward()
        return [loss.detach() for loss in losses]

    def text_losses(self, hidden: Tensor, ids: Tensor, rows: Tensor) -> list[Tensor]:
        first = first_loss(self.model.heads[0](hidden), self.model.embedding.weight, ids)
        return [first, *later_losses(self.later, self.tables, hidden, ids, rows)]

    def distill_gradients(self, batch: Batch, step: int, logged: bool) -> list[float]:
        """Gradients of heads 2..h on the model's own windows; the losses where they are logged, for they take as long
        again.
        """
        with torch.no_grad():
            hidden = self.trunk(batch.ids)
        positions, reach = own_positions(batch.start, batch.stop, batch.ids.shape[1])
        rows = part_of(torch.arange(len(positions), device=hidden.device), self.args.later_fraction, step)
        return distill(self.later, self.tables, self.target, hidden, positions[rows], reach[rows], measure=logged)

    def target(self, hidden: Tensor) -> Tensor:
        """Probabilities [n, V] of head 1 at the temperature, for hidden states [n, width]."""
        return torch.softmax(self.model.logits(hidden, 1).div_(self.args.temperature), dim=-1)

    @torch.no_grad()
    def validate(self, valid: TokenFiles) -> dict[str, list[float]]:
        """Of every head on text, of heads 2..h against head 1 on a model's own windows."""
        found = {}
        for name, file in valid.files.items():
            batch = file.spread(64 if file.windows else 16).to(device())
            hidden = self.model(batch.ids)
            if file.windows:
                positions, reach = own_positions(batch.start, batch.stop, batch.ids.shape[1])
                losses = distill(self.later, self.tables, self.target, hidden, positions, reach, measure=True)
            else:
                losses = self.text_losses(hidden, batch.ids, torch.arange(batch.ids.numel(), device=hidden.device))
            found[name] = [round(float(loss), 4) for loss in losses]
        return found

    def save(self, steps: int) -> None:
        made = {"step": str(steps)} | (
            {"distilled_at_temperature": str(self.args.temperature)} if self.args.distill else {}
        )
        self.weights.save(self.args.out / "model.safetensors", made)


def part_of(rows: Tensor, fraction: float, step: int) -> Tensor:
    """A random `fraction` of `rows`, which depends on the step alone."""
    if fraction == 1:
        return rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(step))
    return rows[order[: int(len(rows) * fraction)].to(rows.device)]


def new_model(args: argparse.Namespace) -> BlockwiseTransformer:
    """The fp32 weights that the optimizers work on."""
    if not args.distill:
        shape = {
            "layers": args.layers,
            "width": args.width,
            "hidden": 4 * args.width,
            "attention_heads": args.width // 64,
        }
        return BlockwiseTransformer(BlockwiseConfig(vocab_size=args.vocab_size, **shape))
    model = BlockwiseTransformer.load(args.distill)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("heads.") and not name.startswith("heads.0."))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256, help="a multiple of 64 (default: 256)")
    parser.add_argument(
        "--later-fraction", type=float, help="share of positions that heads 2..h see (default: 0.125; with --distill 1)"
    )
    parser.add_argument(
        "--later-weight", type=float, default=0.5, help="weight of each later head's loss (default: 0.5)"
    )
    parser.add_argument(
        "--distill", type=Path, metavar="INIT", help="train heads 2..h of this model on its own continuations"
    )
    parser.add_argument(
        "--temperature", type=float, default=0.7, help="of the target distribution in --distill (default: 0.7)"
    )
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False)
    args = parser.parse_args()
    if args.later_fraction is None:
        args.later_fraction = 1.0 if args.distill else 0.125
    if not 0 < args.later_fraction <= 1:
        parser.error(f"--later-fraction: expected a number in (0, 1], got {args.later_fraction}")
    check_options(parser, args)
    files, valid = token_files(args)
    if args.distill and not all(file.windows for file in files.files.values()):
        raise SystemExit(
            "--distill: expected --train files of the model's own windows (.npz of sample_text.py), got flat tokens"
        )
    train(Blockwise(args), files, valid, args)


if __name__ == "__main__":
    main()
