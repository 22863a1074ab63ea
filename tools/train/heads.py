"""Train prediction heads 2..h for a frozen causal language model of Hugging Face; resumable, CPU or CUDA.

    python tools/train/heads.py OUT --base FOLDER --heads 8 --train own=own.npz --valid own=own.valid.npz --steps 1000
    --own

FOLDER holds the model (`save_pretrained`); it is read and never written. On its own continuations (`--own`, windows of
`sample_text.py FOLDER`) head j learns the model's distribution at `--temperature` j tokens ahead; on token files, the
text. OUT becomes a Medusa checkpoint (`rescore.decode.models.medusa`) with the loop's `state.pt`, `training.json` and
`curve.jsonl` (`training_loop.py`), whose losses are those of heads 2..h. Heads share the model's output embedding
unless each gets a table of its own (`--untied`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from causal_lm import hidden_states, open_model, table
from tied_loss import distill, later_losses, own_positions
from token_files import Batch, TokenFiles
from torch import Tensor
from training_loop import Pair, add_options, check_options, device, optimizers, token_files, train

from rescore.decode.models.medusa import MedusaHeads


class Heads:
    """A `Trainee`: Medusa heads on hidden states of a model that stays as it is."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        dtype = torch.bfloat16 if args.bf16 else torch.float32
        self.base = open_model(args.base, dtype).to(device()).requires_grad_(False)
        self.shared = table(self.base)
        torch.manual_seed(args.seed)
        self.pair = Pair(new_heads(args, self.shared), device(), dtype)
        self.weights: MedusaHeads = self.pair.master
        working: MedusaHeads = self.pair.model
        self.blocks = [stack[: args.layers] for stack in working.heads]
        self.tables = own_tables(working) or [self.shared] * args.heads

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return optimizers(self.weights, own_tables(self.weights), self.args.muon_lr, self.args.adam_lr)

    def refresh(self) -> None:
        self.pair.refresh()

    def gradients(self, batch: Batch, step: int, logged: bool) -> list[Tensor] | list[float]:
        losses = self.own_losses(batch, measure=logged) if self.args.own else self.text_gradients(batch)
        self.pair.take_gradients()
        return losses

    def text_gradients(self, batch: Batch) -> list[Tensor]:
        losses = self.text_losses(batch)
        sum(losses).backward()
        return [loss.detach() for loss in losses]

    def text_losses(self, batch: Batch) -> list[Tensor]:
        rows = torch.arange(batch.ids.numel(), device=batch.ids.device)
        return later_losses(self.blocks, self.tables, self.hidden(batch), batch.ids, rows)

    def own_losses(self, batch: Batch, measure: bool) -> list[float]:
        positions, reach = own_positions(batch.start, batch.stop, batch.ids.shape[1])
        return distill(self.blocks, self.tables, self.target, self.hidden(batch), positions, reach, measure=measure)

    @torch.no_grad()
    def hidden(self, batch: Batch) -> Tensor:
        return hidden_states(self.base, batch.ids)

    def target(self, hidden: Tensor) -> Tensor:
        """Probabilities [n, V] of the model at the temperature, for hidden states [n, width]."""
        return torch.softmax((hidden @ self.shared.T).div_(self.args.temperature), dim=-1)

    @torch.no_grad()
    def validate(self, valid: TokenFiles) -> dict[str, list[float]]:
        """Against the text, or on windows of the model's own against its distribution."""
        found = {}
        for name, file in valid.files.items():
            batch = file.spread(64 if file.windows else 16).to(device())
            losses = self.own_losses(batch, measure=True) if file.windows else self.text_losses(batch)
            found[name] = [round(float(loss), 4) for loss in losses]
        return found

    def save(self, steps: int) -> None:
        self.weights.save(self.args.out, str(self.args.base))


def new_heads(args: argparse.Namespace, shared: Tensor) -> MedusaHeads:
    """Heads that at first copy the model's own output, and its table where each is to have one."""
    vocab_size, width = shared.shape
    if not args.untied:
        return MedusaHeads(heads=args.heads, width=width, layers=args.layers, output=lambda hidden: hidden @ shared.T)
    heads = MedusaHeads(heads=args.heads, width=width, layers=args.layers, vocab_size=vocab_size)
    for weight in own_tables(heads):
        weight.data.copy_(shared)
    return heads


def own_tables(heads: MedusaHeads) -> list[Tensor]:
    """The table [V, width] of each head; none where they share the model's."""
    return [stack[-1].weight for stack in heads.heads] if heads.form.vocab_size else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--base", type=Path, required=True, metavar="FOLDER", help="the causal language model")
    parser.add_argument("--heads", type=int, default=8, help="heads to train, heads 2..h (default: 8)")
    parser.add_argument("--layers", type=int, default=1, help="residual blocks per head (default: 1)")
    parser.add_argument(
        "--untied", action="store_true", help="a table of logits for each head, which starts as the model's"
    )
    parser.add_argument("--own", action="store_true", help="--train are windows of the model's own continuations")
    parser.add_argument(
        "--temperature", type=float, default=0.7, help="of the target distribution with --own (default: 0.7)"
    )
    args = parser.parse_args()
    check_options(parser, args)
    if args.out.resolve() == args.base.resolve():
        raise SystemExit(f"{args.out}: expected another folder than --base, whose config.json it would replace")
    files, valid = token_files(args)
    for name, file in files.files.items():
        if file.windows != args.own:
            wanted = "windows (.npz of sample_text.py) with --own, flat tokens without it"
            raise SystemExit(f"--train {name}: expected {wanted}, got {'windows' if file.windows else 'flat tokens'}")
    train(Heads(args), files, valid, args)


if __name__ == "__main__":
    main()
