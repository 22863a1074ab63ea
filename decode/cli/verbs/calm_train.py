"""`rescore calm train`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rescore.decode.cli.options import option
from rescore.decode.cli.output import Column, Part, Result, TextTable
from rescore.decode.cli.train_groups import ExitModelArgs, LayerArgs, PromptArgs
from rescore.decode.cli.values import AMOUNT, Written

if TYPE_CHECKING:
    from rescore.decode.train.calm.exit_training import ExitScore, ExitStates
    from rescore.decode.train.own_texts import TextStates


SHARES = (6, 3, 1)  # of texts: to fit maps, to fit classifiers, held out


@dataclass(frozen=True, kw_only=True)
class CalmTrainArgs(PromptArgs, LayerArgs, ExitModelArgs):
    r"""Train exits for a frozen causal language model from Hugging Face. For each layer
    of --layers: a linear map of its states to the last layer's, and a classifier
    that predicts whether the early token is the model's own. The training texts are
    the model's answers to the prompts. Each fit takes seconds
    (docs/use/training-heads.md).

    columns  layers     layers run before the exit
             plain      share of held-out tokens that equal the model's own, from
                        the layer's state without the map
             agreement  the same with the map
             accuracy   of the classifier
             area       area under the classifier's ROC curve

    examples:
      rescore calm train smollm2 --chat --prompts prompts.jsonl -o exits
      rescore calm calibrate smollm2 --chat --prompts others.jsonl --exits exits \
          --confidence classifier --delta 0.2 --epsilon 0.1 -o calm.json
      rescore calm generate smollm2 --chat --exits exits --calibration calm.json \
          --compare "Why is the sky blue?"
    """

    tokens: int | None = option("N", "train on N tokens of answers (default: all prompts)", AMOUNT)
    out: Path = option("DIR", "folder for the exits", Written(folder=True), short="-o", required=True)


def run(args: CalmTrainArgs) -> Result:
    import numpy as np

    from rescore.decode.cli.calm_models import chosen_prompts, open_exit_model
    from rescore.decode.train.calm.early_exit import usual_exits
    from rescore.decode.train.calm.exit_training import exit_states, fit_exits, score_exits

    model = open_exit_model(args)
    if model.lazy.facts.kind != "causal-lm":
        raise ValueError(f"{args.model}: expected a causal language model, got {model.lazy.facts.kind}")
    exits = args.layers or usual_exits(model.layered.depth)
    texts = _texts(args, model.lazy.ends, chosen_prompts(args, model.lazy), model.layered.target)
    pairs = [(text.prompt.tokens.astype(np.int64), text.tokens) for text in texts]
    parts = _parts(list(exit_states(model.layered, exits, pairs)))
    heads = fit_exits(model.layered, exits, parts[0], parts[1])
    scores = score_exits(model.layered, heads, parts[2])
    sizes = dict(zip(("translating", "classifying", "held_out"), (len(part.tokens) for part in parts)))
    figures = {"model": str(args.model), "tokens": sizes, "scores": [asdict(score) for score in scores]}
    heads.save(args.out, figures)
    return Result(figures, tables(scores, sizes))


def _texts(args: CalmTrainArgs, ends: tuple[int, ...], prompts: list, target) -> list[TextStates]:
    """The model's own greedy answers, in the order of their prompts."""
    from rescore.decode.cli import screen
    from rescore.decode.train.own_texts import TextOptions, own_texts

    options = TextOptions(
        temperatures=(0.0,), max_tokens=args.max_tokens, ends=ends, top_k=1, rows=args.rows, tokens=args.tokens
    )
    texts = []
    with screen.progress_bar() as bar:
        row = bar.add_task("texts", total=args.tokens)
        for text in own_texts(target, prompts, options):
            texts.append(text)
            bar.advance(row, len(text.tokens))
    return sorted(texts, key=lambda text: text.prompt.number)


def _parts(states: list[ExitStates]) -> list[ExitStates]:
    """The texts of each share, joined. ValueError if there are too few."""
    from rescore.decode.train.calm.exit_training import ExitStates

    if len(states) < sum(SHARES):
        raise ValueError(f"--prompts: expected at least {sum(SHARES)} texts to train and test on, got {len(states)}")
    turn = [part for part, share in enumerate(SHARES) for _ in range(share)]
    return [
        ExitStates.joined(one for i, one in enumerate(states) if turn[i % len(turn)] == part)
        for part in range(len(SHARES))
    ]


def tables(scores: list[ExitScore], sizes: dict[str, int]) -> list[Part]:
    rows = [asdict(score) for score in scores]
    columns = [Column(name, [f"{row[name]:.3f}" for row in rows]) for name in rows[0] if name != "layers"]
    parts = ", ".join(f"{name.replace('_', ' ')} {n:,} tokens" for name, n in sizes.items())
    return [parts, TextTable("layers", [str(row["layers"]) for row in rows], columns)]
