"""Drafters as the command line asks for them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore.decode.cli.actions.decoders import Decoder, hide_unseen_bars
from rescore.decode.cli.arguments import DEFAULT_ALPHA, Misuse
from rescore.decode.drafters.draft_model_drafter import DraftModelDrafter
from rescore.decode.drafters.drafter import Drafter
from rescore.decode.drafters.drawn_drafter import DrawnDrafter
from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.drafters.neural_drafter import NeuralDrafter
from rescore.decode.drafters.ngram_drafter import NGramDrafter
from rescore.decode.drafters.path_drafter import PathDrafter
from rescore.decode.drafters.tree_drafter import TreeDrafter
from rescore.decode.drafters.width import AutoWidth
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.models.open import OpenModel, open_model
from rescore.decode.rescoring.calibrated import CalibratedRescorer
from rescore.decode.rescoring.neural_rescorer import NeuralRescorer
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.tuning.settings import Settings
from rescore.lm.arpa import ArpaOptions
from rescore.lm.formats import load
from rescore.lm.ngram import NGram
from rescore.lm.tokenizer import TextTokenizer

DEFAULT_TOP_K = 16

# Which options each drafter looks at, and their defaults.
USES: dict[str, dict[str, Any]] = {
    "tree": {"lm": [], "alpha": None, "nodes": "auto", "top_k": DEFAULT_TOP_K},
    "rescored": {"lm": [], "alpha": None, "top_k": DEFAULT_TOP_K},
    "parallel": {"lm": [], "alpha": None, "paths": 16, "top_k": DEFAULT_TOP_K},
    "base": {"top_k": DEFAULT_TOP_K},
    "neural": {"neural": None, "alpha": None, "paths": 1, "top_k": DEFAULT_TOP_K},
    "drawn": {"lm": [], "alpha": None, "paths": 1, "top_k": DEFAULT_TOP_K},
    "draft": {"draft_model": None, "ahead": 4},
    "ngram": {"lm": [], "nodes": 16, "ahead": 8},
    "tuned": {"settings": None, "nodes": "auto", "top_k": None},
    "open": {"settings": None, "lm": [], "nodes": "auto", "top_k": None},
    "none": {},
}
OPTIONS = ("lm", "alpha", "nodes", "paths", "top_k", "neural", "draft_model", "ahead", "settings")
LATTICE = ("tree", "rescored", "parallel", "base", "neural", "drawn", "tuned", "open")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drafting:
    """A drafter by its name in reports, None for plain decoding, and the layout of its drafts."""

    name: str
    drafter: Drafter | None
    layout: TreeLayout | BatchLayout


class Drafters:
    """Makes drafters of one command line; every model is opened once."""

    def __init__(self, args: argparse.Namespace, decoder: Decoder, threads: int):
        self.args, self.decoder, self.threads = args, decoder, threads
        self.model = decoder.model
        self._models: dict[Path, OpenModel] = {}
        self._lms: list[NGram] | None = None

    def default(self) -> str:
        """The drafter for what there is."""
        if self.args.neural:
            return "neural"
        if self.args.draft_model:
            return "draft"
        if self.args.settings:
            return "open"
        if self.model.heads and self.model.target.trees:
            return "open" if len(self.args.lm) == 1 and not self.args.alpha else "tree"
        if self.model.heads:
            return "rescored"
        return "ngram" if self.args.lm else "none"

    def make(self, kind: str, *, layout: str | None = None, **changes: Any) -> Drafting:
        """The drafter of that kind; `changes` are options that differ from the command line's."""
        if kind in LATTICE and not self.model.heads:
            raise Misuse(
                f"--drafter {kind}: {self.args.model} has no heads; name them with --heads, or use draft, ngram or none"
            )
        options = {**{name: self._option(kind, name) for name in USES[kind]}, **changes}
        drafter = getattr(self, f"_{kind}")(**options) if kind != "none" else None
        return Drafting(name=kind, drafter=drafter, layout=self._layout(kind, options, layout))

    def check_used(self, kind: str) -> None:
        """Misuse for an option that the drafter does not look at."""
        for name in OPTIONS:
            if name not in USES[kind] and getattr(self.args, name):
                users = ", ".join(other for other in USES if name in USES[other])
                raise Misuse(f"--{name.replace('_', '-')}: not used by the drafter {kind}; it is for {users}")
        if kind == "open" and self.args.settings and self.args.lm:
            raise Misuse("--lm: the settings name the model of open trees")
        if self.args.alpha and not self.args.lm and kind != "neural":
            raise Misuse("--alpha is for language models: give --lm as well")

    def _option(self, kind: str, name: str) -> Any:
        given = getattr(self.args, name)
        return given if given else USES[kind][name]

    def _layout(self, kind: str, options: dict[str, Any], layout: str | None) -> TreeLayout | BatchLayout:
        trees = self.model.target.trees
        leaves = self._leaves(kind, options)
        if layout == "tree" and not trees and leaves != 1:
            raise Misuse("--layout tree: this model reads no trees; use rows")
        if layout == "tree" or (layout is None and trees):
            return TreeLayout()
        if leaves == "auto":
            raise Misuse("--nodes auto: is for trees in one row; give a number of nodes")
        return BatchLayout(leaves)

    def _leaves(self, kind: str, options: dict[str, Any]) -> Any:
        """The most that a draft of the kind has, or auto."""
        if kind == "neural" and options["paths"] > 1:  # any prefix that the beam held may end there
            assert self.model.heads is not None
            return options["paths"] * self.model.heads.slots
        return options.get("paths") or options.get("nodes") or 1

    def _slots(self, top_k: int) -> HeadsLattice:
        assert self.model.heads is not None
        return HeadsLattice(heads=self.model.heads, top_k=min(top_k, self.model.vocab_size))

    def _rescorer(self, alpha: list[float] | None) -> Rescorer:
        models = self.lms()
        if not models:
            return Rescorer(threads=self.threads)
        return Rescorer(
            models,
            alpha=[[weight * value for value in self._alpha(alpha)] for _, weight in self.args.lm],
            threads=self.threads,
        )

    def _alpha(self, alpha: list[float] | None) -> list[float]:
        alpha = alpha or [DEFAULT_ALPHA]
        slots = self.model.heads.slots if self.model.heads else 1
        if len(alpha) not in (1, slots):
            raise Misuse(f"--alpha: expected one weight, or one for each of the {slots} slots, got {len(alpha)}")
        return alpha

    def _tree(self, lm, alpha, nodes, top_k) -> TreeDrafter:
        return TreeDrafter(
            self._slots(top_k), self._rescorer(alpha), nodes=AutoWidth(self.model.target) if nodes == "auto" else nodes
        )

    def _rescored(self, lm, alpha, top_k) -> PathDrafter:
        return PathDrafter(self._slots(top_k), self._rescorer(alpha))

    def _parallel(self, lm, alpha, paths, top_k) -> PathDrafter:
        return PathDrafter(self._slots(top_k), self._rescorer(alpha), paths=paths)

    def _base(self, top_k) -> PathDrafter:
        return PathDrafter(self._slots(top_k))

    def _neural(self, neural, alpha, paths, top_k) -> NeuralDrafter:
        weights = self._alpha(alpha)
        small = self._small(neural, "--neural").target
        rescorer = NeuralRescorer(
            small, vocab_size=self.model.vocab_size, alpha=weights if len(weights) > 1 else weights[0], paths=paths
        )
        return NeuralDrafter(self._slots(top_k), rescorer)

    def _drawn(self, lm, alpha, paths, top_k) -> DrawnDrafter:
        if not self.args.temperature:
            raise Misuse("--drafter drawn: drafts are drawn where text is; give --temperature above 0")
        return DrawnDrafter(self._slots(top_k), self._rescorer(alpha), paths=paths)

    def _draft(self, draft_model, ahead) -> DraftModelDrafter:
        small = self._small(draft_model, "--draft-model").target
        return DraftModelDrafter(
            small, gamma=ahead, vocab_size=self.model.vocab_size, drawn=bool(self.args.temperature)
        )

    def _ngram(self, lm, nodes, ahead) -> NGramDrafter:
        models = self.lms()
        if len(models) != 1:
            raise Misuse(f"--drafter ngram: expected one --lm, got {len(models)}")
        if nodes == "auto":
            raise Misuse("--nodes auto: is for trees of heads; give a number of nodes")
        return NGramDrafter(models[0], slots=ahead, nodes=nodes, threads=self.threads)

    def _tuned(self, settings, nodes, top_k) -> TreeDrafter:
        if settings is None:
            raise Misuse("--drafter tuned: expected what rescore tune wrote, with --settings, got none")
        return self._calibrated(*self._of_settings("closed", settings), nodes, top_k)

    def _open(self, settings, lm, nodes, top_k) -> TreeDrafter:
        if settings is not None:
            return self._calibrated(*self._of_settings("open", settings), nodes, top_k)
        if len(lm) != 1:
            raise Misuse(
                f"--drafter open: expected one --lm, or what rescore tune wrote with --settings, got {len(lm)} models"
            )
        return self._calibrated(CalibratedRescorer(self.lms()[0], threads=self.threads), DEFAULT_TOP_K, nodes, top_k)

    def _of_settings(self, kind: str, path: Path) -> tuple[CalibratedRescorer, int]:
        """A rescorer of such trees, and the candidates that it was tuned for."""
        settings = Settings.load(path)
        assert self.model.heads is not None
        try:
            settings.check(
                vocab_size=self.model.vocab_size,
                slots=self.model.heads.slots,
                tokenizer_sha256=self.decoder.tokenizer.sha256,
            )
            rescorer = settings.calibrated(kind, threads=self.threads)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        rescorer.model.require_tokenizer(self.decoder.tokenizer.sha256, self.model.vocab_size)
        return rescorer, settings.top_k

    def _calibrated(
        self, rescorer: CalibratedRescorer, candidates: int, nodes: int | str, top_k: int | None
    ) -> TreeDrafter:
        return TreeDrafter(
            self._slots(top_k or candidates),
            rescorer,
            nodes=nodes if isinstance(nodes, int) else AutoWidth(self.model.target),
        )

    def lms(self) -> list[NGram]:
        """Those of --lm, of the model's vocabulary and tokenizer."""
        if self._lms is None:
            self._lms = [self._lm(path) for path, _ in self.args.lm]
        return self._lms

    def _lm(self, path: Path) -> NGram:
        model = load(path, arpa=ArpaOptions(vocab_size=self.model.vocab_size, eot=self.decoder.ends[0]))
        try:
            model.require_tokenizer(self.decoder.tokenizer.sha256, self.model.vocab_size)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return model

    def _small(self, path: Path | None, option: str) -> OpenModel:
        """A small model, of the same tokenizer where it comes with one."""
        if path is None:
            raise Misuse(f"{option}: expected a small model for this drafter, got none")
        if path not in self._models:
            hide_unseen_bars(path)
            opened = open_model(path, device=self.model.target.device)
            if opened.tokenizer and not _same_tokenizer(TextTokenizer.open(opened.tokenizer), self.decoder.tokenizer):
                raise ValueError(
                    f"{path}: expected a model of the same tokenizer as {self.args.model}, got one with other tokens"
                )
            self._models[path] = opened
        return self._models[path]


def _same_tokenizer(one: TextTokenizer, other: TextTokenizer) -> bool:
    return one.sha256 == other.sha256 or one.tokenizer.get_vocab(with_added_tokens=True) == other.tokenizer.get_vocab(
        with_added_tokens=True
    )
