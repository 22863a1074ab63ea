"""Times long prompts, plain `generate` and with `Drafting()`, and measures what they take of memory.

    python tools/bench/prompts.py
    python tools/bench/prompts.py smollm2 --tokens 6000 --rows 1
    python tools/bench/prompts.py --tokens 12000 --rows 1 --new 1000
    python tools/bench/prompts.py --text TEXT --tokens 4096 12000 32000 131072

Of a folder or name, or of a random Llama of four layers in the shapes of SmolLM2-135M whose output layer makes it quote
its prompt, in which no token occurs twice. Each way runs in a process of its own, in turns: seconds to the first token
and for all, and the most memory beyond what was taken before the call. A batch is ragged: its texts have 4/4, 3/4, 2/4
and 1/4 of the tokens. Medians over the rounds, of equal texts.

With a text, what a prompt of it costs beside its pass: milliseconds and bytes of the counts of what followed what, the
fastest of the rounds, and of what a structure may copy from it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from markdown_tables import show_header, show_row
from tokenizers import Tokenizer

from rescore.decode.lab.bench.machine import machine

WAYS = ("plain", "drafts")
SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 1 << 18,
}
# Otherwise memory that was freed would stay with the process, and hide what the next call takes.
ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


class Worker:
    """A process that generates in one way when asked."""

    def __init__(self, way: str):
        words = [sys.executable, *sys.argv, "--worker", way]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **ALLOCATION}
        )

    def run(self, tokens: int, rows: int) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        print(tokens, rows, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


def serve(way: str, name: str | None, dtype: str | None, new: int) -> None:
    """Answers requests: tokens and rows on a line."""
    import torch
    import transformers

    from rescore import Drafting
    from rescore.decode.models.open import open_model

    torch.manual_seed(0)
    if name is None:
        model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))
    else:
        model = open_model(name).target.model
    model.to(dtype and getattr(torch, dtype)).eval().generation_config.eos_token_id = None
    words = 1 + torch.randperm(model.config.vocab_size - 1)
    if name is None:
        with torch.no_grad():
            embedding = model.get_input_embeddings().weight.normal_()
            model.get_output_embeddings().weight[words] = embedding[words.roll(1)]
    more = {"custom_generate": Drafting()} if way == "drafts" else {}

    def call(tokens: int, rows: int, new: int) -> tuple[float, int, list[list[int]]]:
        lengths = torch.tensor([tokens * (4 - row) // 4 for row in range(rows)])
        mask = (torch.arange(tokens) >= tokens - lengths[:, None]).long()
        ids = torch.cat((words[: tokens - 1], words[:1])).expand(rows, -1) * mask
        before = _memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is
        began = time.perf_counter()
        found = model.generate(ids, attention_mask=mask, max_new_tokens=new, do_sample=False, pad_token_id=0, **more)
        return time.perf_counter() - began, _memory("VmHWM") - before, found[:, tokens:].tolist()

    call(64, 1, 8)
    for line in sys.stdin:
        tokens, rows = map(int, line.split())
        every, memory, texts = call(tokens, rows, new)
        first = call(tokens, rows, 1)[0] if new > 1 else every
        print(json.dumps({"first": first, "every": every, "memory": memory, "texts": texts}), flush=True)


def text_costs(path: Path, tokenizer: str, tokens: list[int], rounds: int) -> None:
    from rescore.decode.draft.calibration import DEFAULT
    from rescore.decode.draft.shared_counts import read_copies
    from rescore.decode.draft.structure import Grammar

    tokenizer = Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json"))
    state = Grammar.json_schema({"type": "object"}, tokenizer).start(tokenizer.get_vocab_size(), [0])
    ids = np.array(tokenizer.encode(path.read_text(), add_special_tokens=False).ids, np.int32)
    show_header("tokens", ["counts, ms", "us a token", "bytes a token", "copies, ms"])
    for n in tokens:
        if n > len(ids):
            raise SystemExit(f"{path}: expected a text of {n:,} tokens, got {len(ids):,}")
        seconds = []
        for _ in range(rounds):
            text, began = DEFAULT.counts(), time.perf_counter()
            text.extend(ids[:n], prompt=True)
            counted, size = time.perf_counter(), text.bytes
            read_copies(text, state, ids[:n])
            seconds.append((counted - began, time.perf_counter() - counted))
        counting, copying = map(min, zip(*seconds))
        show_row(f"{n:,}", [1e3 * counting, 1e6 * counting / n, round(size / n), 1e3 * copying])


def _memory(field: str) -> int:
    """Bytes."""
    return int(Path("/proc/self/status").read_text().split(field + ":")[1].split()[0]) << 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a folder or name; default: the random Llama")
    parser.add_argument("--dtype", help="of its weights; default: its own")
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 12000, 32000], help="of the prompts")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--new", type=int, default=2, help="tokens to generate")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--text", type=Path, metavar="FILE", help="what a prompt of this text costs beside its pass")
    parser.add_argument("--tokenizer", default="data/demo", metavar="DIR", help="of the text (default: data/demo)")
    parser.add_argument("--worker", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        import torch

        torch.set_num_threads(args.threads)
        return serve(args.worker, args.model, args.dtype, args.new)
    print(machine()["cpu"])
    if args.text:
        return text_costs(args.text, args.tokenizer, args.tokens, args.rounds)
    show_header(
        "rows, tokens",
        [
            f"{what}{more}"
            for what in ("first token, s", f"{args.new} tokens, s", "MB")
            for more in ("", ", drafts", ", times plain")
        ],
    )
    workers = {way: Worker(way) for way in WAYS}
    for rows in args.rows:
        for tokens in args.tokens:
            rounds = [{way: worker.run(tokens, rows) for way, worker in workers.items()} for _ in range(args.rounds)]
            if any(one["plain"]["texts"] != one["drafts"]["texts"] for one in rounds):
                raise SystemExit(f"{rows} rows of {tokens} tokens: expected equal texts, got others")
            show_row(f"{rows}, {tokens:,}", list(cells(rounds)))


def cells(rounds: list[dict[str, dict[str, Any]]]) -> Iterator[float]:
    for name, unit in (("first", 1.0), ("every", 1.0), ("memory", 1e6)):
        plain, drafts = (statistics.median(one[way][name] for one in rounds) / unit for way in WAYS)
        yield from (plain, drafts, drafts / plain)


if __name__ == "__main__":
    main()
