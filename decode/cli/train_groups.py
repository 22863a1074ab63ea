"""Options that verbs of training and of early exits share, a class for each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rescore.decode.cli import values
from rescore.decode.cli.groups import MODEL, OpeningArgs, ThreadArgs
from rescore.decode.cli.options import Args, ReportedArgs, argument, flag, option
from rescore.decode.cli.values import AMOUNT, Written, float_between, int_between, several


def ascend(values: Sequence[float]) -> bool:
    return all(earlier < later for earlier, later in zip(values, values[1:]))


@dataclass(frozen=True, kw_only=True)
class ExitModelArgs(OpeningArgs, ThreadArgs, ReportedArgs):
    """A model that tokens may leave early."""

    model: Path = argument("MODEL", MODEL, Path)


@dataclass(frozen=True, kw_only=True)
class PromptArgs(Args):
    prompts: Path = option("FILE", "JSON lines, as for `rescore train heads`", Path, required=True)
    limit: int | None = option("N", "use the first N prompts of each task (default: all)", int_between(1, 2**31))
    skip: int = option("N", "of these, leave out the first N", int_between(0, 2**31), default=0, rare=True)
    max_tokens: int = option("N", "greatest length of a text", int_between(2, 1 << 16), default=64)
    rows: int = option("N", "texts decoded at once", int_between(1, 1 << 14), default=16, rare=True)


@dataclass(frozen=True, kw_only=True)
class LayerArgs(Args):
    layers: tuple[int, ...] | None = option(
        "L,L,..",
        "layers after which tokens may exit (default: those of --exits, else about five in the last third)",
        several(int_between(1, 1 << 12), "increasing layers such as 8,12", ascend),
    )


@dataclass(frozen=True, kw_only=True)
class ExitArgs(LayerArgs):
    """When tokens leave the model."""

    title = "exits"

    exits: Path | None = option("DIR", "folder of `rescore calm train` (default: states are used without a map)", Path)
    confidence: str | None = option(
        None,
        "confidence: softmax response, state saturation, or the classifier of --exits (default: softmax)",
        choices=("softmax", "saturation", "classifier"),
    )
    decay: float | None = option(
        "TAU", "let the threshold fall along the text at this rate (default: constant)", float_between(0), rare=True
    )


@dataclass(frozen=True, kw_only=True)
class TrainingArgs(OpeningArgs, ReportedArgs):
    """A model, and the texts that its heads are trained on."""

    title = "texts"

    model: Path = argument("MODEL", MODEL, Path)
    out: Path = option("DIR", "folder for all files, see above", Written(folder=True), short="-o", required=True)
    threads: int | None = option("N", "CPU threads (default: the processors that are idle now)", int_between(1, 1024))
    prompts: Path = option("FILE", "prompts, see above", Path, required=True)
    read: bool = flag("train on the prompts' references instead of the model's answers")
    tokens: int | None = option("N", "train on N tokens of answers, e.g. 1.5M (default: all prompts)", AMOUNT)
    max_tokens: int = option("N", "greatest length of an answer", int_between(2, 1 << 16), default=256, rare=True)
    temperature: tuple[float, ...] = option(
        "T[,T..]",
        "temperatures of the answers, used in turn; 0 is greedy (default: 0,0.7)",
        several(float_between(0, 100), "temperatures such as 0,0.7"),
        default=(0.0, 0.7),
    )
    rows: int = option("N", "answers generated at once", int_between(1, 1 << 14), default=64, rare=True)
    seed: int = option("N", "seed of texts and training", values.seed, default=1, rare=True)
