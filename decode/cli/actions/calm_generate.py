"""Runs `rescore calm generate`."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from rescore.decode.calm.calibration import read_calibrated
from rescore.decode.calm.consistency import rouge_l_risk
from rescore.decode.calm.setting import ExitSetting
from rescore.decode.calm.texts import EarlyText, early_exit_texts
from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.calm_models import ExitModel, open_exit_model
from rescore.decode.cli.actions.generate import encoded, read_prompts
from rescore.decode.cli.arguments import Misuse, harmless
from rescore.decode.loop.generate import Options, generate

WARM_UP = 3  # tokens decoded before times are compared


def call(args: argparse.Namespace) -> None:
    if (args.calibration is None) == (args.threshold is None):
        raise Misuse("--calibration, --threshold: expected exactly one of them")
    if args.calibration and (args.confidence or args.layers or args.decay is not None):
        raise Misuse("--calibration sets confidence, layers and decay: leave out --confidence, --layers and --decay")
    prompts = read_prompts(args.prompts)
    calibrated = read_calibrated(args.calibration) if args.calibration else None
    model = open_exit_model(args)
    setting = calibrated or model.setting(args, args.threshold)
    target, options = setting.target(model.layered, model.heads), model.options(args.max_tokens)
    ids = [encoded(model.decoder, text, i, args.max_tokens) for i, text in enumerate(prompts)]
    if args.compare:
        early_exit_texts(target, ids, replace(options, max_tokens=min(WARM_UP, args.max_tokens)))
    began = time.perf_counter()
    texts = early_exit_texts(target, ids, options)
    report = _report(args, model, setting, prompts, texts, time.perf_counter() - began)
    if args.compare:
        _compare(report, model, ids, texts, options)
    output.write_figures(args, report)
    if str(args.json) != "-":
        _show(report)
    output.show(*output.wrote(args), stderr=True)


def _report(
    args: argparse.Namespace,
    model: ExitModel,
    setting: ExitSetting,
    prompts: list[str],
    texts: list[EarlyText],
    seconds: float,
) -> dict[str, Any]:
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
                "text": model.decoder.text.decode(text.tokens.tolist()),
                "tokens": text.tokens.tolist(),
                "layers": text.layers.tolist(),
                "finish": text.finish.value,
            }
            for prompt, text in zip(prompts, texts)
        ],
    }


def _compare(report: dict[str, Any], model: ExitModel, ids: list, texts: list[EarlyText], options: Options) -> None:
    """Adds the model's own texts."""
    began = time.perf_counter()
    plain = generate(model.layered.target, ids, None, options)
    report["plain_seconds"] = time.perf_counter() - began
    for row, text, own in zip(report["texts"], texts, plain):
        row["plain"] = model.decoder.text.decode(own.tokens.tolist())
        row["risk"] = rouge_l_risk(text.tokens, own.tokens)


def _show(report: dict[str, Any]) -> None:
    shown = harmless if sys.stdout.isatty() else str
    for row in report["texts"]:
        print(shown(row["text"]))
        if "plain" in row:
            print(f"\nthe model's own (risk {row['risk']:.3f}):\n{shown(row['plain'])}")
    lines = [
        ("guarantee", report["guarantee"]),
        ("layers", f"{report['layers']:.2f} of {report['depth']} per token, mean"),
        ("seconds", f"{report['seconds']:.2f}"),
    ]
    if "plain_seconds" in report:
        lines.append(("plain", f"{report['plain_seconds']:.2f} s"))
    for name, value in lines:
        print(f"{name:9} {value}", file=sys.stderr)
