"""Real text to the demo's tokenizer, training tokens and prompts.

    python tools/train/prepare_demo.py DATA OUT

reads the five permissively licensed sets of DATA (fiction, govweb, techdocs, GSM8K, SciTLDR), trains a
byte-level BPE on their train splits and writes to OUT: `tokenizer.json`, `{train,valid}.{task}.npy` (uint16
token ids, documents separated by <|endoftext|>) and `prompts.{train,valid,test}.jsonl` (task, id, prompt ids,
reference ids; a reference that ended with its document carries the end-of-text token).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
from pathlib import Path

import numpy as np
from tokenizers import ByteLevelBPETokenizer, Tokenizer

END_OF_TEXT = "<|endoftext|>"
TASKS = {
    "fiction": "text_fiction",
    "govweb": "text_govweb",
    "techdocs": "text_techdocs",
    "gsm8k": "gsm8k",
    "scitldr": "scitldr",
}
SPLITS = {"scitldr": {"train": "train", "valid": "dev", "test": "test"}}
# The test splits' text is shipped in the dumps: leave out what asks for more than a permissive licence's mention.
NOT_SHIPPED = {("test", "go")}
PROMPT_TOKENS = 64
REFERENCE_TOKENS = 96


def documents(data: Path, task: str, split: str) -> list[tuple[str, str, str]]:
    """(id, prompt, continuation) of every document of a split; running text has an empty prompt.

    GSM8K has no valid split of its own: one training document in twenty, by the hash of its id, is held out as one.
    """
    wanted = split
    if task == "gsm8k" and split == "valid":
        split = "train"
    path = data / TASKS[task] / f"{SPLITS.get(task, {}).get(split, split)}.jsonl.gz"
    if not path.exists():
        raise SystemExit(f"{path}: no such file; expected DATA to hold the folders {', '.join(TASKS.values())}")
    out = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if task == "gsm8k":
                held_out = int(hashlib.sha256(row["id"].encode()).hexdigest(), 16) % 20 == 0
                if wanted != "test" and held_out != (wanted == "valid"):
                    continue
                out.append((row["id"], f"Question: {row['question']}\nAnswer:", f" {row['answer']}"))
            elif task == "scitldr":
                out.append((row["id"], f"Abstract: {row['source']}\nSummary:", f" {row['targets'][0].strip()}"))
            elif (split, row["source"]) not in NOT_SHIPPED:
                out.append((row["id"], "", row["text"]))
    return out


def train_tokenizer(data: Path, vocab_size: int) -> Tokenizer:
    """A byte-level BPE of the train splits; fiction is thinned to one book in two, so that no set drowns the rest."""
    texts = []
    for task in TASKS:
        rows = documents(data, task, "train")
        texts += [prompt + text for _, prompt, text in (rows[::2] if task == "fiction" else rows)]
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size=vocab_size, special_tokens=[END_OF_TEXT])
    return Tokenizer.from_str(bpe.to_str())


def token_stream(tokenizer: Tokenizer, rows: list[tuple[str, str, str]], end: int) -> np.ndarray:
    """All documents as one uint16 array, each preceded by end-of-text (its context) and the last one closed by it."""
    pieces = []
    for start in range(0, len(rows), 256):
        batch = rows[start : start + 256]
        for encoding in tokenizer.encode_batch_fast([prompt + text for _, prompt, text in batch]):
            pieces += [[end], encoding.ids]
    return np.concatenate([np.asarray(piece, np.uint16) for piece in pieces + [[end]]])


def prompts(tokenizer: Tokenizer, task: str, rows: list[tuple[str, str, str]], limit: int, end: int) -> list[dict]:
    """At most `limit` prompts with their references; running text is cut at random places, seeded by the task."""
    draw = random.Random(f"prompts of {task}")
    if any(prompt for _, prompt, _ in rows):
        chosen = draw.sample(rows, min(limit, len(rows)))
        return [
            {
                "task": task,
                "id": name,
                "prompt": [end, *tokenizer.encode(prompt).ids][-256:],
                "reference": [*tokenizer.encode(text).ids, end][:REFERENCE_TOKENS],
            }
            for name, prompt, text in chosen
        ]
    streams = [(name, tokenizer.encode(text).ids) for name, _, text in rows]
    weights = [max(0, len(ids) - PROMPT_TOKENS - REFERENCE_TOKENS) for _, ids in streams]
    if not any(weights):
        raise SystemExit(
            f"{task}: expected a document of more than {PROMPT_TOKENS + REFERENCE_TOKENS} tokens to cut prompts from, "
            "got none"
        )
    out = []
    for name, ids in draw.choices(streams, weights, k=limit):
        start = draw.randrange(len(ids) - PROMPT_TOKENS - REFERENCE_TOKENS)
        cut = start + PROMPT_TOKENS
        out.append(
            {
                "task": task,
                "id": f"{name}@{start}",
                "prompt": ids[start:cut],
                "reference": ids[cut : cut + REFERENCE_TOKENS],
            }
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--vocab-size", type=int, default=8192, help="tokens, end-of-text included (default: 8192)")
    args = parser.parse_args()
    if not 257 <= args.vocab_size <= 65536:
        parser.error(
            "--vocab-size: expected 257..65536 (bytes and end-of-text; ids are stored in 16 bits), "
            f"got {args.vocab_size}"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(args.data, args.vocab_size)
    tokenizer.save(str(args.out / "tokenizer.json"))
    end = tokenizer.token_to_id(END_OF_TEXT)
    for split, limit in (("train", 8000), ("valid", 60), ("test", 100)):
        with open(args.out / f"prompts.{split}.jsonl", "w", encoding="utf-8") as lines:
            for task in TASKS:
                rows = documents(args.data, task, split)
                for row in prompts(tokenizer, task, rows, limit, end):
                    lines.write(json.dumps(row) + "\n")
                if split != "test":
                    tokens = token_stream(tokenizer, rows, end)
                    np.save(args.out / f"{split}.{task}.npy", tokens)
                    print(f"{split} {task}: {len(rows):,} documents, {len(tokens):,} tokens", flush=True)


if __name__ == "__main__":
    main()
