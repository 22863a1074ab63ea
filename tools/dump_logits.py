"""What every head of a blockwise model predicts along continuations of prompts, as a dump.

    python tools/dump_logits.py model.safetensors --tokenizer tokenizer.json --prompts prompts.test.jsonl \\
        --kind sampled --temperature 0.7 --seed 1 -o dump.sampled

Prompts are JSON lines with `task`, `id`, `prompt` and `reference` (token ids). Kinds: `forced` reads the references,
`greedy` writes the model's best tokens, `sampled` draws them with each position's own random numbers, those of the
sequence numbered as its line in the file (from 0; see rescore.decode.sampling). A continuation ends after its
end-of-text token or --max-tokens. All arithmetic is float32; candidates stand in the order of the float32 logits.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from prompts import Prompt, read_prompts
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer
from torch import Tensor

from rescore.decode.blockwise import BlockwiseTransformer
from rescore.decode.models.block import Block
from rescore.decode.models.slot_cache import SlotCache
from rescore.decode.sampling import Sampling
from rescore.lattice.dump import Dump
from rescore.lattice.dump_header import DumpHeader
from rescore.lattice.dump_writer import DumpWriter
from rescore.lattice.top import top_of_logits

END_OF_TEXT = "<|endoftext|>"
KINDS = ("forced", "sampled", "greedy")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What the heads predicted at n positions: ids int32 and logp float32 [n, h, K], entropy float32 [n, h] in nats."""

    ids: NDArray[np.int32]
    logp: NDArray[np.float32]
    entropy: NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """tokens int32 [n]; row i of `rows` is the prediction after the prompt and tokens[:i]; seeds uint64 [n] if sampled."""

    prompt: Prompt
    tokens: NDArray[np.int32]
    rows: Rows
    seeds: NDArray[np.uint64] | None = None


def predict(model: BlockwiseTransformer, hidden: Tensor, k: int) -> tuple[Rows, Tensor]:
    """The candidates of every head at hidden states [n, width], and the logits [n, V] of head 1."""
    logits = model.all_logits(hidden)
    ids, logp, entropy = top_of_logits(logits, k)
    return Rows(ids=ids, logp=logp, entropy=entropy), logits[:, 0]


def padded(sequences: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids int64 [B, longest], zeros behind the shorter ones, and their lengths int64 [B]."""
    lengths = torch.tensor([len(ids) for ids in sequences])
    out = torch.zeros((len(sequences), int(lengths.max())), dtype=torch.int64)
    for row, ids in zip(out, sequences):
        row[: len(ids)] = torch.tensor(ids)
    return out, lengths


@torch.inference_mode()
def forced(model: BlockwiseTransformer, batch: list[Prompt], k: int, most: int, end: int) -> Iterator[Continuation]:
    """One pass over prompts and references: a causal model predicts at every position at once."""
    texts = [cut(prompt.reference, most, end) for prompt in batch]
    ids, _ = padded([prompt.prompt + text[:-1] for prompt, text in zip(batch, texts)])
    hidden = model(ids)
    for prompt, text, states in zip(batch, texts, hidden):
        first = len(prompt.prompt) - 1
        rows, _ = predict(model, states[first : first + len(text)], k)
        yield Continuation(prompt=prompt, tokens=np.array(text, np.int32), rows=rows)


def cut(reference: list[int], most: int, end: int) -> list[int]:
    """The first `most` tokens, none after end-of-text."""
    text = reference[:most]
    return text[: text.index(end) + 1] if end in text else text


@torch.inference_mode()
def generated(
    model: BlockwiseTransformer, batch: list[Prompt], k: int, most: int, end: int, sampling: Sampling | None
) -> Iterator[Continuation]:
    """The model's own continuations, greedy or sampled, token by token with the keys and values of the past kept."""
    ids, lengths = padded([prompt.prompt for prompt in batch])
    cache = SlotCache(len(batch), ids.shape[1] + most)
    seeds = np.stack([(sampling or Sampling()).seeds(prompt.number, most) for prompt in batch])
    tokens: list[list[int]] = [[] for _ in batch]
    steps: list[list[Rows]] = [[] for _ in batch]
    alive = list(range(len(batch)))
    prompts = Block.chain(ids, torch.zeros_like(lengths), ids.shape[1])
    hidden = model.read(prompts, cache)[torch.arange(len(batch)), lengths - 1]
    for i in range(most):
        rows, logits = predict(model, hidden[alive], k)
        chosen = rows.ids[:, 0, 0] if sampling is None else sampling.draw(logits, seeds[alive, i])
        for row, (index, token) in enumerate(zip(alive, chosen.tolist())):
            tokens[index].append(token)
            steps[index].append(Rows(ids=rows.ids[row], logp=rows.logp[row], entropy=rows.entropy[row]))
        alive = [index for index in alive if tokens[index][-1] != end]
        if not alive or i + 1 == most:
            break
        # Rows that have ended read their last token again, where nobody looks.
        last = torch.tensor([[row[-1]] for row in tokens])
        hidden = model.read(Block.chain(last, lengths + i, int(lengths.max()) + i + 1), cache)[:, 0]
    for prompt, text, parts, drawn in zip(batch, tokens, steps, seeds):
        stacked = {name: np.stack([getattr(part, name) for part in parts]) for name in ("ids", "logp", "entropy")}
        text_seeds = None if sampling is None else drawn[: len(text)]
        yield Continuation(prompt=prompt, tokens=np.array(text, np.int32), rows=Rows(**stacked), seeds=text_seeds)


def continuations(
    model: BlockwiseTransformer, prompts: list[Prompt], kind: str, *, top_k: int, max_tokens: int, end: int, sampling: Sampling | None, rows: int
) -> Iterator[Continuation]:
    """Continuations of all prompts, in order, `rows` at a time."""
    for start in range(0, len(prompts), rows):
        batch = prompts[start : start + rows]
        if kind == "forced":
            yield from forced(model, batch, top_k, max_tokens, end)
        else:
            yield from generated(model, batch, top_k, max_tokens, end, sampling if kind == "sampled" else None)


def write_dump(args: argparse.Namespace, console: Console) -> None:
    model = BlockwiseTransformer.load(args.model)
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    end = tokenizer.token_to_id(END_OF_TEXT)
    if end is None or tokenizer.get_vocab_size() > model.config.vocab_size:
        raise SystemExit(
            f"{args.tokenizer}: expected a tokenizer of at most V = {model.config.vocab_size} tokens, {END_OF_TEXT} among them, "
            f"got {tokenizer.get_vocab_size()} tokens; use the one that the model was trained with"
        )
    tasks = read_prompts(args.prompts, model.config.vocab_size, args.limit)
    longest = max(len(prompt.prompt) for prompts in tasks.values() for prompt in prompts)
    if longest + args.max_tokens > model.config.context:
        raise SystemExit(f"{args.prompts}: expected prompts of at most {model.config.context - args.max_tokens} tokens (context less --max-tokens), got {longest}")
    sampling = Sampling(temperature=args.temperature, top_p=args.top_p, seed=args.seed) if args.kind == "sampled" else None
    header = DumpHeader(
        model=args.name or args.model.name,
        tokenizer_sha256=sha256(args.tokenizer),
        vocab_size=model.config.vocab_size,
        heads=model.config.heads,
        top_k=args.top_k,
        kind=args.kind,
        temperature=sampling and float(sampling.temperature),
        top_p=sampling and float(sampling.top_p),
        seed=sampling and sampling.seed,
        end_of_text=end,
        provenance={
            "model_sha256": sha256(args.model),
            "prompts": args.prompts.name,
            "prompts_sha256": sha256(args.prompts),
            "max_tokens": args.max_tokens,
            "limit_per_task": args.limit,
        },
    )
    columns = (TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with DumpWriter(args.output, header) as writer, Progress(*columns, console=console) as bar:
        for task, prompts in tasks.items():
            options = {"top_k": args.top_k, "max_tokens": args.max_tokens, "end": end, "sampling": sampling, "rows": args.rows}
            for item in bar.track(continuations(model, prompts, args.kind, **options), total=len(prompts), description=task):
                rows = item.rows
                writer.add(
                    task,
                    prompt=np.array(item.prompt.prompt, np.int32),
                    tokens=item.tokens,
                    topk_ids=rows.ids,
                    topk_logp=rows.logp,
                    entropy=rows.entropy,
                    seeds=item.seeds,
                )


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def report(path: Path) -> None:
    """Sequences, tokens, loops and size per task."""
    info = Dump.open(path).info()
    print(f"{'task':12} {'sequences':>9} {'tokens':>8} {'loops':>6} {'bytes':>12}")
    for row in info["tasks"]:
        print(f"{row['task']:12} {row['sequences']:9,} {row['rows']:8,} {row['loop_share']:6.1%} {row['bytes']:12,}")
    print(f"{'all':12} {info['sequences']:9,} {info['rows']:8,} {info['loop_share']:6.1%} {info['bytes']:12,}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--name", help="of the model in dump.json (default: the file's name)")
    parser.add_argument("--top-k", type=int, default=10, help="candidates per head and position (default: 10)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens per continuation, at most (default: 64)")
    parser.add_argument("--temperature", type=float, default=0.7, help="of sampled text (default: 0.7)")
    parser.add_argument("--top-p", type=float, default=1.0, help="of sampled text (default: 1.0)")
    parser.add_argument("--seed", type=int, default=1, help="of sampled text (default: 1)")
    parser.add_argument("--limit", type=int, help="prompts per task (default: all)")
    parser.add_argument("--rows", type=int, default=50, help="sequences at once (default: 50)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    for name in ("top_k", "max_tokens", "rows", "limit"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected at least 1, got {getattr(args, name)}")
    try:
        write_dump(args, Console(stderr=True))
        report(args.output)
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        print(f"dump_logits.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
