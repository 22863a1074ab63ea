"""`rescore generate`."""

from __future__ import annotations

import io
import os
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from rescore.decode.cli import values
from rescore.decode.cli.groups import DecodingArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, argument, flag, option
from rescore.decode.cli.output import Result
from rescore.decode.cli.values import Written, float_between, int_between, nonempty_text, printable, printable_text
from rescore.decode.draft.registry import SPECS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rescore.decode.cli.command_sources import CommandDrafter
    from rescore.decode.cli.lazy_model import LazyModel
    from rescore.decode.loop.generate import Chunk, Options
    from rescore.decode.loop.text_stream import TextPiece, TextStream
    from rescore.decode.verify.shaping import Shaping


SHADES = ("\x1b[36m", "\x1b[32m")  # alternate for runs of accepted tokens; root tokens are plain
PLAIN = "\x1b[0m"
ROOT = -1  # mark of root tokens


@dataclass(frozen=True, kw_only=True)
class GenerateArgs(DecodingArgs, ReportedArgs):
    r"""Continue prompts with a model, verifying several drafted tokens in every pass.
    Decoding is lossless: at temperature 0 the output is the model's greedy text,
    above 0 it is sampled from the model's distribution (docs/how/verification.md).

    The text is printed as it is generated. On a terminal, draft tokens accepted in
    one pass share a colour, and the token that each pass adds has none. Several
    prompts are decoded as a batch and shown one by one.

    drafters:
    {drafters}

    printed below the text:
      passes    forward passes of the model, the prompt's included
      accepted  share of drafts whose first, second, .. token was accepted

    with --compare, which decodes with drafts and plainly in turns, 3 to 7 rounds,
    until the interval is narrow or 20 s have passed:
      verdict   tokens per second in times of plain decoding, its 95% interval, and
                faster, slower, or no difference where the interval contains 1
      why, try  what passes cost and gained, and what to change where drafting does
                not pay; of the round of median ratio
      plain     the first text without drafts

    examples:
      rescore generate --model smollm2 --chat --compare "Why is the sky blue?"
      rescore generate --model smollm2 --chat --heads data/demo/heads \
          --settings data/demo/settings.json "Tom has 3 apples, ..."
      rescore generate --model DIR --heads MEDUSA --lm LM --compare "Once upon"
      rescore generate --model DIR --draft-model SMALL --temperature 0.7 --seed 1 -
      rescore generate --model MODEL --settings settings.json "Once upon"
      rescore generate --model model.gguf --engine llama.cpp --lm LM "Once upon"
      rescore generate --model MODEL --tools tools.json --compare "Weather in Rome?"
      rescore generate --model MODEL --chat --prediction old.py "Rename `x` in ..."
      rescore generate --model MODEL --drafter none --json - "One" "Two"
      rescore generate --model DIR --chat --image cat.png "What is it doing?"
      rescore generate --model WHISPER --audio speech.wav --compare
    """

    prompts: Sequence[str] = argument("PROMPT", "text to continue; - reads standard input", several=True, needed=False)
    image: Sequence[Path] = option(
        "FILE", "an image that every prompt is about; repeatable", Path, several=True, rare=True
    )
    audio: Sequence[Path] = option(
        "FILE",
        "a WAV file that every prompt is about, or, with a model that writes down speech and without prompts, a text; "
        "repeatable",
        Path,
        several=True,
        rare=True,
    )
    memory: Path | None = option(
        "FILE",
        ".npy file of earlier texts, a further source of the blend; the texts are appended to it, and it is created if "
        "missing",
        Written(),
        rare=True,
    )
    drafter: str | None = option(
        "NAME",
        "the drafter (default: neural with --neural, else blend; with heads tree if --alpha is given, and paths with "
        "several --lm; of trees their best chains, if the model reads none)",
        choices=tuple(SPECS),
    )
    layout: str | None = option(
        None,
        "tree: one row with a tree mask; rows: one row per path (default: tree if the model supports it)",
        choices=("tree", "rows"),
        rare=True,
    )
    compare: bool = flag("say whether drafts make decoding faster, and why")
    no_color: bool = flag("no colours on a terminal, as with NO_COLOR in the environment", rare=True)
    max_tokens: int = option("N", "greatest length of each text", int_between(1, 2**20), 64)
    top_p: float | None = option(
        "P", "sample from the most probable tokens of total probability P", float_between(0, 1, above=True), rare=True
    )
    sample_top_k: int | None = option(
        "K", "sample from the K most probable tokens (--top-k is for lattices)", int_between(1, 2**31 - 1), rare=True
    )
    repetition_penalty: float = option(
        "R", "divide the logits of tokens that have occurred by R", float_between(0, above=True), 1.0, rare=True
    )
    seed: int | None = option("N", "seed of sampled text (default: 0)", values.seed, rare=True)
    stop: Sequence[str] = option(
        "STR", "stop at this string, which is not shown; repeatable", nonempty_text, several=True, rare=True
    )
    prediction: Path | None = option(
        "FILE", "what every text is likely to copy most of, such as the file that it edits", Path, rare=True
    )

    @classmethod
    def about(cls) -> str:
        return super().about().format(drafters=described())


def run(args: GenerateArgs) -> Result:
    import numpy as np

    from rescore.decode.cli.command_sources import CommandSources
    from rescore.decode.cli.comparison import (
        Decoded,
        beside,
        compare_in_turns,
        decode_anew,
        explain_payoff,
        not_remembered,
        speedup_of,
        warm_up,
    )
    from rescore.decode.cli.lazy_model import open_lazy_model, open_structure, read_prompts
    from rescore.decode.loop.generate import Options
    from rescore.decode.loop.request import Stopping
    from rescore.decode.models.open_target import use_threads

    if not (args.prompts or args.image or args.audio):
        raise Misuse("PROMPT: expected a text to continue, got none")
    prompts = read_prompts(args.prompts)
    shaping = shaping_of(args)
    use_threads(args.threads)
    model = open_lazy_model(args, args.model, heads=args.heads, engine=args.engine, threads=args.threads)
    sources = CommandSources(args, model)
    kind = args.drafter or sources.default()
    sources.check_used(kind)
    sources.check_inputs()
    if args.image or args.audio:
        model, ids, shaping = show_prompts(args, model, prompts, shaping)
        prompts = prompts or [str(path) for path in args.audio]
        sources.model = model  # with the sources that are open
    else:
        ids = model.encoded(prompts, args.max_tokens)
    began = time.perf_counter()
    structure = open_structure(args, model)
    structure_ms = 1e3 * (time.perf_counter() - began)
    drafting = sources.make(kind, layout=args.layout)
    stopping = Stopping(tokens=frozenset(model.ends), strings=tuple(args.stop), decode=model.text.decode)
    options = Options(
        max_tokens=args.max_tokens,
        shaping=shaping,
        stopping=stopping,
        layout=drafting.layout,
        structure=structure,
        prediction=open_prediction(args.prediction, model),
    )
    memory = sources.memory
    with not_remembered(memory if args.compare else None):
        if args.compare:
            warm_up(model, ids, drafting, options)
        chunks, said = decode_texts(args, model, prompts, ids, drafting, options)
        shown = Decoded(tokens=[tokens for tokens, _ in chunks], statistics=[chunk.statistics for _, chunk in chunks])
        anew = partial(decode_anew, model, ids, drafting, options)
        rounds = compare_in_turns(shown, anew) if args.compare else []
    if memory is not None and args.memory:
        for one, (tokens, _) in zip(ids, chunks) if args.compare else ():
            memory.remember(np.array([*one, *tokens], np.int32), len(one))
        memory.save(args.memory)
    totals = shown.totals
    report: dict[str, Any] = {
        "model": str(args.model),
        "drafter": drafting.name,
        "guarantee": options.rule_for(drafting.drafter).guarantee,
        "texts": [
            {"prompt": prompt, "text": text, "tokens": tokens, "finish": chunk.finish}
            for prompt, text, (tokens, chunk) in zip(prompts, said, chunks)
        ],
        **totals.to_json(),
    }
    lines = totals.facts()
    if rounds:
        speedup = speedup_of(rounds)
        drafted, plain = rounds[speedup.middle]
        explanation = explain_payoff(
            args,
            kind,
            drafted.statistics,
            plain.statistics,
            speedup,
            nodes=args.nodes or SPECS[kind].sizes.nodes,
            totals=totals,
        ).on(getattr(model.opened.target, "reading", None))
        lines = explanation.lines + beside(report, model, ids, rounds[0][1], shown, shaping)
        report |= {**speedup.to_json(), "payoff": explanation.to_json()}
        if structure is not None:
            lines.append(("structure", f"opened in {structure_ms:,.0f} ms, its tokenizer included"))
            report["structure_ms"] = structure_ms
    return Result(report, [f"{name:9} {value}" for name, value in lines], beside=True)


def show_prompts(
    args: GenerateArgs, model: LazyModel, prompts: list[str], shaping: Shaping
) -> tuple[LazyModel, list[NDArray[np.int32]], Shaping]:
    """The model after it has read images and sound with the prompts, the ids of these, and the shaping with the
    processors that its own `generate` runs.
    """
    from dataclasses import replace

    from rescore.decode.engines.huggingface.shown import show
    from rescore.decode.models.causal_lm import CausalLMTarget
    from rescore.decode.models.draft_step import StatelessHeads
    from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
    from rescore.decode.models.located import locate_model
    from rescore.decode.models.path_heads import PathHead

    opened = model.opened
    if not isinstance(opened.target, (CausalLMTarget, EncoderDecoderTarget)):
        raise Misuse("--image, --audio: only for models of transformers")
    if isinstance(opened.small, PathHead) or opened.heads and not isinstance(opened.heads, StatelessHeads):
        raise Misuse("--image, --audio: expected no heads that read all tokens themselves; leave --heads out")
    shown = show(opened.target, locate_model(args.model), prompts, args.image, args.audio, chat=args.chat)
    for number, one in enumerate(shown.prompts, 1):
        model.check_length(f"prompt {number}", len(one), args.max_tokens)
    read = replace(opened, target=shown.target)
    return replace(model, load=lambda: read), shown.prompts, shaping.with_processors(shown.processors)


def open_prediction(path: Path | None, model: LazyModel) -> NDArray[np.int32] | None:
    """The ids of a file that texts are likely to copy."""
    from rescore.decode.cli.lazy_model import text_of_file

    return None if path is None else model.text.encode_more(text_of_file(path))


def shaping_of(args: GenerateArgs) -> Shaping:
    """Sampling and repetition penalty of the command line."""
    from rescore.decode.verify.sampling import Sampling
    from rescore.decode.verify.shaping import Shaping

    drawn: dict[str, Any] = {"top_p": args.top_p, "top_k": args.sample_top_k, "seed": args.seed}
    given = {name: value for name, value in drawn.items() if value is not None}
    if args.temperature == 0:
        if given:
            option = {"top_k": "sample-top-k"}.get(next(iter(given)), next(iter(given))).replace("_", "-")
            raise Misuse(f"--{option} needs sampled text; give --temperature above 0")
        return Shaping(repetition_penalty=args.repetition_penalty)
    return Shaping(sampling=Sampling(temperature=args.temperature, **given), repetition_penalty=args.repetition_penalty)


def decode_texts(
    args: GenerateArgs,
    model: LazyModel,
    prompts: list[str],
    ids: list[NDArray[np.int32]],
    drafting: CommandDrafter,
    options: Options,
) -> tuple[list[tuple[list[int], Chunk]], list[str]]:
    """Decodes the prompts and shows the texts. Returns tokens and last chunk of each prompt, and the shown texts."""
    from rescore.decode.loop.generate import stream
    from rescore.decode.loop.text_stream import TextStream

    texts = [TextStream(model.text.decode, prompt=one.tolist(), stops=args.stop) for one in ids]
    headings = [heading(i + 1, len(prompts), prompt) for i, prompt in enumerate(prompts)]
    tokens: list[list[int]] = [[] for _ in ids]
    last: dict[int, Chunk] = {}
    # Standard output may be taken by the JSON, or closed.
    out = io.StringIO() if str(args.json) == "-" or sys.stdout is None else sys.stdout
    writer = Typewriter(texts, headings, colour=wants_colour(out, args.no_color), out=out)
    with writer:
        for chunk in stream(model.opened.target, ids, drafting.drafter, options):
            tokens[chunk.request] += chunk.tokens.tolist()
            last[chunk.request] = chunk
            writer.show(chunk)
    return [(tokens[i], last[i]) for i in range(len(ids))], writer.said


def described() -> str:
    """The registry's drafters, a line or more each."""
    margin = 2 + max(map(len, SPECS)) + 2
    blank = " " * margin
    return "\n".join(
        textwrap.fill(spec.title, 80, initial_indent=f"  {name}".ljust(margin), subsequent_indent=blank)
        for name, spec in SPECS.items()
    )


def wants_colour(out: TextIO, no_color: bool) -> bool:
    """Whether `out` is a terminal with colours, and neither --no-color nor NO_COLOR (no-color.org) is set."""
    return out.isatty() and not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Typewriter:
    """Shows the first text that has not ended; later texts wait. A context manager: it restores the terminal.

    texts     the stream of each request
    headings  shown before each text if there are several
    """

    def __init__(self, texts: Sequence[TextStream], headings: Sequence[str], *, colour: bool, out: TextIO):
        self.out = out
        self.texts, self.headings, self.colour = texts, headings, colour
        self.said = [""] * len(texts)  # each text so far
        self._waiting = [""] * len(texts)
        self._runs = [0] * len(texts)
        self._ended = [False] * len(texts)
        self._current = 0
        self._terminal = self.out.isatty()
        self._line_ended = True

    def __enter__(self) -> Typewriter:
        self._head()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not self._line_ended:
            self._write("\n")  # so that an error message starts on a new line

    def show(self, chunk: Chunk) -> None:
        text, run = self.texts[chunk.request], self._runs[chunk.request]
        marks = [run % len(SHADES)] * chunk.accepted + [ROOT] * (len(chunk.tokens) - chunk.accepted)
        self._runs[chunk.request] += chunk.accepted > 0
        pieces = [piece for token, mark in zip(chunk.tokens.tolist(), marks) for piece in text.add(token, mark)]
        if chunk.finish is not None:
            pieces += text.finish(ROOT)
            self._ended[chunk.request] = True
        self.said[chunk.request] += "".join(piece.text for piece in pieces)
        self._waiting[chunk.request] += "".join(map(self._styled, pieces))
        self._flush()

    def _flush(self) -> None:
        """Writes what is waiting of the current text, and moves on to the next if it has ended."""
        while self._current < len(self.texts):
            self._write(self._waiting[self._current])
            self._waiting[self._current] = ""
            if not self._ended[self._current]:
                return
            self._write("" if self.said[self._current].endswith("\n") else "\n")
            self._current += 1
            self._head()

    def _head(self) -> None:
        if len(self.texts) > 1 and self._current < len(self.texts):
            self._write(("\n" if self._current else "") + f"==> {self.headings[self._current]} <==\n")

    def _styled(self, piece: TextPiece) -> str:
        text = printable_text(piece.text) if self._terminal else piece.text
        return f"{SHADES[piece.mark]}{text}{PLAIN}" if self.colour and piece.mark != ROOT else text

    def _write(self, text: str) -> None:
        if text:
            self.out.write(text)
            self._line_ended = text.endswith("\n")
            self.out.flush()


def heading(number: int, count: int, prompt: str) -> str:
    """The heading of one prompt among several."""
    line = printable(" ".join(prompt.split()))
    return f"{number}/{count}: {line if len(line) <= 60 else line[:57] + '...'}"
