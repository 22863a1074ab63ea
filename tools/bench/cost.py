"""Predicts what drafts bring on an accelerator that is not at hand: bytes, operations and time of a decoded token.

    python tools/bench/cost.py 7b --way mine=2.4,64 --gpu l4
    rescore run data/demo/sampled --task gsm8k --lm data/demo/demo.ngram --json run.json
    python tools/bench/cost.py llama-3-8b --run run.json --gpu h100 --batch 1 8 --length 2048
    python tools/bench/cost.py --table-11

A model is a name of `shapes.py`, a folder with a config.json or a name on the Hugging Face Hub. Follows appendix I of
Kim et al. (blockwise-parallel-drafts.txt), for passes with a key-value cache; of a step of B texts of L tokens:

    tokens per pass  m = rows + verified             rows: 1, or p if p drafts are rows of a batch
    parameters       N once per batch; with heads, theirs and the output matrix once more
    cache            B (copies L + m) tokens         copies: 1, or `rows` if each row has its own cache of the text
    operations       B m (2 N + 4 layers width (L + m / rows)); a multiply-add is two

N is the number of parameters that a pass multiplies by. Divided by B times the tokens per pass this is the cost of a
decoded token. The time of each part of a step is the longer of its bytes / (0.8 bandwidth) and its operations / (0.6
dense bfloat16 operations per second): a roofline (Williams et al. 2009) whose two shares are assumptions. Parts wait
for each other. Launches, sampling, norms and activations are not modelled; sliding windows count as full attention.

    ms/step     the target's pass, its heads', and the search on the processor, of which drafting is the share
    x plain     tokens per second of all texts together, in times of plain decoding
    bound       what limits the target's pass
    GB          of parameters and cache; ! does not fit
    pays below  the smallest batch from which on drafts are no faster than plain decoding; - if none up to 1,024

--table-11 prints that table by formulas that give all its digits, and the same ways counted with a cache.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from markdown_tables import show_header, show_row
from shapes import config_of
from transformers import AutoModelForCausalLM, PretrainedConfig

BYTES = 2  # of a parameter, and of a number in the cache
REACHED, COMPUTED = 0.8, 0.6  # shares of an accelerator's bandwidth and operations
LENGTHS = (128, 512, 1024, 2048)
BATCHES = range(1, 1025)
NOT_MODELLED = ("num_local_experts", "num_experts", "n_routed_experts", "kv_lora_rank", "multi_query")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """Of a data sheet: bytes per second, dense bfloat16 operations per second, bytes of memory."""

    bandwidth: float
    flops: float
    memory: float

    @classmethod
    def of(cls, gb_s: float, tflops: float, gb: float) -> Accelerator:
        return cls(bandwidth=1e9 * gb_s, flops=1e12 * tflops, memory=1e9 * gb)


# Sheets with operations "with sparsity" are halved.
ACCELERATORS = {
    "h200": Accelerator.of(4800, 989.5, 141),  # NVIDIA H200 Tensor Core GPU Datasheet, SXM
    "h100": Accelerator.of(3350, 989.5, 80),  # NVIDIA H100 Tensor Core GPU Datasheet, SXM
    "h100-pcie": Accelerator.of(2000, 756.5, 80),
    "a100": Accelerator.of(2039, 312, 80),  # NVIDIA A100 Tensor Core GPU Datasheet, SXM
    "a100-40gb": Accelerator.of(1555, 312, 40),
    "l40s": Accelerator.of(864, 362.05, 48),  # NVIDIA L40S Datasheet
    "l4": Accelerator.of(300, 121, 24),  # NVIDIA L4 Tensor Core GPU Datasheet
    "a10": Accelerator.of(600, 125, 24),  # NVIDIA A10 Tensor Core GPU Datasheet
    "rtx-4090": Accelerator.of(1008, 165.2, 24),  # NVIDIA Ada GPU Architecture, appendix A, float32 accumulation
    "rtx-3090": Accelerator.of(936, 71, 24),  # NVIDIA Ampere GA102 GPU Architecture, appendix A, float32 accumulation
    "mi300x": Accelerator.of(5300, 1307.4, 192),  # AMD Instinct MI300X Data Sheet
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What passes of a decoder read and compute with.

    read, stored  parameters that a pass multiplies by, and all
    cache         numbers kept per token, keys and values of all layers
    attention     width of a token's queries, all layers together
    """

    read: int
    stored: int
    cache: int
    attention: int
    width: int
    vocab_size: int

    @classmethod
    def of(cls, config: PretrainedConfig) -> Shape:
        """ValueError unless it is a plain decoder."""
        text = config.get_text_config()
        refused = [name for name in NOT_MODELLED if (getattr(text, name, None) or 0) > 0]
        if refused or config.is_encoder_decoder:
            raise ValueError(f"expected a plain decoder, got {', '.join(refused) or 'an encoder'}: not modelled")
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(text)
        layers, heads = text.num_hidden_layers, text.num_attention_heads
        attention = layers * heads * (getattr(text, "head_dim", None) or text.hidden_size // heads)
        return cls(
            read=sum(
                one.numel()
                for module in model.modules()
                if not isinstance(module, torch.nn.Embedding)
                for one in module.parameters(recurse=False)
                if one.ndim == 2
            ),
            stored=sum(one.numel() for one in model.parameters()),
            cache=2 * attention * getattr(text, "num_key_value_heads", heads) // heads,
            attention=attention,
            width=text.hidden_size,
            vocab_size=text.vocab_size,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to decode, as measured.

    verified  draft tokens per pass, in all rows of a text
    rows      of the batch per text; shared: whether they share its keys and values, as the nodes of a tree do
    slots     T if Medusa heads propose (arXiv:2401.10774, section 2.1.1), 0 without heads
    drafting  seconds of the search per text and step
    """

    name: str
    tokens_per_pass: float
    verified: float = 0.0
    rows: int = 1
    shared: bool = True
    slots: int = 0
    drafting: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.tokens_per_pass <= 1 + self.verified:
            raise ValueError(
                f"{self.name}: expected from 1 to 1 + verified = {1 + self.verified:g} tokens per pass, "
                f"got {self.tokens_per_pass:g}"
            )

    @property
    def tokens(self) -> float:
        """m"""
        return self.rows + self.verified

    @property
    def copies(self) -> int:
        return 1 if self.shared else self.rows


PLAIN = Way(name="autoregressive", tokens_per_pass=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Bytes moved and operations of one part of a step."""

    parameters: float
    cache: float
    flops: float

    def seconds(self, gpu: Accelerator) -> tuple[float, float]:
        """Of memory and of compute."""
        return (self.parameters + self.cache) / (REACHED * gpu.bandwidth), self.flops / (COMPUTED * gpu.flops)


def step(shape: Shape, way: Way, *, batch: int, length: int) -> list[Work]:
    """The target's pass, and that of the heads if there are any."""
    target = Work(
        parameters=BYTES * shape.read,
        cache=BYTES * shape.cache * batch * (way.copies * length + way.tokens),
        flops=batch * way.tokens * (2 * shape.read + 4 * shape.attention * (length + way.tokens / way.rows)),
    )
    if not way.slots:
        return [target]
    own, output = way.slots * shape.width * (shape.width + 1), shape.vocab_size * shape.width
    return [
        target,
        Work(parameters=BYTES * (own + output), cache=0, flops=2 * batch * (own + way.slots * output)),
    ]


def per_token(shape: Shape, way: Way, length: int) -> Work:
    """Of one decoded token, one text at a time."""
    parts = step(shape, way, batch=1, length=length)
    return Work(
        parameters=sum(one.parameters for one in parts) / way.tokens_per_pass,
        cache=sum(one.cache for one in parts) / way.tokens_per_pass,
        flops=sum(one.flops for one in parts) / way.tokens_per_pass,
    )


def seconds(shape: Shape, way: Way, gpu: Accelerator, *, batch: int, length: int) -> float:
    """Of a step."""
    parts = step(shape, way, batch=batch, length=length)
    return batch * way.drafting + sum(max(one.seconds(gpu)) for one in parts)


def times_plain(shape: Shape, way: Way, gpu: Accelerator, *, batch: int, length: int) -> float:
    plain, own = (seconds(shape, one, gpu, batch=batch, length=length) for one in (PLAIN, way))
    return way.tokens_per_pass * plain / own


def pays_below(shape: Shape, way: Way, gpu: Accelerator, length: int) -> int | None:
    faster = [batch for batch in BATCHES if times_plain(shape, way, gpu, batch=batch, length=length) > 1]
    last = max(faster, default=0)
    return None if last == BATCHES[-1] else last + 1


def held(shape: Shape, way: Way, *, batch: int, length: int) -> float:
    """Bytes of parameters and cache in memory, without activations."""
    heads = way.slots * shape.width * (shape.width + 1)
    return BYTES * (shape.stored + heads + shape.cache * batch * (way.copies * length + way.tokens))


def ways_of(run: Mapping[str, Any], dump: str | None) -> Iterator[Way]:
    """The drafters of `rescore run --json`, with their means over tasks.

    Paths verified as a batch are there twice: with a cache for each row, as in engines without tree attention, and with
    one, as the paper counts. The time of a tree's search is that of 128 nodes, whatever its size.
    """
    (means,) = (one for one in run["overall"] if dump in (None, one["dump"]))
    times = next((one for one in run["ms_per_lattice"] if one["dump"] == means["dump"]), {})
    verified, paths = means["verified_per_pass"], run["settings"]["paths"]
    for name, efficiency in means["block_efficiency"].items():
        if name == "oracle":
            continue
        several = name.startswith("parallel")
        search = "paths" if several or name.startswith(("base", "rescored")) else "tree"
        way = Way(
            name=name,
            tokens_per_pass=efficiency,
            verified=verified[name],
            rows=paths if several else 1,
            slots=0 if name.startswith(("lm-alone", "blend-without-heads")) else round(verified["base"]),
            drafting=0.0 if name == "base" else 1e-3 * times.get(search, 0.0),
        )
        yield from (way,) if not several else (replace(way, name=f"{name}, own caches", shared=False), way)


def way(text: str) -> Way:
    """NAME=TOKENS,VERIFIED[,ROWS]"""
    name, _, figures = text.partition("=")
    tokens, verified, *rows = figures.split(",")
    return Way(name=name, tokens_per_pass=float(tokens), verified=float(verified), rows=int(*rows or (1,)))


def show_tokens(shape: Shape, ways: Sequence[Way], length: int) -> None:
    caches = [f"GB cache, {at}" for at in LENGTHS]
    show_header("per decoded token", ["tokens/pass", "verified", "GB parameters", *caches, f"GFLOP, {length}"])
    for way in ways:
        work = per_token(shape, way, length)
        cache = [f"{1e-9 * per_token(shape, way, at).cache:.3f}" for at in LENGTHS]
        parameters, flops = f"{1e-9 * work.parameters:.3f}", 1e-9 * work.flops
        show_row(way.name, [f"{way.tokens_per_pass:.3f}", round(way.verified), parameters, *cache, flops])


def show_steps(shape: Shape, ways: Sequence[Way], gpu: Accelerator, batch: int, length: int) -> None:
    columns = ["ms/step", "drafting", "tokens/s", "x plain", "bound", "GB", "pays below"]
    show_header(f"{batch} texts after {length:,} tokens", columns)
    at = {"batch": batch, "length": length}
    for way in ways:
        memory, compute = step(shape, way, **at)[0].seconds(gpu)
        time, size = seconds(shape, way, gpu, **at), held(shape, way, **at)
        show_row(
            way.name,
            [
                1e3 * time,
                f"{batch * way.drafting / time:.0%}",
                f"{batch * way.tokens_per_pass / time:,.0f}",
                times_plain(shape, way, gpu, **at),
                "compute" if compute > memory else "memory",
                f"{1e-9 * size:.1f}{'!' * (size > gpu.memory)}",
                (way is not PLAIN and pays_below(shape, way, gpu, length)) or "-",
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A model of Kim et al., table 6."""

    parameters: float
    layers: int
    width: int
    hidden: int


LARGE = Published(parameters=1.5e9, layers=18, width=1536, hidden=12288)
NEURAL = Published(parameters=61e6, layers=12, width=384, hidden=1536)
# Of a step of table 11: block efficiency, drafted tokens, models.
TABLE_11 = {
    "autoregressive": (1.000, 0, [LARGE]),
    "base": (1.646, 9, [LARGE]),
    "4-gram": (1.657, 9, [LARGE]),
    "neural 61M": (1.724, 9, [LARGE, NEURAL]),
    "parallel base": (1.717, 144, [LARGE]),
    "parallel 4-gram": (1.797, 144, [LARGE]),
}


def table_11() -> dict[str, list[float]]:
    """By way: GB of parameters, GB of cache at each length, and T operations, per decoded token.

    Caches have the feed-forward width, and attention over 2,048 tokens is computed again in every pass, whose matrices
    count for one token.
    """
    return {
        name: [
            sum(2e-9 * one.parameters for one in models) / efficiency,
            *(sum(4e-9 * one.layers * one.hidden * (at + drafted) for one in models) / efficiency for at in LENGTHS),
            sum(1e-12 * (2 * one.parameters + 8 * one.layers * one.width * (2048 + drafted) ** 2) for one in models)
            / efficiency,
        ]
        for name, (efficiency, drafted, models) in TABLE_11.items()
    }


# The same model and ways, with a cache.
PAPER = Shape(
    read=1_500_000_000, stored=1_500_000_000, cache=2 * 18 * 1536, attention=18 * 1536, width=1536, vocab_size=50257
)
PAPERS_WAYS = [
    Way(name=name, tokens_per_pass=efficiency, verified=8 * rows * bool(drafted), rows=rows)
    for name, (efficiency, drafted, models) in TABLE_11.items()
    for rows in [16 if drafted == 144 else 1]
    if models == [LARGE]
]


def show_table_11() -> None:
    show_header("table 11", ["GB parameters", *(f"GB cache, {at}" for at in LENGTHS), "TFLOP"])
    for name, values in table_11().items():
        show_row(name, [f"{value:.3f}" for value in values])
    print()
    show_tokens(PAPER, PAPERS_WAYS, 2048)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", metavar="MODEL")
    parser.add_argument("--run", type=Path, metavar="FILE", help="drafters, written by `rescore run --json`")
    parser.add_argument("--dump", help="which dump of --run, if it has several")
    parser.add_argument("--way", type=way, nargs="+", default=[], metavar="NAME=TOKENS,VERIFIED[,ROWS]")
    parser.add_argument("--gpu", choices=ACCELERATORS, default="h100")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 64], metavar="B")
    parser.add_argument("--length", type=int, default=1024, metavar="L", help="tokens in the cache (default: 1024)")
    parser.add_argument("--table-11", action="store_true")
    args = parser.parse_args()
    if args.table_11:
        return show_table_11()
    if not args.model or not (args.run or args.way):
        parser.error("expected a model, and --run or --way for the tokens per pass of drafters")
    ways = [PLAIN, *args.way, *(ways_of(json.loads(args.run.read_text()), args.dump) if args.run else ())]
    shape = Shape.of(config_of(args.model))
    show_tokens(shape, ways, args.length)
    for batch in args.batch:
        print()
        show_steps(shape, ways, ACCELERATORS[args.gpu], batch, args.length)


if __name__ == "__main__":
    main()
