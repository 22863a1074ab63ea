"""`rescore train bita`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rescore.decode.cli.options import option
from rescore.decode.cli.output import Result
from rescore.decode.cli.train_groups import TrainingArgs
from rescore.decode.cli.values import float_between, int_between

BITA = "bita"


@dataclass(frozen=True, kw_only=True)
class TrainBitaArgs(TrainingArgs):
    r"""Train mask tokens and prompt tokens for a frozen causal language model from
    Hugging Face (BiTA, Lin et al. 2024; docs/use/training-heads.md). Mask tokens
    follow every drafted token, so that one pass verifies a draft and makes the next
    one. Resumable: after an interruption, the same command continues.

    stages   texts   the model's answers, to DIR/states; those of `rescore train
                     heads -o DIR` are reused
             bita    mask i learns to predict the token i + 1 positions ahead, to
                     DIR/bita
    prompts  as for `rescore train heads`
    files    DIR/bita/tokens       the tokens, for --heads and Drafting: the best on
                                   the held-out texts, one in 41
             DIR/bita/curve.jsonl  loss and recall of every mask during training

    examples:
      rescore train bita smollm2 --chat --prompts prompts.jsonl --temperature 0 \
          --tokens 250k -o trained
      rescore generate --model smollm2 --chat --heads trained/bita/tokens \
          'Why is ..?'
    """

    masks: int = option("M", "mask tokens after each token", int_between(1, 63), default=3)
    prompt_tokens: int = option(
        "P", "learned keys and values in every layer, visible only to masks", int_between(0, 4096), default=16
    )
    batch: int = option("N", "texts per step", int_between(1, 1 << 14), default=4, rare=True)
    groups: int = option("G", "groups of masks per text in a step", int_between(1, 1 << 14), default=64, rare=True)
    rounds: float = option("N", "epochs", float_between(0, 1e4, above=True), default=2.0)
    rate: float = option("R", "learning rate", float_between(0, 10, above=True), default=0.002, rare=True)
    every: int = option("N", "steps between validations", int_between(1, 1 << 20), default=100, rare=True)


def run(args: TrainBitaArgs) -> Result:
    from rescore.decode.cli.training_texts import open_texts, recalls_table, run_training
    from rescore.decode.models.bita import BitaTokens
    from rescore.decode.train.bita_training import TOKENS, BitaOptions, BitaTraining, taught_texts

    texts = open_texts(args)
    texts.write()
    tokens = BitaTokens.new(texts.target, masks=args.masks, prompts=args.prompt_tokens, seed=args.seed)
    taught = taught_texts(texts.store.shards)
    options = BitaOptions(
        texts=args.batch, groups=args.groups, rounds=args.rounds, rate=args.rate, every=args.every, seed=args.seed
    )
    about = texts.about()
    training = BitaTraining(texts.target, tokens, taught, options, args.out / BITA, about)
    best = run_training(training, "bita")
    figures: dict[str, Any] = {
        "bita": str(training.folder / TOKENS),
        "parameters": sum(one.numel() for one in tokens.parameters()),
        **about,
        "texts": {"train": len(training.train), "held_out": len(training.held)},
        "best": best,
    }
    title = (
        f"{figures['bita']}: {figures['parameters']:,} weights, {figures['tokens']:,} tokens of "
        f"{figures['texts']['train']:,} texts; step {figures['best']['step']}"
    )
    return Result(figures, [title, recalls_table("mask", best)])
