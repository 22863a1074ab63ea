"""Makes dumps of a model: its heads' predictions along continuations of prompts, kept batch by batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rescore.decode.loop.continuations import Continuation, ContinuationOptions, continuations
from rescore.decode.loop.prompts import Prompt, check_tokenizer
from rescore.decode.models.draft_step import NoHeads
from rescore.decode.models.open import OpenModel
from rescore.lattice.dump import DumpHeader
from rescore.lattice.dump_writer import DumpWriter
from rescore.lm.model.tokenizer import TextTokenizer

Advance = Callable[[str, float], None]
MODEL_FILES = ("*.safetensors", "*.bin", "*.pt", "config.json")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DumpSource:
    """A model, its tokenizer, and their metadata for dump.json: `name` and `provenance`."""

    model: OpenModel
    tokenizer: TextTokenizer
    name: str
    provenance: dict[str, Any]


def make_dump(
    path: Path,
    source: DumpSource,
    tasks: dict[str, list[Prompt]],
    options: ContinuationOptions,
    *,
    advance: Advance = lambda task, done: None,
) -> None:
    """Writes the dump of all prompts atomically to the folder `path`.

    Each batch of `options.rows` prompts is kept (see `DumpWriter`), and an interrupted call resumes after the last one:
    the batches are the same, and so are the results of their matrix products.

    A model without heads is its own head 1. Head 1's predictions along the prompts are kept too, for drafters that
    recycle them.

    advance: called with a task and the number of texts done so far in all tasks, fractional within a batch. ValueError
    if a prompt does not fit into the model's context, or the tokenizer has more tokens than the model.
    """
    model = source.model
    heads = model.heads or NoHeads(model.vocab_size)
    options = replace(options, along_prompts=model.kind != "encoder-decoder")
    check_tokenizer(source.tokenizer, model.vocab_size, source.name)
    check_lengths(tasks, options.max_tokens, model.target.context)
    with DumpWriter(path, _header(source, options, 1 + heads.slots)) as writer:
        done = sum(writer.kept(task) for task in tasks)
        for task, prompts in tasks.items():
            for start in range(writer.kept(task), len(prompts), options.rows):
                batch = prompts[start : start + options.rows]
                tell = _batch_advance(advance, task, done, len(batch))
                tell(0.0)
                for one in continuations(model.target, heads, batch, options, tell):
                    _add(writer, task, one)
                writer.keep()
                done += len(batch)


def _batch_advance(advance: Advance, task: str, before: int, texts: int) -> Callable[[float], None]:
    """Calls `advance` for the share that is done of a batch of so many texts."""
    return lambda share: advance(task, before + share * texts)


def _add(writer: DumpWriter, task: str, one: Continuation) -> None:
    rows, along = one.rows, one.prompt_rows
    writer.add(
        task,
        prompt=one.prompt.tokens,
        tokens=one.tokens,
        topk_ids=rows.ids,
        topk_logp=rows.logp,
        entropy=rows.entropy,
        seeds=one.seeds,
        prompt_topk_ids=along.ids[:, 0] if along else None,
        prompt_topk_logp=along.logp[:, 0] if along else None,
    )


def _header(source: DumpSource, options: ContinuationOptions, heads: int) -> DumpHeader:
    sampling = options.sampling
    return DumpHeader(
        model=source.name,
        tokenizer_sha256=source.tokenizer.sha256,
        vocab_size=source.model.vocab_size,
        heads=heads,
        top_k=options.top_k,
        kind=options.kind,
        temperature=float(sampling.temperature) if sampling else None,
        top_p=float(sampling.top_p) if sampling else None,
        seed=sampling.seed if sampling else None,
        end_of_text=options.end_of_text,
        provenance=source.provenance,
    )


def check_lengths(tasks: dict[str, list[Prompt]], max_tokens: int, context: int | None) -> None:
    """ValueError if a prompt leaves no room for its continuation."""
    longest = max((one for prompts in tasks.values() for one in prompts), key=lambda one: len(one.tokens))
    if context is not None and len(longest.tokens) + max_tokens > context:
        raise ValueError(
            f"line {longest.number + 1}: {len(longest.tokens)} tokens and --max-tokens {max_tokens}: expected at most "
            f"{context} together, the model's context; shorten one of them"
        )


def fingerprint(path: Path) -> str | dict[str, str]:
    """SHA-256 of a model's file, or of each file of the model in a folder."""
    if not path.is_dir():
        return sha256(path)
    return {file.name: sha256(file) for pattern in MODEL_FILES for file in sorted(path.glob(pattern))}


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def provenance(
    model: Path,
    prompts: Path,
    *,
    max_tokens: int,
    limit: int | None,
    rows: int,
    device: str,
    dtype: str | None,
    heads: str | None = None,
    chat: bool = False,
) -> dict[str, Any]:
    """The provenance of a dump, for dump.json: all that its rows depend on, rounding included."""
    facts: dict[str, Any] = {
        "model_sha256": fingerprint(model),
        "prompts": prompts.name,
        "prompts_sha256": sha256(prompts),
        "max_tokens": max_tokens,
        "limit_per_task": limit,
        "rows": rows,
        "device": device,
        "dtype": dtype,
    }
    if chat:
        facts["chat"] = True
    if heads is not None:
        facts["heads"] = (
            heads if not Path(heads).exists() else {"path": Path(heads).name, "sha256": fingerprint(Path(heads))}
        )
    return facts
