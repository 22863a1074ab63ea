"""In-domain and general n-gram models: perplexity and block efficiency of every model on every domain.

    python tools/bench/domain_matrix.py DATA WORK [--max-ngrams 850k]

builds, with the demo's tokenizer, a 4-gram model of the train split of each text set in DATA, one of all sets, and one
of all sets at five times the size. Prints two Markdown tables: perplexity on the test splits, and block efficiency on
the demo's greedy dump, whose tasks are mostly of other domains (as table 7 of "Exploring and Improving Drafts in
Blockwise Parallel Decoding"). The last row is the demo's own model, built from answers to such prompts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from rescore.decode.cli.lm_arguments import AMOUNT

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
DOMAINS = ("fiction", "govweb", "techdocs", "wiki", "dialogue")
DRAFTERS = ("rescored", "tree 16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder with text_fiction, text_govweb, ..")
    parser.add_argument("work", type=Path, metavar="WORK", help="folder for the models, kept")
    parser.add_argument(
        "--max-ngrams", type=AMOUNT, default=850_000, metavar="N", help="size of each model (default: 850k)"
    )
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    missing = [
        path for name in DOMAINS for split in ("train", "test") if not (path := text(args.data, name, split)).exists()
    ]
    if missing:
        raise SystemExit(f"{missing[0]}: no such file; expected text_fiction, text_govweb, .. in DATA")
    every = [text(args.data, name, "train") for name in DOMAINS]
    models = {
        name: build(args.work / f"{name}.ngram", [text(args.data, name, "train")], args.max_ngrams) for name in DOMAINS
    }
    models["all five"] = build(args.work / "all.ngram", every, args.max_ngrams)
    models["all five, 5 x"] = build(args.work / "all5.ngram", every, 5 * args.max_ngrams)
    models["the demo's"] = DEMO / "demo.ngram"
    perplexities = {
        name: [perplexity(model, args.data, domain) for domain in DOMAINS] for name, model in models.items()
    }
    table(
        "perplexity of the test split",
        list(DOMAINS),
        {name: [f"{value:,.0f}" for value in row] for name, row in perplexities.items()},
    )
    for drafter in DRAFTERS:
        efficiencies = {name: run(model, drafter) for name, model in {"none": None, **models}.items()}
        tasks = list(efficiencies["none"])
        table(
            f"block efficiency, {drafter.replace('_', ' of ')}",
            tasks,
            {name: [f"{row[task]:.3f}" for task in tasks] for name, row in efficiencies.items()},
        )


def text(data: Path, domain: str, split: str) -> Path:
    return data / f"text_{domain}" / f"{split}.jsonl.gz"


def build(out: Path, inputs: list[Path], size: int) -> Path:
    if not out.exists():
        rescore("lm", "build", *inputs, "--tokenizer", DEMO / "tokenizer.json", "--max-ngrams", size, "-o", out)
    return out


def perplexity(model: Path, data: Path, domain: str) -> float:
    found = rescore(
        "lm", "score", model, text(data, domain, "test"), "--tokenizer", DEMO / "tokenizer.json", "--json", "-"
    )
    return json.loads(found)["overall"]["perplexity"]


def run(model: Path | None, drafter: str) -> dict[str, float]:
    """Block efficiency by task; of the heads alone without a model."""
    found = json.loads(rescore("run", DEMO / "greedy", *(["--lm", model] if model else []), "--json", "-"))
    return {own["task"]: own["block_efficiency"][drafter] for own in found["tasks"]}


def rescore(*words: object) -> str:
    result = subprocess.run(
        [sys.executable, "-c", "import sys; from rescore.decode.cli import main; sys.exit(main())", *map(str, words)],
        capture_output=True,
        text=True,
    )
    if result.returncode:
        raise SystemExit(f"rescore {' '.join(map(str, words[:3]))} ..: {result.stderr.strip()}")
    return result.stdout


def table(title: str, columns: list[str], rows: dict[str, list[str]]) -> None:
    print(f"\n| {title} | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, row in rows.items():
        print(f"| {name} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
