"""llama-cpp-python's decode loop as a contender: plain, with its prompt lookup, with our chains."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from rescore.decode.engines.llama_cpp.draft import DraftedLlama, LlamaDraft
from rescore.decode.lab.bench.decoding import System, Writer
from rescore.decode.loop.generate import Options
from rescore.decode.loop.request import Finish, Generation, Request, Statistics
from rescore.lm.model.ngram import NGram

LOOKED_UP = (2, 10)  # tokens: recommended for CPUs by its documentation, and its default
LLAMA_PLAIN, LLAMA_DRAFT = "llama-cpp-python plain", "llama-cpp-python Draft"
LLAMA_LOOKUPS = {f"llama-cpp-python lookup {tokens}": tokens for tokens in LOOKED_UP}
LLAMA_CPP = (LLAMA_PLAIN, *LLAMA_LOOKUPS, LLAMA_DRAFT)


def llama_contender(file: Path, name: str, lm: NGram | None, *, context: int, threads: int, drawn: bool) -> System:
    """Makes the contender of that name, one of `LLAMA_CPP`, for a GGUF file's model; it decodes one request at a time.

    context: tokens of the longest text. drawn: whether tokens are drawn.
    """
    how: dict[str, Any] = {"n_ctx": context, "n_threads": threads, "n_threads_batch": threads, "verbose": False}
    if name == LLAMA_DRAFT:
        llama: Llama = DraftedLlama(str(file), **how, draft_model=LlamaDraft(lm))
    elif name in LLAMA_LOOKUPS:
        lookup = LlamaPromptLookupDecoding(num_pred_tokens=LLAMA_LOOKUPS[name])
        llama = Llama(str(file), **how, draft_model=lookup, logits_all=True)  # without it, texts beyond n_batch fail
    else:
        llama = Llama(str(file), **how)
    return System(name=name, write=_writer(llama), alone=True, drawn=drawn)


def _writer(llama: Any) -> Writer:
    passes: list[tuple[int, float]] = []
    read = llama.eval

    def counted(tokens: Sequence[int]) -> None:
        began = time.perf_counter()
        read(tokens)
        passes.append((len(tokens), time.perf_counter() - began))

    llama.eval = counted
    return lambda requests, options: [_written(llama, one, options, passes) for one in requests]


def _written(llama: Any, request: Request, options: Options, passes: list[tuple[int, float]]) -> Generation:
    """Decodes one request. passes: receives tokens and seconds of every pass, the prompt's first."""
    sampling = options.shaping.sampling
    shape = {"temp": sampling.temperature, "top_k": 0, "top_p": 1.0, "min_p": 0.0} if sampling else {"temp": 0.0}
    tokens: list[int] = []
    llama.reset()
    passes.clear()
    for token in llama.generate(np.asarray(request.prompt).tolist(), repeat_penalty=1.0, **shape):
        tokens.append(token)
        if token in options.stopping.tokens or len(tokens) == options.max_tokens:
            break
    statistics = Statistics(prompt_us=1e6 * passes[0][1])
    statistics.drafted = [width - 1 for width, _ in passes[1:]]
    statistics.accepted = [0] * len(statistics.drafted)  # unknown per pass
    return Generation(tokens=np.array(tokens, np.int32), finish=Finish.LENGTH, statistics=statistics)
