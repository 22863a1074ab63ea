"""Effect of quantising a model's costs to 256 values per order: size, cost error, perplexity, block efficiency.

    python tools/bench/quantised.py [MODEL.ngram] [--text TOKENS.npy] [--dump DIR]

By default the demo's model on the demo's greedy dump and its text. Errors are of the cost of each token of the text, in
nats. "Unlikely" is the tenth of the tokens with the largest cost, whose errors hardly change perplexity but do change
searches.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from rescore.decode.replay.run import mean_over_tasks, replay_dump
from rescore.decode.replay.standard import standard_drafters
from rescore.decode.rescoring import DEFAULT_ALPHA
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
DRAFTERS = ("rescored", "parallel rescored", "tree 16", "tree 64")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, default=DEMO / "demo.ngram", metavar="MODEL")
    parser.add_argument(
        "--text", type=Path, metavar="TOKENS.npy", help="compare costs on these tokens (default: those of the dump)"
    )
    parser.add_argument(
        "--dump", type=Path, default=DEMO / "greedy", metavar="DIR", help="default: the demo's greedy dump"
    )
    args = parser.parse_args()
    exact = NGram.open(args.model)
    rounded = exact.quantised()
    dump = Dump.open(args.dump)
    tokens = np.load(args.text) if args.text else np.concatenate([block.tokens for block in dump.blocks()])
    costs = [model.score(tokens.astype(np.int32)).astype(np.float64) for model in (exact, rounded)]
    error = np.abs(costs[1] - costs[0])
    unlikely = costs[0] >= np.quantile(costs[0], 0.9)
    table = Table("", "exact", "quantised", "difference")
    table.add_row("bytes per n-gram", *(f"{model.info()['bytes_per_ngram']:.2f}" for model in (exact, rounded)), "")
    table.add_row(
        "perplexity",
        *(f"{np.exp(cost.mean()):.3f}" for cost in costs),
        f"{np.exp(costs[1].mean() - costs[0].mean()) - 1:+.3%}",
    )
    for name, chosen in (("all tokens", np.ones(len(tokens), bool)), ("unlikely tokens", unlikely)):
        table.add_row(
            f"cost of {name}: root-mean-square, largest error",
            "",
            "",
            f"{np.sqrt((error[chosen] ** 2).mean()):.4f}, {error[chosen].max():.4f} nats",
        )
    results = [
        replay_dump(dump, standard_drafters(dump, Rescorer(model, alpha=DEFAULT_ALPHA))) for model in (exact, rounded)
    ]
    efficiencies = [
        mean_over_tasks([task.to_json() for task in result.tasks], "block_efficiency") for result in results
    ]
    for drafter in DRAFTERS:
        means = [efficiency[drafter] for efficiency in efficiencies]
        table.add_row(f"block efficiency, {drafter}", *(f"{mean:.4f}" for mean in means), f"{means[1] - means[0]:+.4f}")
    Console().print(table)


if __name__ == "__main__":
    main()
