"""`rescore calm calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore.decode.cli import output
from rescore.decode.cli.options import Misuse, flag, option
from rescore.decode.cli.output import Column, Part, Result, TextTable
from rescore.decode.cli.train_groups import ExitArgs, ExitModelArgs, PromptArgs, ascend
from rescore.decode.cli.values import Written, float_between, several

THRESHOLDS = (0.99, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)


@dataclass(frozen=True, kw_only=True)
class CalmCalibrateArgs(PromptArgs, ExitArgs, ExitModelArgs):
    r"""Find the smallest safe threshold: with probability 1 - EPSILON or more, the mean
    dissimilarity between the LOSSY texts and the model's own is at most DELTA, for
    prompts from the same distribution as these. Thresholds are tested from the
    largest down, and the first that fails ends the tests (Learn then Test).

    columns  threshold  confidence at which a token exits
             risk       mean dissimilarity on these prompts
             p-value    of the hypothesis that the risk exceeds DELTA
             layers     mean number of layers run per token
             valid      whether the bound holds

    examples:
      rescore calm calibrate smollm2 --chat --prompts others.jsonl --exits exits \
          --confidence classifier --delta 0.2 --epsilon 0.1 -o calm.json
      rescore calm train smollm2 --chat --prompts prompts.jsonl -o exits
      rescore calm generate smollm2 --chat --exits exits --calibration calm.json \
          --compare "Why is the sky blue?"
    """

    risk: str = option(
        None,
        "dissimilarity of texts: 1 - ROUGE-L, or the share of tokens that differ",
        choices=("rouge-l", "tokens"),
        default="rouge-l",
        rare=True,
    )
    delta: float = option("P", "largest acceptable mean risk", float_between(0, 1, above=True), 0.1)
    epsilon: float = option("P", "probability that it is exceeded", float_between(0, 1, above=True), 0.05)
    thresholds: tuple[float, ...] = option(
        "C,C,..",
        f"thresholds to test, decreasing, within 0..1 (default: {','.join(map(str, THRESHOLDS))})",
        several(float_between(0, 1), "decreasing thresholds such as 0.9,0.5", lambda values: ascend(values[::-1])),
        default=THRESHOLDS,
        rare=True,
    )
    every: bool = flag("also measure the thresholds after the first that fails", rare=True)
    out: Path = option("FILE", "calibration file to write", Written(), short="-o", required=True)

    def __post_init__(self) -> None:
        for name in ("delta", "epsilon"):
            if getattr(self, name) == 1:
                raise Misuse(f"--{name}: expected a number below 1, got 1")


def run(args: CalmCalibrateArgs) -> Result:
    from rescore.decode.cli import screen
    from rescore.decode.cli.calm_models import chosen_prompts, open_exit_model
    from rescore.decode.train.calm.calibration import Promise, ThresholdSearch, calibrated_file

    model = open_exit_model(args, args.exits)
    prompts = [prompt.tokens for prompt in chosen_prompts(args, model.lazy)]
    promise = Promise(risk=args.risk, delta=args.delta, epsilon=args.epsilon)
    with screen.progress_bar() as bar:
        row = bar.add_task("texts", total=len(prompts) * (1 + len(args.thresholds)))
        search = ThresholdSearch(
            model.layered,
            model.setting(args, args.thresholds[0], args.max_tokens),
            model.heads,
            prompts,
            model.options(args.max_tokens),
            rows=args.rows,
            advance=lambda texts: bar.advance(row, texts),
        )
        tested = search.run(args.thresholds, promise, every=args.every)
    about = {"model": str(args.model), "trained": args.exits and str(args.exits), "max_tokens": args.max_tokens}
    found = calibrated_file(search, tested, promise, about)
    output.write_json(args.out, found)
    return Result(found, tables(found))


def tables(found: dict[str, Any]) -> list[Part]:
    best, tested = found["threshold"], found["tested"]
    title = f"LOSSY: P(mean {found['risk']} risk > {found['delta']}) <= {found['epsilon']} at " + (
        f"threshold {best}" if best is not None else "no threshold; use the full model"
    )
    columns = [
        Column("risk", [f"{one['risk']:.4f}" for one in tested]),
        Column("p-value", ["" if one["p_value"] is None else f"{one['p_value']:.2g}" for one in tested]),
        Column("layers", [f"{one['layers']:.2f}" for one in tested]),
        Column("valid", [{True: "yes", False: "no", None: ""}[one["valid"]] for one in tested]),
    ]
    rows = TextTable("threshold", [f"{one['threshold']:g}" for one in tested], columns)
    return [title, rows, f"{found['texts']} texts, {found['depth']} layers"]
