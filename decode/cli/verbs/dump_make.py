"""`rescore dump make`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rescore.decode.cli import output, values
from rescore.decode.cli.groups import DumpOutArgs, ModelArgs
from rescore.decode.cli.options import Misuse, option
from rescore.decode.cli.output import Result
from rescore.decode.cli.values import float_between, int_between, printable
from rescore.lattice.atomic import work_beside


@dataclass(frozen=True, kw_only=True)
class DumpMakeArgs(ModelArgs, DumpOutArgs):
    r"""Record what every head of a model predicts along continuations of prompts. The
    continuations do not depend on drafts, so replaying the dump gives the exact
    block efficiency of any drafter (docs/reference/dump-format.md). Resumable: each
    batch of --rows texts is kept in DIR.work, and after an interruption the same
    command continues.

    prompts  JSON lines with prompt or text, optionally task and reference, as text
             or token ids; or chats: messages of role and content, whose last answer
             is the reference; or Spec-Bench's files; also packed
    kinds    forced   the model reads the references, one pass per text
             greedy   the model's most probable tokens
             sampled  tokens sampled with one random number per position

    examples:
      rescore dump make --model smollm2 --chat --heads data/demo/heads \
          --prompts prompts.jsonl --kind greedy -o dump.greedy
      rescore dump make --model DIR --heads MEDUSA --kind forced \
          --prompts prompts.jsonl --device cuda --dtype bfloat16 -o dump.forced
    """

    prompts: Path = option("FILE", "prompts, see above", Path, required=True)
    name: str | None = option(None, "name of the model in dump.json (default: that of its file)", rare=True)
    max_tokens: int = option("N", "greatest length of a continuation", int_between(1, 2**20), default=64)
    temperature: float | None = option("T", "temperature of sampled text (default: 0.7)", float_between(0, above=True))
    top_p: float | None = option(
        "P", "top-p of sampled text (default: 1.0)", float_between(0, 1, above=True), rare=True
    )
    seed: int | None = option("N", "seed of sampled text (default: 1)", values.seed, rare=True)
    limit: int | None = option("N", "prompts per task (default: all)", int_between(1, 2**40))
    rows: int = option("N", "texts generated at once, a batch", int_between(1, 2**16), default=50, rare=True)


def run(args: DumpMakeArgs) -> Result:
    from rescore.decode.cli import screen
    from rescore.decode.cli.lazy_model import open_lazy_model
    from rescore.decode.cli.verbs.dump_info import tables
    from rescore.decode.loop.continuations import ContinuationOptions
    from rescore.decode.loop.dump_make import DumpSource, check_lengths, make_dump, provenance
    from rescore.decode.loop.prompts import read_prompts
    from rescore.decode.models.located import locate_model
    from rescore.decode.verify.sampling import Sampling
    from rescore.lattice.dump import Dump

    drawn = args.sampling(temperature=0.7, top_p=1.0, seed=1)
    args.check_new()
    model = open_lazy_model(args, args.model, heads=args.heads)
    if args.heads and model.facts.small:
        raise Misuse(f"--heads {args.heads}: what it predicts depends on its own draft, which a dump cannot hold")
    options = ContinuationOptions(
        kind=args.kind,
        top_k=args.top_k,
        max_tokens=args.max_tokens,
        end_of_text=model.ends[0],
        sampling=Sampling(**drawn) if drawn else None,
        rows=args.rows,
    )
    tasks = read_prompts(
        args.prompts, model.facts.vocab_size, model.text, limit=args.limit, references=args.kind == "forced"
    )
    check_lengths(tasks, args.max_tokens, model.facts.context)
    told = {name: getattr(args, name) for name in ("max_tokens", "limit", "rows", "dtype", "heads", "chat")}
    source = DumpSource(
        model=model.opened,
        tokenizer=model.tokenizer,
        name=args.name or args.model.name,
        provenance=provenance(locate_model(args.model), args.prompts, device=args.device or "cpu", **told),
    )
    texts = sum(map(len, tasks.values()))
    with output.resumable(lambda: kept(args.out, texts)), screen.progress_bar() as bar:
        row = bar.add_task("", total=texts)
        make_dump(
            args.out,
            source,
            tasks,
            options,
            advance=lambda task, done: bar.update(row, description=printable(task), completed=done),
        )
    info = {"dump": str(args.out), **Dump.open(args.out).info(), "verified": False}
    return Result(info, tables(info))


def kept(out: Path, texts: int) -> str:
    """What an unfinished dump keeps."""
    from rescore.lattice.dump_writer import kept_sequences

    found = kept_sequences(out)
    return f"{found:,} of {texts:,} texts are kept in {work_beside(out)}" if found else ""
