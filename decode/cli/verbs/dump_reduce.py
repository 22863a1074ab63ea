"""`rescore dump reduce`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli import values
from rescore.decode.cli.groups import TOKENIZER, DumpOutArgs
from rescore.decode.cli.options import Misuse, argument, option
from rescore.decode.cli.output import Result
from rescore.decode.cli.values import float_between, printable

if TYPE_CHECKING:
    from rescore.lattice.logits_file import LogitsSource


@dataclass(frozen=True, kw_only=True)
class DumpReduceArgs(DumpOutArgs):
    r"""Make a dump from your own full-vocabulary logits. Each file of logits is a task.
    Files are read in blocks and may exceed memory (docs/reference/dump-format.md).

    LOGITS   .npy, .npz or .safetensors with the array logits [n, h, V], or with one
             array: float32, float16 or bfloat16. Row i of a sequence was predicted
             after its prompt and its first i tokens; head 1 is the model's own
    texts    integer arrays tokens [n] and offsets [S + 1], prompt_tokens [m] and
             prompt_offsets [S + 1], and seeds [n] of sampled text, in the file of
             the logits or in another .npz or .safetensors file (--tokens)
    kinds    greedy   every token has the largest logit of head 1
             sampled  each token was sampled with its position's own seed
             forced   any text

    examples:
      rescore dump reduce logits.safetensors --kind forced -o DUMP
      rescore dump reduce gsm8k.npy code.npy --tokens gsm8k.npz --tokens code.npz \
          --kind greedy --tokenizer tokenizer.json --top-k 16 -o DUMP
      rescore run DUMP --lm LM
    """

    logits: Sequence[Path] = argument("LOGITS", "files of logits, see above", Path, several=True)
    tokens: Sequence[Path] = option(
        "FILE",
        "texts of the logits, one file for each LOGITS, in order (default: in the file of the logits)",
        Path,
        several=True,
    )
    task: Sequence[str] = option(
        "NAME", "task of the logits, one for each LOGITS, in order (default: the names of the files)", several=True
    )
    name: str | None = option(None, "name of the model in dump.json (default: that of the first file)", rare=True)
    tokenizer: Path | None = option(
        "PATH", f"the model's tokenizer, to match n-gram models: {TOKENIZER} (default: unknown)", Path
    )
    end_of_text: str | None = option("TOKEN", "end-of-text token, an id without --tokenizer (default: the tokenizer's)")
    temperature: float | None = option("T", "temperature of sampled text", float_between(0, above=True))
    top_p: float | None = option(
        "P", "top-p of sampled text (default: 1.0)", float_between(0, 1, above=True), rare=True
    )
    seed: int | None = option("N", "seed from which the seeds of sampled text were made", values.seed, rare=True)


def run(args: DumpReduceArgs) -> Result:
    from rescore.decode.cli import screen
    from rescore.decode.cli.lm_files import given_id
    from rescore.decode.cli.verbs.dump_info import tables
    from rescore.lattice.dump import DumpHeader
    from rescore.lattice.logits_file import reduce_logits

    args.check_new()
    sampling, sources = args.sampling(top_p=1.0), sources_of(args)
    if sampling and "temperature" not in sampling:
        raise Misuse(
            "--kind sampled: expected --temperature of the sampled text; if it or the seeds are unknown, use "
            "--kind forced"
        )
    found = [describe(source) for source in sources]
    tokenizer = tokenizer_of(args, found[0]["shape"][2])
    header = DumpHeader(
        model=args.name or printable(args.logits[0].stem),
        tokenizer_sha256=tokenizer and tokenizer.sha256,
        vocab_size=found[0]["shape"][2],
        heads=found[0]["shape"][1],
        top_k=args.top_k,
        kind=args.kind,
        end_of_text=tokenizer.end_of_text if tokenizer else given_id(args.end_of_text),
        provenance={"logits": found},
        **sampling,
    )
    with screen.progress_bar() as bar:
        done = bar.add_task("rows", total=sum(one["shape"][0] for one in found))
        dump = reduce_logits(sources, args.out, header, advance=partial(bar.advance, done))
    info = {"dump": str(args.out), **dump.info(), "verified": False}
    return Result(info, tables(info))


def sources_of(args: DumpReduceArgs) -> list[LogitsSource]:
    """The files of logits with their tasks and texts."""
    from rescore.lattice.logits_file import LogitsSource

    for name in ("tokens", "task"):
        if (given := len(getattr(args, name))) not in (0, len(args.logits)):
            raise Misuse(f"--{name}: expected one for each of the {len(args.logits)} files of logits, got {given}")
    names = args.task or [printable(path.stem) for path in args.logits]
    if not args.task and len(set(names)) < len(names):
        raise Misuse(
            f"{' '.join(map(str, args.logits))}: expected different file names, since they name the tasks; "
            "name the tasks with --task"
        )
    texts: list[Path | None] = [*args.tokens] or [None] * len(names)
    return [LogitsSource(task=task, logits=path, texts=text) for task, path, text in zip(names, args.logits, texts)]


def describe(source: LogitsSource) -> dict[str, Any]:
    """A file of logits for the provenance in dump.json."""
    from rescore.lattice.logits_file import open_logits

    with open_logits(source.logits) as logits:
        return {
            "task": source.task,
            "file": printable(source.logits.name),
            "shape": list(logits.shape),
            "dtype": logits.dtype,
            "bytes": source.logits.stat().st_size,
        }


def tokenizer_of(args: DumpReduceArgs, vocab_size: int) -> Any:
    from rescore.lm.model.tokenizer import TextTokenizer

    if args.tokenizer is None:
        return None
    tokenizer = TextTokenizer.open(args.tokenizer, args.end_of_text)
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"{args.tokenizer}: expected at most the V = {vocab_size} tokens of {args.logits[0]}, got "
            f"{tokenizer.vocab_size}; give the tokenizer of the model that made them"
        )
    return tokenizer
