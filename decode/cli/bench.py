"""`rescore bench`: how fast decoding is here."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, drafting_arguments, model_arguments

SHAPES = ("tiny", "1.5b", "7b")

DESCRIPTION = """\
Decode prompts plainly and with every drafter that what is given allows, in
turns, and print tokens per second and per pass. All greedy texts must be the
plain ones; where one is not, the exit status is 1. Drawn texts may differ where
passes of two widths round differently (docs/decoding.md).

columns  tokens/s    median of the rounds, and the least and the most
         x plain     the same as a ratio to plain decoding in the same round
         tokens/pass passes of the model, the prompt's included
         drafted     draft tokens verified by a pass
         drafting    share of the time that goes into drafts
         differ      texts that are not the plain ones; - for drafts that are
                     drawn, whose texts have the same law only

--replay DUMP needs no trained model: passes, heads and searches are timed on
random weights of --shape, and how many tokens a pass brings is replayed from
the dump. Where CUDA is, passes are timed as captured graphs as well.
"""

EXAMPLES = """\
examples:
  rescore bench decode --model data/demo/model.safetensors \\
      --lm data/demo/demo.ngram --prompts data/demo/sampled --limit 2
  rescore bench decode --model DIR --heads MEDUSA --draft-model SMALL \\
      --prompts prompts.jsonl --device cuda --dtype bfloat16 --json bench.json
  rescore bench decode --replay data/demo/sampled --lm data/demo/demo.ngram \\
      --shape 7b --device cuda
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    bench = verbs.add_parser("bench", help="how fast decoding is here", description="How fast decoding is here.")
    actions = bench.add_subparsers(dest="action", required=True, metavar="ACTION")
    parser = actions.add_parser("decode", parents=[common], help="tokens per second with every drafter", description=DESCRIPTION, epilog=EXAMPLES)
    model_arguments.add_model(parser, required=False)
    drafting_arguments.add_drafting(parser)
    parser.add_argument("--prompts", type=Path, metavar="FILE|DUMP", help="JSON lines with prompt (or text), or a dump, whose prompts are taken")
    parser.add_argument("--limit", type=arguments.whole(1, 2**40), default=4, metavar="N", help="prompts per task (default: 4)")
    parser.add_argument("--max-tokens", type=arguments.whole(2, 2**20), default=48, metavar="N", help="of each text (default: 48)")
    parser.add_argument("--temperature", type=arguments.real(0), default=0.0, metavar="T", help="0 is greedy (default: 0)")
    parser.add_argument("--batch", type=arguments.whole(1, 4096), action="append", metavar="B", help="texts at once; may be given several times (default: 1 and 8)")
    parser.add_argument("--repeats", type=arguments.whole(1, 1000), default=3, metavar="N", help="rounds (default: 3)")
    parser.add_argument("--replay", type=Path, metavar="DUMP", help="time random weights, replay how many tokens a pass brings")
    parser.add_argument("--shape", choices=SHAPES, help="of the random weights (default: 1.5b)")
    parser.add_argument("--length", type=arguments.whole(1, 2**20), default=512, metavar="N", help="with --replay: tokens in the cache (default: 512)")
    arguments.add_threads(parser)
    arguments.add_json(parser)
    parser.set_defaults(does="bench_decode")
