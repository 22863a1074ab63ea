"""`rescore bench passes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli.groups import BATCHES, DTYPES, EngineArgs, ThreadArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, option
from rescore.decode.cli.output import Part, Result, TextTable, column
from rescore.decode.cli.values import int_between
from rescore.lattice.extras import needed_for

if TYPE_CHECKING:
    import torch

    from rescore.decode.cost.model_shape import ModelShape
    from rescore.decode.models.target import Target


SHAPES = ("tiny", "1.5b", "7b")


@dataclass(frozen=True, kw_only=True)
class BenchPassesArgs(EngineArgs, ThreadArgs, ReportedArgs):
    r"""Time a model's passes at several widths, after texts of a given length: the cost
    of wide passes on this machine, for `rescore cost --passes`. With --shape the
    weights are random.

    columns  tokens   read by the pass, summed over the texts
             ms       median of the repeats; that of a wider pass if it is smaller
             trees    the same for a tree in which every node has two children; the
                      other columns are for chains

    examples:
      rescore bench passes --model smollm2 --length 256 \
          --json passes.json
      rescore bench passes --shape 7b --device cuda --dtype bfloat16 --batch 1 \
          --batch 8 --length 512 --json passes.json
    """

    model: Path | None = option(
        "DIR|FILE", "a Hugging Face folder, or the .safetensors file of a blockwise transformer", Path
    )
    shape: str | None = option(None, "a model of this shape with random weights instead", choices=SHAPES)
    device: str | None = option("NAME", "where the model runs, such as cuda (default: cpu)")
    dtype: str | None = option(
        None, "dtype of its weights (default: that of the file; float32 for random weights)", choices=DTYPES
    )
    batch: Sequence[int] = BATCHES
    length: int = option("L", "tokens in the cache", int_between(1, 2**20), default=512)
    repeats: int = option("N", "timings of each pass, of which the median is printed", int_between(1, 1000), default=3)

    def __post_init__(self) -> None:
        if (self.model is None) == (self.shape is None):
            raise Misuse("--model, --shape: expected exactly one of them")


def run(args: BenchPassesArgs) -> Result:
    from rescore.decode.bench.decoding import machine_of
    from rescore.decode.cli import screen
    from rescore.decode.cli.lazy_model import use_threads
    from rescore.decode.loop.payoff import WIDTHS, measure_passes

    use_threads(args.threads)
    target = target_of(args)
    if target.context is not None and args.length + max(WIDTHS) > target.context:
        raise Misuse(
            f"--length {args.length}: expected at most {max(1, target.context - max(WIDTHS))}, "
            f"since the model's context is {target.context} tokens and the widest pass reads {max(WIDTHS)}"
        )
    passes: list[dict[str, Any]] = []
    with screen.stages() as stage:
        for batch in dict.fromkeys(args.batch):
            stage(f"passes of {batch} texts")
            how: dict[str, Any] = {"rows": batch, "length": args.length, "repeats": args.repeats}
            costs = measure_passes(target, **how)
            trees = measure_passes(target, **how, trees=True) if target.trees else None
            passes.append(
                {
                    "batch": batch,
                    "length": args.length,
                    "tokens": costs.tokens.tolist(),
                    "seconds": costs.seconds.tolist(),
                    "tree_seconds": trees and trees.seconds.tolist(),
                }
            )
    report = {
        "machine": machine_of(target.device),
        "settings": {
            "model": str(args.model) if args.model else None,
            "shape": args.shape,
            "engine": args.engine,
            "dtype": args.dtype,
            "repeats": args.repeats,
            "threads": args.threads,
        },
        "passes": passes,
    }
    return Result(report, tables(report))


def target_of(args: BenchPassesArgs) -> Target:
    import torch

    from rescore.decode.cli.lazy_model import checked_device, open_with_engine
    from rescore.decode.cost.model_shape import PRESETS
    from rescore.decode.models.located import hide_unseen_bars
    from rescore.decode.models.model_facts import model_facts

    if args.shape:
        return random_target(PRESETS[args.shape], checked_device(args.device), getattr(torch, args.dtype or "float32"))
    assert args.model is not None, "either is given"
    hide_unseen_bars(args.model)
    facts = model_facts(args.model)
    return open_with_engine(args.model, facts, args.dtype, args.device, engine=args.engine, threads=args.threads).target


def tables(report: dict[str, Any]) -> list[Part]:
    facts = report["machine"]
    parts: list[Part] = [
        f"{facts['device']}, {facts['cpu']}, {report['settings']['threads']} threads, load {facts['load']}, "
        f"torch {facts['torch']}"
    ]
    for one in report["passes"]:
        seconds, trees = one["seconds"], one["tree_seconds"]
        columns = [
            column("ms", (1e3 * value for value in seconds), ".2f"),
            column("x first", (value / seconds[0] for value in seconds), ".2f"),
            *([column("ms, trees", (1e3 * value for value in trees), ".2f")] if trees else []),
        ]
        title = f"batch {one['batch']}, {one['length']:,} tokens in the cache"
        parts.append(TextTable("tokens", [str(number) for number in one["tokens"]], columns, title=title))
    return parts


def random_target(shape: ModelShape, device: torch.device, dtype: torch.dtype) -> Target:
    """Makes a causal language model of this shape with random weights. ImportError without transformers."""
    import torch

    with needed_for("a model with random weights"):
        from transformers import LlamaConfig, LlamaForCausalLM
    from rescore.decode.models.causal_lm import CausalLMTarget

    config = LlamaConfig(
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        intermediate_size=shape.hidden,
        vocab_size=shape.vocab_size,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=1 << 16,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            model = LlamaForCausalLM(config).eval()
        return CausalLMTarget(model)
    finally:
        torch.set_default_dtype(before)
