"""Compares vLLM's drafting methods that read the text with ours, by vLLM's metrics: tokens per second and acceptance.

    python tools/bench/vllm_methods.py MODEL --prompts spec_bench.jsonl.gz --chat --lm data/demo/demo.ngram \
        --batch 1 --batch 8 --batch 16 --limit 2

MODEL is a Hugging Face folder. Every method has its own vLLM in a separate process; they take turns at every batch size
in every round. `suffix` is measured if arctic-inference is installed, without its memory. Greedy texts are compared
with plain ones; they may differ where two logits are close, since vLLM's sums depend on the rest of the batch.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from markdown_tables import show_header, show_row

from rescore.decode.bench.results import machine
from rescore.decode.loop.prompts import PromptText, read_prompts
from rescore.decode.models.chat import ChatTemplate
from rescore.lm.model.tokenizer import TextTokenizer

METHODS = ("plain", "ngram", "suffix", "rescore")
READY = "ready"
COUNTERS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


def speculation(method: str, args: argparse.Namespace) -> dict[str, Any]:
    """vLLM's options for a method, as in its documentation, with the same number of tokens for all."""
    if method == "plain":
        return {}
    if method == "ngram":
        config = {"num_speculative_tokens": args.tokens, "prompt_lookup_max": 5, "prompt_lookup_min": 2}
        return {"speculative_config": {"method": "ngram", **config}}
    if method == "suffix":
        # From the running texts only, like the others: prompts are repeated, and it would find its earlier answers.
        return {"speculative_config": {"method": "suffix", "suffix_decoding_max_cached_requests": 0}}
    config = {"model": "rescore.decode.engines.vllm.Proposer", "num_speculative_tokens": args.tokens}
    options = {"lm": str(args.lm.resolve())} if args.lm else {}
    if args.cost is not None:
        options["cost"] = args.cost
    return {
        "speculative_config": {"method": "custom_class", **config},
        "additional_config": {"rescore": options},
    }


def serve(pipe: Connection, method: str, args: argparse.Namespace) -> None:
    """Runs in a process: opens vLLM, then answers prompts, batch and sampling options by texts, times, counts."""
    os.environ.update(
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_LOGGING_LEVEL="ERROR",
        OMP_NUM_THREADS=str(args.threads),
    )
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 -- silences vLLM's output
    try:
        answer(pipe, method, args)
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def answer(pipe: Connection, method: str, args: argparse.Namespace) -> None:
    import vllm

    from rescore.decode.engines.vllm.proposer import patch_expand_batch

    llm = vllm.LLM(
        str(args.model),
        skip_tokenizer_init=True,
        dtype=args.dtype,
        enforce_eager=True,
        max_model_len=args.context,
        max_num_seqs=max(args.batch),
        enable_prefix_caching=False,
        disable_log_stats=False,
        seed=0,
        **speculation(method, args),
    )
    patch_expand_batch()
    pipe.send(READY)
    while (asked := pipe.recv()) is not None:
        prompts, batch, sampling = asked
        options = vllm.SamplingParams(**sampling, detokenize=False)
        before, texts, began = counters(llm), [], time.perf_counter()
        for start in range(0, len(prompts), batch):
            requests = [{"prompt_token_ids": one} for one in prompts[start : start + batch]]
            texts += [list(one.outputs[0].token_ids) for one in llm.generate(requests, options, use_tqdm=False)]
        seconds = time.perf_counter() - began
        pipe.send((texts, seconds, {name: value - before[name] for name, value in counters(llm).items()}))


def received(pipe: Connection, method: str) -> Any:
    """The answer of a process; exits if vLLM failed."""
    found = pipe.recv()
    if isinstance(found, str) and found != READY:
        sys.exit(f"{method}: vLLM failed: {found}")
    return found


def counters(llm: Any) -> dict[str, float]:
    found = {one.name: one.value for one in llm.get_metrics() if hasattr(one, "value")}
    return {name: found.get(f"vllm:spec_decode_{name}", 0) for name in COUNTERS}


def prompts_of(args: argparse.Namespace) -> dict[str, list[list[int]]]:
    tokenizer = TextTokenizer.open(args.model / "tokenizer.json", args.end_of_text)
    text = PromptText(tokenizer, ChatTemplate(args.model) if args.chat else None)
    read = read_prompts(args.prompts, tokenizer.vocab_size, text, limit=args.limit)
    room = args.context - args.max_tokens
    return {task: [one.tokens.tolist() for one in rows if len(one.tokens) <= room] for task, rows in read.items()}


def measured(
    pipes: dict[str, Connection], tasks: dict[str, list[list[int]]], args: argparse.Namespace, temperature: float
) -> Iterator[dict[str, Any]]:
    """One row per batch size and method, with the prompts of all tasks interleaved."""
    prompts = [one for rows in zip(*tasks.values()) for one in rows]  # interleave the tasks
    sampling = {"temperature": temperature, "max_tokens": args.max_tokens}
    for method, pipe in pipes.items():  # warm up
        pipe.send((prompts[:1], 1, {**sampling, "max_tokens": 16}))
        received(pipe, method)
    for batch in args.batch:
        runs: dict[str, list[tuple[Any, ...]]] = {method: [] for method in pipes}
        for _ in range(args.repeats):
            for method, pipe in pipes.items():
                pipe.send((prompts, batch, sampling))
                runs[method].append(received(pipe, method))
        plain = runs["plain"]
        for method, found in runs.items():
            tokens = [sum(map(len, texts)) for texts, _, _ in found]
            rates = [count / seconds for count, (_, seconds, _) in zip(tokens, found)]
            base = [sum(map(len, texts)) / seconds for texts, seconds, _ in plain]
            counts = {name: sum(of[name] for _, _, of in found) for name in COUNTERS}
            yield {
                "batch": batch,
                "method": method,
                "temperature": temperature,
                "tokens_per_s": statistics.median(rates),
                "times_plain": [rate / other for rate, other in zip(rates, base)],
                "drafted": counts["num_draft_tokens"] / sum(tokens),
                "acceptance": counts["num_accepted_tokens"] / max(1, counts["num_draft_tokens"]),
                "accepted": counts["num_accepted_tokens"] / sum(tokens),
                "differ": None if temperature else sum(a != b for a, b in zip(found[0][0], plain[0][0])),
            }


def show(rows: Sequence[dict[str, Any]], title: str) -> None:
    print(title)
    show_header("method", ("batch", "tokens/s", "x plain", "drafted/token", "accepted", "texts differ"))
    for one in rows:
        times = one["times_plain"]
        spread = f"{statistics.median(times):.2f} ({min(times):.2f}-{max(times):.2f})"
        cells = (one["batch"], f"{one['tokens_per_s']:.1f}", spread, one["drafted"], f"{one['acceptance']:.0%}")
        show_row(one["method"], (*cells, "-" if one["differ"] is None else one["differ"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--lm", type=Path)
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--end-of-text")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--tokens", type=int, default=8, help="greatest length of a draft; suffix sets its own")
    parser.add_argument("--cost", type=float, help="cost per drafted token for our drafter, instead of measured times")
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--limit", type=int, default=2, help="prompts per task")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, action="append", help="0: greedy")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--context", type=int, default=2048)
    args = parser.parse_args()
    args.batch = args.batch or [1, 8, 16]
    methods = [one for one in args.methods if one != "suffix" or find_spec("arctic_inference")]
    if "plain" not in methods:
        parser.error("--methods: expected plain among them, to compare the others with")
    tasks = prompts_of(args)
    context, pipes, processes = get_context("spawn"), {}, []
    for method in methods:
        pipes[method], theirs = context.Pipe()
        processes.append(context.Process(target=serve, args=(theirs, method, args), daemon=True))
        processes[-1].start()
        theirs.close()
        received(pipes[method], method)
    print(f"{machine()['cpu']}, {args.threads} threads, {sum(map(len, tasks.values()))} prompts")
    for temperature in args.temperature or [0.0]:
        found = list(measured(pipes, tasks, args, temperature))
        show(found, f"temperature {temperature:g}, {args.max_tokens} tokens, {args.dtype}")
    for pipe, process in zip(pipes.values(), processes):
        pipe.send(None)
        process.join(60)


if __name__ == "__main__":
    main()
