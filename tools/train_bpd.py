"""Train a blockwise transformer on token files; resumable, CPU or CUDA, bf16 where the hardware has it.

    python tools/train_bpd.py OUT --train gsm8k=train.gsm8k.npy*2 --valid gsm8k=valid.gsm8k.npy --steps 6000

Token files are flat uint16/int32 arrays; `*2` weighs a file's share of the windows. OUT receives `model.safetensors`,
`state.pt` (to resume: run the same command again) and `curve.jsonl` (training and validation loss of every head).
The loss is the sum over heads of appendix C.1; heads 2..h are evaluated on a random `--later-fraction` of the
positions and weighted by `--later-weight`.

`--distill INIT --temperature 0.7` trains heads 2..h alone, with the trunk of INIT frozen, on token files that hold
the model's own continuations: head j learns the target's distribution j positions ahead.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from rescore.decode.blockwise import BlockwiseConfig, BlockwiseTransformer

CHUNK_ROWS = 1024  # logits of this many rows stay in the last-level cache


class TiedCrossEntropy(torch.autograd.Function):
    """Mean cross entropy [] of softmax(hidden @ embedding.T) against ids or a teacher, without keeping the logits.

    hidden [n, width]; embedding [V, width]; ids [n] int64, or teacher [n, width], hidden states whose
    softmax at `temperature` is the target distribution. Gradients are formed chunk by chunk in the forward pass.
    """

    @staticmethod
    def forward(ctx, hidden: Tensor, embedding: Tensor, ids: Tensor | None, teacher: Tensor | None, temperature: float) -> Tensor:
        rows = hidden.shape[0]
        total = hidden.new_zeros((), dtype=torch.float32)
        grad_hidden = torch.empty_like(hidden)
        grad_embedding = torch.zeros_like(embedding, dtype=torch.float32)
        for start in range(0, rows, CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            logp = torch.log_softmax(hidden[part] @ embedding.T, dim=-1)
            if teacher is not None:
                target = torch.softmax((teacher[part] @ embedding.T) / temperature, dim=-1)
                total -= (logp * target).sum(dtype=torch.float32)
                grad = logp.exp_().sub_(target)
            else:
                total -= logp.gather(1, ids[part, None]).sum(dtype=torch.float32)
                grad = logp.exp_()
                grad.scatter_add_(1, ids[part, None], -torch.ones_like(grad[:, :1]))
            grad_hidden[part] = grad @ embedding
            if ctx.needs_input_grad[1]:
                grad_embedding += grad.T @ hidden[part]
        ctx.save_for_backward(grad_hidden / rows, (grad_embedding / rows).to(embedding.dtype))
        return total / rows

    @staticmethod
    def backward(ctx, grad_output):
        grad_hidden, grad_embedding = ctx.saved_tensors
        return grad_output * grad_hidden, grad_output * grad_embedding, None, None, None


class TokenFiles:
    """Windows of `length` tokens drawn from weighted token files; a step's draw depends on seed and step alone."""

    def __init__(self, specs: list[str], length: int, seed: int):
        self.length, self.seed = length, seed
        self.names, self.arrays, weights = [], [], []
        for spec in specs:
            name, _, rest = spec.partition("=")
            path, _, weight = rest.partition("*")
            tokens = np.load(path, mmap_mode="r")
            if tokens.ndim != 1 or len(tokens) <= length:
                raise SystemExit(f"{path}: expected a flat array of more than {length} tokens, got shape {tokens.shape}")
            self.names.append(name)
            self.arrays.append(tokens)
            weights.append(float(weight or 1) * len(tokens))
        self.shares = np.asarray(weights) / sum(weights)

    def batch(self, step: int, rows: int) -> Tensor:
        """int64 [rows, length]."""
        draw = np.random.default_rng([self.seed, step])
        windows = []
        for file in draw.choice(len(self.arrays), size=rows, p=self.shares):
            start = draw.integers(len(self.arrays[file]) - self.length)
            windows.append(self.arrays[file][start : start + self.length])
        return torch.from_numpy(np.stack(windows).astype(np.int64))


def head_losses(model: BlockwiseTransformer, hidden: Tensor, ids: Tensor, rows: Tensor, distill: float | None) -> list[Tensor]:
    """Losses of heads 2..h at the positions `rows` (indices into the flattened [B, L]); hidden [B, L, width]."""
    length = ids.shape[1]
    flat_hidden, flat_ids = hidden.flatten(0, 1), ids.flatten()
    losses = []
    for j in range(2, model.config.heads + 1):
        inside = rows[rows % length < length - j]
        mixed = model.heads[j - 1](flat_hidden[inside])
        if distill is None:
            losses.append(TiedCrossEntropy.apply(mixed, model.embedding.weight, flat_ids[inside + j], None, 1.0))
        else:
            with torch.no_grad():
                teacher = model.heads[0](flat_hidden[inside + j - 1])
            losses.append(TiedCrossEntropy.apply(mixed, model.embedding.weight, None, teacher, distill))
    return losses


def first_loss(model: BlockwiseTransformer, hidden: Tensor, ids: Tensor) -> Tensor:
    mixed = model.heads[0](hidden[:, :-1]).flatten(0, 1)
    return TiedCrossEntropy.apply(mixed, model.embedding.weight, ids[:, 1:].flatten(), None, 1.0)


@torch.no_grad()
def validate(model: BlockwiseTransformer, files: TokenFiles, device: str) -> dict[str, list[float]]:
    """Mean loss of every head per file, in nats per token."""
    out = {}
    for name, tokens in zip(files.names, files.arrays):
        rows = min(16, len(tokens) // files.length)
        ids = torch.from_numpy(tokens[: rows * files.length].astype(np.int64)).view(rows, -1).to(device)
        hidden = model(ids)
        losses = [first_loss(model, hidden, ids), *head_losses(model, hidden, ids, torch.arange(ids.numel(), device=device), None)]
        out[name] = [round(float(loss), 4) for loss in losses]
    return out


def learning_rate(step: int, steps: int, warmup: int = 100, decay: float = 0.4) -> float:
    """Warm-up, plateau, then linear decay to zero over the last `decay` of the steps, as a factor in (0, 1]."""
    return min((step + 1) / warmup, 1.0, max(1e-3, (steps - step) / (decay * steps)))


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
    temporary = path.with_suffix(".tmp")
    torch.save({"step": step, "model": master.state_dict(), "optimizers": [o.state_dict() for o in optims]}, temporary)
    temporary.replace(path)


def train(args: argparse.Namespace) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if args.bf16 else torch.float32
    torch.manual_seed(args.seed)
    files = TokenFiles(args.train, args.length, args.seed)
    valid = TokenFiles(args.valid, args.length, args.seed)
    if args.distill:
        master = BlockwiseTransformer.load(args.distill).to(device)
        for name, parameter in master.named_parameters():
            parameter.requires_grad_(name.startswith("heads.") and not name.startswith("heads.0."))
    else:
        master = BlockwiseTransformer(BlockwiseConfig(vocab_size=args.vocab_size, layers=args.layers, width=args.width,
                                                      hidden=4 * args.width, attention_heads=args.width // 64)).to(device)
    optims = optimizers(master, args.muon_lr, args.adam_lr)
    first = 0
    state_path = args.out / "state.pt"
    if state_path.exists():
        state = torch.load(state_path, map_location=device, weights_only=True)
        master.load_state_dict(state["model"])
        for optim, saved in zip(optims, state["optimizers"]):
            optim.load_state_dict(saved)
        first = state["step"]
        print(f"resumed at step {first}", flush=True)
    # The passes run in `dtype` on a copy; the optimizers see fp32 weights and gradients.
    model = BlockwiseTransformer(master.config).to(device=device, dtype=dtype)
    pairs = [(low, high) for low, high in zip(model.parameters(), master.parameters())]
    for low, high in pairs:
        low.requires_grad_(high.requires_grad)
    trunk = torch.compile(model) if args.compile else model

    def refresh() -> None:
        with torch.no_grad():
            torch._foreach_copy_([low for low, _ in pairs], [high for _, high in pairs])

    refresh()
    curve = open(args.out / "curve.jsonl", "a", encoding="utf-8")
    began, tokens_seen = time.time(), 0
    for step in range(first, args.steps):
        ids = files.batch(step, args.rows).to(device)
        with torch.set_grad_enabled(not args.distill):
            hidden = trunk(ids)
        chosen = torch.randperm(ids.numel(), generator=torch.Generator().manual_seed(step))[: int(ids.numel() * args.later_fraction)]
        later = head_losses(model, hidden, ids, chosen.to(device), args.temperature if args.distill else None)
        losses = later if args.distill else [first_loss(model, hidden, ids), *later]
        weights = [1.0 if args.distill or j == 0 else args.later_weight for j in range(len(losses))]
        sum(w * loss for w, loss in zip(weights, losses)).backward()
        for low, high in pairs:
            if high.requires_grad:
                high.grad, low.grad = low.grad.float(), None
        norm = nn.utils.clip_grad_norm_(master.parameters(), 1.0)
        factor = learning_rate(step, args.steps)
        for optim, base in zip(optims, (args.muon_lr, args.adam_lr)):
            for group in optim.param_groups:
                group["lr"] = base * factor
            optim.step()
        refresh()
        tokens_seen += ids.numel()
        if step % 20 == 0 or step == args.steps - 1:
            row = {"step": step, "loss": [round(loss.item(), 4) for loss in losses], "norm": round(float(norm), 3),
                   "tokens_per_s": round(tokens_seen / (time.time() - began))}
            if not math.isfinite(sum(row["loss"])):
                raise SystemExit(f"step {step}: the loss is not finite ({row['loss']}); lower the learning rate and resume from state.pt")
            if step % args.every == 0 or step == args.steps - 1:
                row["valid"] = validate(model, valid, device)
                save_state(state_path, step + 1, master, optims)
                master.save(args.out / "model.safetensors", {"step": str(step + 1)})
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
    parser.add_argument("--later-fraction", type=float, default=0.125, help="share of positions that heads 2..h see (default: 0.125)")
    parser.add_argument("--later-weight", type=float, default=0.5, help="weight of each later head's loss (default: 0.5)")
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=3e-3)
    parser.add_argument("--distill", type=Path, metavar="INIT", help="train heads 2..h of this model on its own continuations")
    parser.add_argument("--temperature", type=float, default=0.7, help="of the target distribution in --distill (default: 0.7)")
    parser.add_argument("--every", type=int, default=200, help="steps between validations and checkpoints (default: 200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    train(args)


if __name__ == "__main__":
    main()
