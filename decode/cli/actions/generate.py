"""Runs `rescore generate`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.comparison import (
    Decoded,
    beside,
    compared,
    decode_anew,
    not_remembered,
    speedup_of,
    warm_up,
)
from rescore.decode.cli.actions.decoders import Decoder, open_decoder, open_structure
from rescore.decode.cli.actions.drafter_inputs import Drafters, NamedDrafter
from rescore.decode.cli.actions.explained import explained, measure_of
from rescore.decode.cli.actions.output import check_stdin
from rescore.decode.cli.actions.typewriter import Typewriter, heading, wants_colour
from rescore.decode.cli.arguments import Misuse
from rescore.decode.draft.registry import SPECS
from rescore.decode.loop.generate import Chunk, Options, stream
from rescore.decode.loop.stopping import Stopping
from rescore.decode.loop.text_stream import TextStream
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.atomic import naming
from rescore.lm.inputs import standard_input


def call(args: argparse.Namespace) -> None:
    prompts = read_prompts(args.prompts)
    shaping = shaping_of(args)
    torch.set_num_threads(args.threads)
    decoder = open_decoder(args)
    drafters = Drafters(args, decoder, args.threads)
    kind = args.drafter or drafters.default()
    drafters.check_used(kind)
    drafters.check_inputs()
    ids = [encoded(decoder, text, i, args.max_tokens) for i, text in enumerate(prompts)]
    structure = open_structure(args, decoder)
    drafting = drafters.make(kind, layout=args.layout)
    stopping = Stopping(tokens=frozenset(decoder.ends), strings=tuple(args.stop), decode=decoder.text.decode)
    options = Options(
        max_tokens=args.max_tokens,
        shaping=shaping,
        stopping=stopping,
        layout=drafting.layout,
        structure=structure,
        prediction=open_prediction(args.prediction, decoder),
    )
    memory = drafters.inputs.memory(args.memory)
    with not_remembered(memory if args.compare else None):
        if args.compare:
            warm_up(decoder, ids, drafting, options)
        chunks, said = written(args, decoder, prompts, ids, drafting, options)
        shown = Decoded(tokens=[tokens for tokens, _ in chunks], statistics=[chunk.statistics for _, chunk in chunks])
        anew = partial(decode_anew, decoder, ids, drafting, options)
        rounds = compared(shown, anew) if args.compare else []
    if memory is not None:
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
        explanation = explained(
            args,
            kind,
            drafted.statistics,
            plain.statistics,
            speedup,
            measure_of(decoder.model.target, rows=len(ids)),
            nodes=args.nodes or SPECS[kind].options.get("nodes"),
            rows=len(ids),
            totals=totals,
        )
        lines = explanation.lines + beside(report, decoder, rounds[0][1], shown)
        report |= {**speedup.to_json(), "payoff": explanation.to_json()}
    output.write_figures(args, report)
    for name, value in lines if str(args.json) != "-" else ():
        print(f"{name:9} {value}", file=sys.stderr)
    output.show(*output.wrote(args), stderr=True)


def read_prompts(words: list[str]) -> list[str]:
    """The prompts; - is standard input. ValueError for bytes that are not UTF-8."""
    check_stdin(*words)
    return [prompt_of(word, f"prompt {number}") for number, word in enumerate(words, 1)]


def prompt_of(word: str, name: str) -> str:
    content = os.fsencode(word)  # bytes of other encodings reach us in surrogates
    if word == "-":
        name = "standard input"
        with naming(name), standard_input() as file:
            content = file.read()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: expected UTF-8, got byte {error.object[error.start]:#x} at {error.start}") from None
    return text.replace("\r\n", "\n")


def open_prediction(path: Path | None, decoder: Decoder) -> NDArray[np.int32] | None:
    """The ids of a file that texts are likely to copy."""
    if path is None:
        return None
    with naming(str(path)):
        text = prompt_of(os.fsdecode(path.read_bytes()), str(path))
    return decoder.text.encode_more(text)


def shaping_of(args: argparse.Namespace) -> Shaping:
    """Sampling and repetition penalty of the command line."""
    drawn = {"top_p": args.top_p, "top_k": args.sample_top_k, "seed": args.seed}
    given = {name: value for name, value in drawn.items() if value is not None}
    if args.temperature == 0:
        if given:
            option = {"top_k": "sample-top-k"}.get(next(iter(given)), next(iter(given))).replace("_", "-")
            raise Misuse(f"--{option} needs sampled text; give --temperature above 0")
        return Shaping(repetition_penalty=args.repetition_penalty)
    return Shaping(sampling=Sampling(temperature=args.temperature, **given), repetition_penalty=args.repetition_penalty)


def encoded(decoder: Decoder, text: str, number: int, most: int) -> NDArray[np.int32]:
    """The ids of a prompt. ValueError if it is empty or leaves no room for `most` more tokens."""
    name = f"prompt {number + 1}"
    try:
        ids = decoder.text.encode(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    decoder.check_length(name, len(ids), most)
    return ids


def written(
    args: argparse.Namespace,
    decoder: Decoder,
    prompts: list[str],
    ids: list[NDArray[np.int32]],
    drafting: NamedDrafter,
    options: Options,
) -> tuple[list[tuple[list[int], Chunk]], list[str]]:
    """Decodes the prompts and shows the texts. Returns tokens and last chunk of each prompt, and the shown texts."""
    texts: list[TextStream[int]] = [
        TextStream(decoder.text.decode, prompt=one.tolist(), stops=args.stop) for one in ids
    ]
    headings = [heading(i + 1, len(prompts), prompt) for i, prompt in enumerate(prompts)]
    tokens: list[list[int]] = [[] for _ in ids]
    last: dict[int, Chunk] = {}
    # Standard output may be taken by the JSON, or closed.
    out = io.StringIO() if str(args.json) == "-" or sys.stdout is None else sys.stdout
    writer = Typewriter(texts, headings, colour=wants_colour(out, args.no_color), out=out)
    with writer:
        for chunk in stream(decoder.model.target, ids, drafting.drafter, options):
            tokens[chunk.request] += chunk.tokens.tolist()
            last[chunk.request] = chunk
            writer.show(chunk)
    return [(tokens[i], last[i]) for i in range(len(ids))], writer.said
