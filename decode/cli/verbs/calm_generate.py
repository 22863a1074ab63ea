"""`rescore calm generate`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli.groups import MODEL
from rescore.decode.cli.options import Misuse, argument, flag, option
from rescore.decode.cli.output import Part, Result
from rescore.decode.cli.train_groups import ExitArgs, ExitModelArgs
from rescore.decode.cli.values import float_between, int_between, printable_text

if TYPE_CHECKING:
    from rescore.decode.cli.calm_models import ExitModel
    from rescore.decode.loop.generate import Options
    from rescore.decode.train.calm.early_exit import EarlyText, ExitSetting


WARM_UP = 3  # tokens decoded before times are compared


@dataclass(frozen=True, kw_only=True)
class CalmGenerateArgs(ExitArgs, ExitModelArgs):
    r"""Continue prompts LOSSILY: tokens exit the model early, so the text may differ
    from the model's own. The threshold comes from `rescore calm calibrate`, or from
    --threshold, for which no bound is known.

    examples:
      rescore calm generate smollm2 --chat --exits exits --calibration calm.json \
          --compare "Why is the sky blue?"
      rescore calm train smollm2 --chat --prompts prompts.jsonl -o exits
      rescore calm calibrate smollm2 --chat --prompts others.jsonl --exits exits \
          --confidence classifier --delta 0.2 --epsilon 0.1 -o calm.json
    """

    model: Path = argument("MODEL", MODEL, Path)
    prompts: Sequence[str] = argument("PROMPT", "text to continue; - is standard input", several=True)
    calibration: Path | None = option("FILE", "written by `rescore calm calibrate`", Path)
    threshold: float | None = option("C", "a threshold without calibration", float_between(0, 1))
    max_tokens: int = option("N", "greatest length of each text", int_between(1, 2**20), default=64)
    compare: bool = flag("also show the model's own text, and both times")

    def __post_init__(self) -> None:
        if (self.calibration is None) == (self.threshold is None):
            raise Misuse("--calibration, --threshold: expected exactly one of them")
        if self.calibration and (self.confidence or self.layers or self.decay is not None):
            raise Misuse(
                "--calibration sets confidence, layers and decay: leave out --confidence, --layers and --decay"
            )


def run(args: CalmGenerateArgs) -> Result:
    from rescore.decode.cli.calm_models import open_exit_model
    from rescore.decode.cli.lazy_model import read_prompts
    from rescore.decode.train.calm.calibration import read_calibrated
    from rescore.decode.train.calm.early_exit import early_exit_texts

    prompts = read_prompts(args.prompts)
    calibrated = read_calibrated(args.calibration) if args.calibration else None
    model = open_exit_model(args, args.exits)
    setting = calibrated or model.setting(args, args.threshold or 0.0, args.max_tokens)
    target, options = setting.target(model.layered, model.heads), model.options(args.max_tokens)
    ids = model.lazy.encoded(prompts, args.max_tokens)
    if args.compare:
        early_exit_texts(target, ids, replace(options, max_tokens=min(WARM_UP, args.max_tokens)))
    began = time.perf_counter()
    texts = early_exit_texts(target, ids, options)
    report = _report(args, model, setting, prompts, texts, time.perf_counter() - began)
    if args.compare:
        _compare(report, model, ids, texts, options)
    if str(args.json) != "-":
        show(report)
    return Result(report, facts(report), beside=True)


def _report(
    args: CalmGenerateArgs,
    model: ExitModel,
    setting: ExitSetting,
    prompts: list[str],
    texts: list[EarlyText],
    seconds: float,
) -> dict[str, Any]:
    import numpy as np

    return {
        "model": str(args.model),
        "guarantee": "LOSSY: "
        + (f"calibrated, {args.calibration}" if args.calibration else "uncalibrated, no bound on the difference"),
        "confidence": setting.confidence,
        "exits": list(setting.exits),
        "threshold": setting.threshold.value,
        "depth": model.layered.depth,
        "layers": float(np.concatenate([text.layers for text in texts]).mean()),
        "seconds": seconds,
        "texts": [
            {
                "prompt": prompt,
                "text": model.lazy.text.decode(text.tokens.tolist()),
                "tokens": text.tokens.tolist(),
                "layers": text.layers.tolist(),
                "finish": text.finish.value,
            }
            for prompt, text in zip(prompts, texts)
        ],
    }


def _compare(report: dict[str, Any], model: ExitModel, ids: list, texts: list[EarlyText], options: Options) -> None:
    """Adds the model's own texts."""
    from rescore.decode.loop.generate import generate
    from rescore.decode.train.calm.calibration import rouge_l_risk

    began = time.perf_counter()
    plain = generate(model.layered.target, ids, None, options)
    report["plain_seconds"] = time.perf_counter() - began
    for row, text, own in zip(report["texts"], texts, plain):
        row["plain"] = model.lazy.text.decode(own.tokens.tolist())
        row["risk"] = rouge_l_risk(text.tokens, own.tokens)


def show(report: dict[str, Any]) -> None:
    shown = printable_text if sys.stdout.isatty() else str
    for row in report["texts"]:
        print(shown(row["text"]))
        if "plain" in row:
            print(f"\nthe model's own (risk {row['risk']:.3f}):\n{shown(row['plain'])}")


def facts(report: dict[str, Any]) -> list[Part]:
    lines = [
        ("guarantee", report["guarantee"]),
        ("layers", f"{report['layers']:.2f} of {report['depth']} per token, mean"),
        ("seconds", f"{report['seconds']:.2f}"),
    ]
    if "plain_seconds" in report:
        lines.append(("plain", f"{report['plain_seconds']:.2f} s"))
    return [f"{name:9} {value}" for name, value in lines]
