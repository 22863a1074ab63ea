"""The papers' systems on one model in one run: tokens per pass, layers and operations per token, tokens/s, and the
difference between the texts and the model's own.

    python tools/bench/systems.py smollm2 --prompts spec_bench/question.jsonl

Rows: plain decoding; prompt lookup (Hugging Face's); the blend, which needs no training; rescored Medusa-style heads;
BiTA with its own tree, and rescored; early layers that draft (lossless); CALM at three thresholds (LOSSY). Layers per
token are those that run one after another. GFLOP per token count two operations per weight for each position after the
prompt, drafted and masked positions included, without attention, since texts are short compared with the width.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from markdown_tables import show_header, show_row
from numpy.typing import NDArray

from rescore.decode.bench.decoding import PLAIN, Measurement, System, bench
from rescore.decode.bench.huggingface import huggingface_contender
from rescore.decode.bench.results import machine
from rescore.decode.calm.calibration import rouge_l_risk
from rescore.decode.calm.confidence import Threshold
from rescore.decode.calm.early_exit import ExitSetting, LayeredModel, LossyEarlyExitTarget
from rescore.decode.draft.blended_drafter import BlendedDrafter
from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.lattice_drafters import LatticeTreeDrafter, StaticTree
from rescore.decode.loop.generate import Options
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.loop.prompts import PromptText, read_prompts
from rescore.decode.loop.request import Generation, Request, Stopping
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.chat import ChatTemplate
from rescore.decode.models.early_layers import EarlyLayers
from rescore.decode.models.exit_heads import exits_of
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model
from rescore.decode.models.target import Target
from rescore.decode.replay.figures import resampled_sums
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer

RESAMPLES = 2000
DEPTHS = 4
COLUMNS = (
    *("tokens per pass", "95%", "accepted to depth 1, 2 ..", "layers a token", "GFLOP a token"),
    *("tokens/s", "x plain", "equal", "1 - ROUGE-L"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Numbers of weights used per position, for a model of `depth` layers.

    layer, output  of a layer, and of the output layer
    """

    depth: int
    layer: int
    output: int

    @classmethod
    def of(cls, target: CausalLMTarget) -> Work:
        layers = target.decoder.layers
        return cls(
            depth=len(layers),
            layer=sum(one.numel() for one in layers[0].parameters()),
            output=target.model.get_output_embeddings().weight.numel(),
        )


@dataclass(slots=True, kw_only=True, eq=False)
class PaperSystem:
    """A contender and the cost of its texts.

    counted    whether it reports its drafts
    copies     positions per drafted node: itself and its masks
    ahead      logits per draft, besides those of nodes
    extra      weights of heads used per draft
    early      layers of a draft of `slots` tokens
    target     with early exits: its cache records the layers of each token
    checked    logits at exits that a token did not take
    """

    contender: System
    counted: bool = True
    copies: int = 1
    ahead: int = 0
    extra: int = 0
    early: int = 0
    slots: int = 0
    target: LossyEarlyExitTarget | None = None
    checked: bool = False
    texts: list[list[int]] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)

    def recorded(self) -> System:
        """The contender; records its texts and layers."""

        def write(requests: Sequence[Request], options: Options) -> list[Generation]:
            found = self.contender.write(requests, options)
            self.texts += [one.tokens.tolist() for one in found]
            self.passes += [one.statistics.passes for one in found]
            if self.target is not None and self.target.opened is not None:
                self.layers += [used for row in self.target.opened.layers for used in row]
            return found

        return System(name=self.contender.name, write=write, alone=self.contender.alone)

    def layers_a_token(self, found: Measurement, work: Work) -> float:
        if self.target is not None:
            return float(np.mean(self.layers))
        return (found.passes * work.depth + found.steps * self.early * self.slots) / found.tokens

    def flop_a_token(self, found: Measurement, work: Work) -> float:
        """The cost after the prompts; NaN if unknown."""
        if not self.counted:
            return float("nan")
        if self.target is not None:
            layers, exits = self.layers_a_token(found, work), self._exits_tried() if self.checked else 0.0
            return 2 * (layers * work.layer + (1 + exits) * work.output)
        nodes = found.steps + found.drafted
        weights = nodes * (self.copies * work.depth * work.layer + work.output)
        weights += found.steps * (self.ahead * work.output + self.extra)
        weights += found.steps * self.slots * (self.early * work.layer + work.output)
        return 2 * weights / found.tokens

    def _exits_tried(self) -> float:
        assert self.target is not None
        exits = sorted(self.target.exits)
        return float(np.mean([sum(one < used for one in exits) for used in self.layers]))


def systems(args: argparse.Namespace) -> Iterator[PaperSystem]:
    dtype = getattr(torch, args.dtype)
    plain = open_model(args.model, dtype=dtype).target
    assert isinstance(plain, CausalLMTarget)
    lm = NGram.open(args.lm) if args.lm else None
    yield PaperSystem(
        contender=huggingface_contender(plain.model, "Hugging Face lookup 10", drawn=False), counted=False
    )
    yield PaperSystem(contender=ours(plain, "blend", BlendedDrafter(plain, lm)))
    nodes = args.nodes
    yield PaperSystem(contender=ours(plain, f"blend {nodes}", BlendedDrafter(plain, lm, nodes=nodes)))
    if args.heads:
        headed = open_model(args.model, heads=args.heads, dtype=dtype)
        assert headed.heads is not None
        lattice = HeadsLattice(heads=headed.heads)
        extra = weights_of(headed.heads)
        drafter = BlendedDrafter(headed.target, lm, lattice=lattice, nodes=nodes)
        yield PaperSystem(contender=ours(headed.target, f"heads, rescored {nodes}", drafter), extra=extra)
    if args.bita:
        masked = open_model(args.model, heads=args.bita, dtype=dtype)
        assert masked.heads is not None
        lattice, masks = HeadsLattice(heads=masked.heads), masked.heads.slots
        own = LatticeTreeDrafter(
            HeadsLattice(heads=masked.heads, top_k=5), StaticTree.spine(masks, 5).trees, nodes=5 * masks
        )
        named = [(f"BiTA, its tree {5 * masks}", own)]
        named.append((f"BiTA, rescored {nodes}", BlendedDrafter(masked.target, lm, lattice=lattice, nodes=nodes)))
        for name, drafter in named:
            yield PaperSystem(contender=ours(masked.target, name, drafter), copies=1 + masks, ahead=masks)
    if args.exits:
        yield from early(args, plain, lm)


def weights_of(heads: Any) -> int:
    """Weights of heads used per draft, including the rows of their output tables; for heads that are modules."""
    tables = heads.slots * heads.table.numel() if hasattr(heads, "table") else 0
    return tables + sum(one.numel() for one in heads.parameters())


def early(args: argparse.Namespace, plain: CausalLMTarget, lm: NGram | None) -> Iterator[PaperSystem]:
    """Early layers: as drafters, and LOSSY."""
    layers = EarlyLayers.named(f"early:{args.early}:{args.exits}")
    assert layers is not None
    heads = layers.heads(plain)
    drafter = BlendedDrafter(plain, lm, lattice=HeadsLattice(heads=heads), nodes=args.nodes)
    name = f"first {args.early} layers draft, rescored {args.nodes}"
    yield PaperSystem(contender=ours(plain, name, drafter), early=args.early, slots=heads.slots)
    layered = LayeredModel(plain)
    exits = exits_of(args.exits, plain.model)
    for threshold in args.thresholds:
        setting = ExitSetting(
            confidence=args.confidence, exits=exits.exits, threshold=Threshold(value=threshold, decay=None, length=1)
        )
        target = setting.target(layered, exits)
        name = f"CALM {args.confidence} {threshold:g} (LOSSY)"
        yield PaperSystem(contender=ours(target, name, None), target=target, checked=args.confidence == "softmax")


def ours(target: Target, name: str, drafter: Drafter | None) -> System:
    return System.of_drafter(target, name, drafter, TreeLayout())


def spec_bench(args: argparse.Namespace) -> dict[str, list[NDArray[np.int32]]]:
    facts = model_facts(args.model)
    text = PromptText(TextTokenizer.open(facts.tokenizer), ChatTemplate(args.model) if args.chat else None)
    tasks = read_prompts(args.prompts, facts.vocab_size, text, limit=args.limit)
    context = facts.context or 1 << 30
    fits = {
        task: [one.tokens for one in rows if len(one.tokens) + args.max_tokens <= min(context, args.longest)]
        for task, rows in tasks.items()
    }
    return {task: rows for task, rows in fits.items() if rows}


def interval(tokens: Sequence[int], passes: Sequence[int]) -> tuple[float, float]:
    """95% bootstrap interval of tokens per pass, over texts."""
    both = np.array([tokens, passes], np.float64).T
    sums = resampled_sums(both, RESAMPLES, np.random.default_rng(1))
    low, high = np.quantile(sums[:, 0] / sums[:, 1], (0.025, 0.975))
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--chat", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--heads", default="data/demo/heads", help="Medusa-style heads (none: '')")
    parser.add_argument("--lm", default="data/demo/demo.ngram", help="an n-gram model of the target's ids (none: '')")
    parser.add_argument("--bita", default="data/demo/bita", help="written by `rescore train bita` (none: '')")
    parser.add_argument("--exits", default="data/demo/exits", help="written by `rescore calm train` (none: '')")
    parser.add_argument("--early", type=int, default=28, help="layers that draft, an exit of --exits")
    parser.add_argument("--confidence", default="classifier")
    parser.add_argument("--thresholds", type=float, nargs="+", default=[0.95, 0.8, 0.6])
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=4, help="prompts per task")
    parser.add_argument(
        "--longest", type=int, default=1024, help="longest prompt and text together; others are left out"
    )
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tasks = spec_bench(args)
    everyone = list(systems(args))
    plain = open_model(args.model, dtype=getattr(torch, args.dtype)).target
    assert isinstance(plain, CausalLMTarget)
    first = PaperSystem(contender=ours(plain, PLAIN, None))
    options = Options(
        max_tokens=args.max_tokens, stopping=Stopping(tokens=frozenset(model_facts(args.model).end_of_text))
    )
    contenders = [one.recorded() for one in everyone]
    (found,) = bench(plain, tasks, contenders, options, batches=[1], repeats=args.repeats)
    texts = first.recorded().write([Request(prompt=one) for rows in tasks.values() for one in rows], options)
    rows = [
        row_of(system, one.together, found[0].together, texts, Work.of(plain))
        for system, one in zip([first, *everyone], found)
    ]
    show(
        rows,
        f"{args.model}, {args.dtype}, {len(texts)} prompts of {len(tasks)} tasks, at most {args.max_tokens} tokens",
    )
    if args.json:
        args.json.write_text(json.dumps({"machine": machine("torch", "transformers"), "rows": rows}, indent=2) + "\n")


def row_of(
    system: PaperSystem, one: Measurement, plain: Measurement, texts: Sequence[Generation], work: Work
) -> dict[str, Any]:
    written = system.texts[-len(texts) :]  # of the last round
    risks = [rouge_l_risk(np.array(mine), text.tokens) for mine, text in zip(written, texts)]
    return {
        "system": system.contender.name,
        "tokens_a_pass": one.tokens / one.passes,
        "accepted": accepted(one) if system.counted else [],
        "interval": interval([len(text) for text in written], system.passes[-len(texts) :]),
        "layers_a_token": system.layers_a_token(one, work),
        "gflop_a_token": system.flop_a_token(one, work) / 1e9,
        "tokens_per_s": max(one.tokens / seconds for seconds in one.seconds),
        "times_plain": float(np.median(one.times(plain))),
        "equal": sum(risk == 0 for risk in risks) / len(risks),
        "rouge_l_off": float(np.mean(risks)),
    }


def accepted(one: Measurement) -> list[float]:
    """Shares of drafting passes that accepted at least 1, 2, .. DEPTHS tokens."""
    lengths = np.concatenate([text.accepted for text in one.texts] or [np.zeros(0)])
    return [float(np.mean(lengths >= depth)) for depth in range(1, DEPTHS + 1)]


def show(rows: Sequence[dict[str, Any]], title: str) -> None:
    print(title)
    show_header("system", COLUMNS)
    for row in rows:
        low, high = row["interval"]
        cells = (
            row["tokens_a_pass"],
            f"{low:.2f} to {high:.2f}",
            " ".join(f"{share:.0%}" for share in row["accepted"]),
            f"{row['layers_a_token']:.1f}",
            row["gflop_a_token"],
            f"{row['tokens_per_s']:.1f}",
            row["times_plain"],
            f"{row['equal']:.0%}",
            f"{row['rouge_l_off']:.3f}",
        )
        show_row(row["system"], cells)


if __name__ == "__main__":
    main()
