"""Decoding speed for a model shape: pass times with random weights, acceptance replayed from a dump.

The time of a pass depends on the model's shape, not on its weights, and tokens per pass are exact on a dump. What
remains unknown is whether the heads of a model of that shape would be as good as the dump's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rescore.decode.cost.model_shape import ModelShape
from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.loop.drafted_pass import DraftedPass
from rescore.decode.models.block import Block
from rescore.decode.models.medusa import MedusaHeads
from rescore.decode.models.target import Target
from rescore.decode.replay.names import BASE, HEADS_TREE, LM_ALONE, PARALLEL_RESCORED, RESCORED, TREE, sized
from rescore.decode.replay.run import mean_over_tasks, replay_dump
from rescore.decode.replay.standard import MODEL_SIZES, TREE_SIZES, ReplayOptions, standard_drafters
from rescore.decode.rescoring.propose import propose_trees
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.dump import Dump
from rescore.lattice.extras import needed_for
from rescore.lattice.sausage import Sausage
from rescore.lattice.tensors import TensorSausage
from rescore.lattice.tree import TokenTree

SAMPLE = 64  # lattices for timing searches


def random_target(shape: ModelShape, device: torch.device, dtype: torch.dtype) -> Target:
    """Makes a causal language model of this shape with random weights. ImportError without transformers."""
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
            return CausalLMTarget(LlamaForCausalLM(config).eval())
    finally:
        torch.set_default_dtype(before)


Search = Callable[[TensorSausage, Tensor], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchWay:
    """One way to draft.

    replayed     its name in a replay
    rows, width  rows and tokens per row of a pass, for each text
    search       called with lattices [b, T, K] and histories on the target's device; None if there is no search
    heads        whether it needs lattices of heads
    tree         rescorer and nodes, for trees that can be drafted on the device
    """

    name: str
    replayed: str | None
    rows: int
    width: int
    search: Search | None
    heads: bool = True
    tree: tuple[Rescorer, int] | None = None


def ways(dump: Dump, rescorer: Rescorer, options: ReplayOptions) -> Iterator[BenchWay]:
    """Yields plain decoding, then every standard drafter that a pass can verify."""
    slots, alone, p = dump.header.heads - 1, Rescorer(threads=rescorer.threads), options.paths
    yield BenchWay(name="plain", replayed=None, rows=1, width=1, search=None, heads=False)
    yield BenchWay(name=BASE, replayed=BASE, rows=1, width=1 + slots, search=None)
    if rescorer.models:
        yield BenchWay(name=RESCORED, replayed=RESCORED, rows=1, width=1 + slots, search=_paths(rescorer, 1))
    yield BenchWay(
        name=f"{PARALLEL_RESCORED}, rows",
        replayed=PARALLEL_RESCORED,
        rows=p,
        width=1 + slots,
        search=_paths(rescorer, p),
    )
    yield BenchWay(
        name=f"{PARALLEL_RESCORED}, tree",
        replayed=PARALLEL_RESCORED,
        rows=1,
        width=1 + merged_size(dump, rescorer, p),
        search=_paths(rescorer, p),
    )
    for n in TREE_SIZES:
        if rescorer.models:
            yield BenchWay(
                name=sized(TREE, n),
                replayed=sized(TREE, n),
                rows=1,
                width=1 + n,
                search=_trees(rescorer, n),
                tree=(rescorer, n),
            )
        yield BenchWay(
            name=sized(HEADS_TREE, n),
            replayed=sized(HEADS_TREE, n),
            rows=1,
            width=1 + n,
            search=_trees(alone, n),
            tree=(alone, n),
        )
    for n in MODEL_SIZES if rescorer.models else ():
        yield BenchWay(
            name=sized(LM_ALONE, n),
            replayed=sized(LM_ALONE, n),
            rows=1,
            width=1 + n,
            search=_alone(rescorer, slots, n),
            heads=False,
        )


def _paths(rescorer: Rescorer, p: int) -> Search:
    return lambda sausages, histories: rescorer.paths(sausages, histories, p)


def _trees(rescorer: Rescorer, n: int) -> Search:
    return lambda sausages, histories: rescorer.trees(sausages, histories, n)


def _alone(rescorer: Rescorer, slots: int, n: int) -> Search:
    return lambda sausages, histories: propose_trees(
        rescorer.models[0], histories.cpu().numpy(), n=n, depth=slots, threads=rescorer.threads
    )


def merged_size(dump: Dump, rescorer: Rescorer, p: int) -> int:
    """Returns the mean number of nodes of p drafts merged by prefix, over a sample of lattices."""
    sausages, histories = lattices(dump, rescorer, SAMPLE)
    drafts = rescorer.paths(sausages, histories, p)
    return round(
        np.mean([TokenTree.from_drafts(drafts.tokens[b, : drafts.count[b]]).size for b in range(len(drafts.count))])
    )


def lattices(dump: Dump, rescorer: Rescorer, count: int) -> tuple[Sausage, np.ndarray]:
    """Returns lattices [count, T, K], evenly spaced over the dump's first block, and their histories."""
    block = next(dump.blocks())
    rows = np.linspace(0, block.rows - 1, count).astype(np.int64)
    sausages = block.sausages()
    return Sausage(ids=sausages.ids[rows], cost=sausages.cost[rows]), block.histories(rows, max(1, rescorer.context))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replayed(HeadsLattice):
    """Heads whose candidates are computed, for the timing, and then replaced by the dump's: those of random weights are
    meaningless to a language model.
    """

    lattices: TensorSausage

    def tensors(self, logits: Tensor) -> TensorSausage:
        HeadsLattice.tensors(self, logits)
        return self.lattices


class Rig:
    """Times a target with Medusa heads, all weights random."""

    def __init__(
        self, target: Target, *, width: int, dtype: torch.dtype, slots: int, top_k: int, length: int, repeats: int
    ):
        self.target, self.length, self.repeats, self.width = target, length, repeats, width
        self._heads = MedusaHeads(heads=slots, width=width, output=target.logits).to(target.device, dtype)
        self._lattice = HeadsLattice(heads=self._heads, top_k=top_k)
        self._dtype = dtype

    def seconds(self, call: Callable[[], Any]) -> float:
        """Returns the median time of a call, after one to warm up."""
        times = []
        for _ in range(1 + self.repeats):
            self._wait()
            began = time.perf_counter()
            call()
            self._wait()
            times.append(time.perf_counter() - began)
        return statistics.median(times[1:])

    @torch.inference_mode()
    def passes(self, rows: int, width: int) -> dict[str, float]:
        """Returns the seconds of a pass after `length` tokens: `eager` and, if it can be captured, as a CUDA `graph`,
        without Python overhead.
        """
        cache, block = self._filled(rows, width), self._block(rows, self.length, width)
        return self._both_ways(lambda: self.target.logits(self.target.read(block, cache)).argmax(dim=-1))

    @torch.inference_mode()
    def drafted_passes(
        self, rescorer: Rescorer, nodes: int, lattices: TensorSausage, histories: Tensor
    ) -> dict[str, float]:
        """Returns the seconds, as in `passes`, of passes that draft their own trees of `nodes` nodes.

        lattices [b, T, K]; histories [b, m].
        """
        rows, width, device = len(histories), 1 + nodes, self.target.device
        cache, hidden = self._filled(rows, width), self._hidden(rows)
        replayed = _Replayed(heads=self._heads, top_k=self._lattice.top_k, lattices=lattices)
        step = DraftedPass(target=self.target, lattice=replayed, rescorer=rescorer, nodes=nodes)
        start = torch.full((rows,), self.length, device=device)
        return self._both_ways(lambda: step(hidden, histories, start, self.length + width, cache))

    @torch.inference_mode()
    def lattice(self, rows: int) -> float:
        """Returns the seconds from hidden states to lattices."""
        hidden = self._hidden(rows)
        certain = torch.zeros(rows, dtype=torch.int64, device=hidden.device)
        return self.seconds(lambda: self._lattice.tensors(self._heads.of_hidden(hidden, certain)))

    def _both_ways(self, call: Callable[[], Tensor]) -> dict[str, float]:
        found = {"eager": self.seconds(call)}
        replay = _captured(call) if self.target.device.type == "cuda" else None
        return found if replay is None else {**found, "graph": self.seconds(replay)}

    def _filled(self, rows: int, width: int) -> Any:
        """Makes a cache of `length` tokens per row with room for a pass. Its contents are random:
        reading a prompt would take longer than all passes.
        """
        cache, _ = self.target.open([np.zeros(self.length, np.int64)] * rows, 1, self.length + width)
        self.target.read(self._block(rows, self.length - 1, 1), cache)  # allocates its tensors
        for store in (*cache.keys, *cache.values):
            store.normal_()
        return cache

    def _hidden(self, rows: int) -> Tensor:
        return torch.randn(rows, self.width, device=self.target.device).to(self._dtype)

    def _block(self, rows: int, start: int, width: int) -> Block:
        return Block.of_texts([np.zeros(width, np.int64)] * rows, [start] * rows, self.target.device)

    def _wait(self) -> None:
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)


def _captured(call: Callable[[], Tensor]) -> Callable[[], None] | None:
    """Captures the call as a CUDA graph, with fixed shapes and addresses; None if the model synchronises with the
    device.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return None
    return graph.replay


def bench_replay(
    dump: Dump,
    rescorer: Rescorer,
    rig: Rig,
    options: ReplayOptions,
    *,
    batch: int,
    efficiency: dict[str, float],
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Returns for every way to draft its tokens per pass (replayed), the times of its parts (measured), and the tokens
    per second that follow.

    If a pass and its drafting were captured as one graph, its time (`step_ms`) is used; otherwise the sum of the parts.

    batch: texts decoded at once, each with the dump's acceptance. efficiency: from `replayed_efficiency`.
    """
    lattice = rig.lattice(batch)
    rows: list[dict[str, Any]] = []
    samples = list(_samples(*lattices(dump, rescorer, SAMPLE), batch, rig.target.device))
    for way in ways(dump, rescorer, options):
        passes = rig.passes(way.rows * batch, way.width)
        steps = rig.drafted_passes(*way.tree, *samples[0]) if way.tree else {}
        search = (
            0.0
            if way.search is None
            else statistics.median(rig.seconds(partial(way.search, *sample)) for sample in samples)
        )
        drafting = lattice * way.heads + search
        per_pass = efficiency[way.replayed] if way.replayed else 1.0
        best = min(passes.values())
        whole = steps.get("graph", drafting + best)
        rows.append(
            {
                "drafter": way.name,
                "batch": batch,
                "tokens_per_pass": per_pass,
                "verified": (way.width - 1) * way.rows,
                "pass_ms": {name: 1e3 * value for name, value in passes.items()},
                "step_ms": {name: 1e3 * value for name, value in steps.items()},
                "lattice_ms": 1e3 * lattice * way.heads,
                "search_ms": 1e3 * search,
                "drafting_share": 1 - best / whole,
                "tokens_per_s": batch * per_pass / whole,
            }
        )
        advance()
    plain = rows[0]["tokens_per_s"]
    return [{**row, "times_plain": row["tokens_per_s"] / plain} for row in rows]


def _samples(
    sausages: Sausage, histories: np.ndarray, batch: int, device: torch.device
) -> Iterator[tuple[TensorSausage, Tensor]]:
    """Yields the lattices on a device, `batch` at a time."""
    for start in range(0, SAMPLE, batch):
        part = np.arange(start, start + batch) % SAMPLE
        yield (
            TensorSausage.of(sausages[part], device),
            torch.from_numpy(np.ascontiguousarray(histories[part])).to(device),
        )


def replayed_efficiency(dump: Dump, rescorer: Rescorer, options: ReplayOptions) -> dict[str, float]:
    """Returns tokens per pass of every standard drafter, averaged over the dump's tasks."""
    result = replay_dump(dump, standard_drafters(dump, rescorer, options))
    return mean_over_tasks([task.to_json() for task in result.tasks], "block_efficiency")
