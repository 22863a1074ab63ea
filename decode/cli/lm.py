"""`rescore lm`: n-gram language models."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from rescore.decode.cli import arguments, output
from rescore.lm.arpa import ArpaOptions
from rescore.lm.build import build, prune_model
from rescore.lm.formats import load, save
from rescore.lm.katz import KatzOptions
from rescore.lm.prune import PruneOptions
from rescore.lm.text import TextTokenizer, sequences

BUILD = """\
Estimate a Katz backoff model (Good-Turing, with OpenGrm's conventions) from text or token files, in memory.

Inputs: .jsonl ({"text": ..} a line) and .txt (a document), also .gz, with --tokenizer; .npy flat arrays of token ids
with --vocab-size and --eot, documents separated by the end-of-text id.
"""

BUILD_EXAMPLES = """\
examples:
  rescore lm build train.jsonl.gz --tokenizer tokenizer.json -o lm.ngram
  rescore lm build a.npy b.npy --vocab-size 50257 --eot 50256 --min-count 1,1,2,4 --max-ngrams 3M -o lm.ngram
"""

OTHER_EXAMPLES = {
    "prune": "  rescore lm prune lm.ngram --max-ngrams 900k -o small.ngram\n  rescore lm prune lm.arpa.gz --theta 1e-7 -o small.arpa.gz",
    "convert": "  rescore lm convert lm.ngram lm.arpa.gz\n  rescore lm convert lm.arpa lm.ngram --vocab-size 50257 --eot 50256\n  rescore lm convert lm.ngram lm.fst",
    "info": "  rescore lm info lm.ngram\n  rescore lm info lm.ngram --verify --json -",
    "score": "  rescore lm score lm.ngram heldout.jsonl --tokenizer tokenizer.json\n  rescore lm score lm.ngram tokens.npy --json -",
}


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    lm = verbs.add_parser("lm", help="build, prune, convert, describe and score n-gram models",
                          description="N-gram models: Katz estimation, entropy pruning, .ngram, ARPA and OpenFst files.")
    actions = lm.add_subparsers(dest="action", required=True, metavar="ACTION")
    made = actions.add_parser("build", parents=[common], help="estimate a model", description=BUILD, epilog=BUILD_EXAMPLES,
                              formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("inputs", nargs="+", type=Path, metavar="INPUT")
    add_text(made)
    made.add_argument("--order", type=arguments.whole(1, 7), default=4, metavar="N", help="default: 4")
    made.add_argument("--min-count", type=counts, default=(), metavar="C1,C2,..", help="smallest count kept of each order, e.g. 1,1,2,4 (default: all)")
    made.add_argument("--textbook", action="store_true", help="no discount above k, instead of OpenGrm's 0.999")
    made.add_argument("--unseen-cost", type=float, metavar="COST", help="nats for ids never seen, e.g. 1000 as in the paper (default: mass is reserved for them)")
    add_pruning(made, required=False)
    made.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help=".ngram, .arpa, .arpa.gz or .fst")
    made.set_defaults(call=call_build)

    pruned = add(actions, common, "prune", "drop the n-grams that matter least (Stolcke's entropy pruning)")
    pruned.add_argument("model", type=Path)
    add_arpa(pruned)
    add_pruning(pruned, required=True)
    pruned.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help=".ngram, .arpa, .arpa.gz or .fst")
    pruned.set_defaults(call=call_prune)

    converted = add(actions, common, "convert", "between .ngram, .arpa, .arpa.gz and .fst (OpenFst), by the names of the files")
    converted.add_argument("model", type=Path)
    converted.add_argument("out", type=Path)
    add_arpa(converted)
    converted.set_defaults(call=call_convert)

    info = add(actions, common, "info", "what a model holds: order, n-grams per order, bytes, how it was made")
    info.add_argument("model", type=Path)
    add_arpa(info)
    info.add_argument("--verify", action="store_true", help="read the whole file: checksums and every entry")
    arguments.add_json(info)
    info.set_defaults(call=call_info)

    scored = add(actions, common, "score", "cost and perplexity of text or token files; columns: tokens, nats per token, perplexity")
    scored.add_argument("model", type=Path)
    scored.add_argument("inputs", nargs="+", type=Path, metavar="INPUT")
    add_text(scored)
    arguments.add_json(scored)
    scored.set_defaults(call=call_score)


def add(actions: Any, common: argparse.ArgumentParser, name: str, text: str) -> argparse.ArgumentParser:
    return actions.add_parser(name, parents=[common], help=text, description=text[0].upper() + text[1:] + ".",
                              epilog="examples:\n" + OTHER_EXAMPLES[name], formatter_class=argparse.RawDescriptionHelpFormatter)


def add_text(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="a Hugging Face tokenizer.json, for text")
    parser.add_argument("--end-of-text", metavar="TOKEN", help="its end-of-text token (default: <|endoftext|> and the like)")
    add_arpa(parser)


def add_arpa(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vocab-size", type=arguments.whole(1, 1 << 24), metavar="V", help="of .npy files, or of an ARPA file whose words are ids")
    parser.add_argument("--eot", type=arguments.whole(0, (1 << 24) - 1), metavar="ID", help="their end-of-text id")


def add_pruning(parser: argparse.ArgumentParser, required: bool) -> None:
    group = parser.add_mutually_exclusive_group(required=required)
    group.add_argument("--max-ngrams", type=amount, metavar="N", help="keep this many n-grams, e.g. 900k or 100M")
    group.add_argument("--theta", type=float, metavar="X", help="drop n-grams whose relative-entropy loss is below ln(1 + X)")


def amount(text: str) -> int:
    """A whole number, perhaps with k, M or G."""
    factor = {"k": 10**3, "M": 10**6, "G": 10**9}.get(text[-1:], 1)
    try:
        return round(float(text[:-1] if factor > 1 else text) * factor)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"expected a number such as 900k or 100M, got {text!r}") from None


def counts(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers such as 1,1,2,4, got {text!r}") from None


def pruning(args: argparse.Namespace) -> PruneOptions | None:
    if args.theta is None and args.max_ngrams is None:
        return None
    return PruneOptions(theta=args.theta, max_ngrams=args.max_ngrams)


def arpa(args: argparse.Namespace) -> ArpaOptions:
    return ArpaOptions(vocab_size=args.vocab_size, eot=args.eot)


def read(inputs: Iterable[Path], tokenizer: TextTokenizer | None, advance: Any) -> Iterator[Any]:
    for path in inputs:
        yield from sequences(path, tokenizer)
        advance()


def call_build(args: argparse.Namespace) -> None:
    tokenizer = TextTokenizer.open(args.tokenizer, args.end_of_text) if args.tokenizer else None
    vocab_size = args.vocab_size or (tokenizer.vocab_size if tokenizer else None)
    eot = tokenizer.eot if tokenizer and args.eot is None else args.eot
    if vocab_size is None or eot is None:
        raise ValueError("expected --tokenizer, or --vocab-size and --eot with .npy files")
    metadata = {"tokenizer": tokenizer.sha256} if tokenizer else {}
    with output.progress_bar() as bar:
        task = bar.add_task("reading", total=len(args.inputs))
        model = build(
            read(args.inputs, tokenizer, lambda: bar.advance(task)), order=args.order, vocab_size=vocab_size, eot=eot,
            estimate=KatzOptions(textbook=args.textbook, min_counts=args.min_count, unseen_cost=args.unseen_cost),
            shorten=pruning(args), words=tokenizer.words() if tokenizer and vocab_size == tokenizer.vocab_size else None, metadata=metadata)
    save(model, args.out)
    show(args.out, model.info())


def call_prune(args: argparse.Namespace) -> None:
    options = pruning(args)
    assert options is not None
    model = prune_model(load(args.model, arpa=arpa(args)), options)
    save(model, args.out)
    show(args.out, model.info())


def call_convert(args: argparse.Namespace) -> None:
    model = load(args.model, arpa=arpa(args))
    save(model, args.out)
    show(args.out, model.info())


def call_info(args: argparse.Namespace) -> None:
    info = load(args.model, arpa=arpa(args), verify=args.verify or None).info()
    if args.json:
        output.write_json(args.json, {"model": str(args.model), **info})
    if str(args.json) != "-":
        show(args.model, info, verified=args.verify)


def call_score(args: argparse.Namespace) -> None:
    model = load(args.model)
    tokenizer = TextTokenizer.open(args.tokenizer, args.end_of_text) if args.tokenizer else None
    if tokenizer:
        model.require_tokenizer(tokenizer.sha256, tokenizer.vocab_size)
    eot = model.metadata.get("eot", args.eot) if args.eot is None else args.eot
    files = []
    for path in args.inputs:
        tokens, nats = 0, 0.0
        for sequence in sequences(path, tokenizer):
            ids = np.asarray(sequence, np.int64)
            history: list[int] = []
            if eot is not None:  # a sequence is whole documents, each after the end of another
                history, ids = [eot], ids[1:] if len(ids) and ids[0] == eot else ids
                ids = ids if len(ids) and ids[-1] == eot else np.append(ids, eot)
            nats += float(model.score(ids, history=history).sum(dtype=np.float64))
            tokens += len(ids)
        files.append({"file": str(path), "tokens": tokens, "nats_per_token": nats / max(tokens, 1), "perplexity": float(np.exp(nats / max(tokens, 1)))})
    if args.json:
        output.write_json(args.json, {"model": str(args.model), "files": files})
    if str(args.json) != "-":
        table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("file")
        for name in ("tokens", "nats per token", "perplexity"):
            table.add_column(name, justify="right")
        for file in files:
            table.add_row(str(file["file"]), f"{file['tokens']:,}", f"{file['nats_per_token']:.4f}", f"{file['perplexity']:.2f}")
        output.console().print(table)


def show(path: Path, info: dict[str, Any], verified: bool = False) -> None:
    table = Table(title=str(path), title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    for order, number in enumerate(info.pop("ngrams"), 1):
        table.add_row(f"{order}-grams", f"{number:,}")
    for name, value in info.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))
    if verified:
        table.add_row("verified", "checksums and every entry")
    output.console().print(table)
