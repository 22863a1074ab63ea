"""What drafters of a command line are made of: heads, language models, small models, settings. Each is opened once."""

from __future__ import annotations

import argparse
from pathlib import Path

from rescore.decode.cli.actions.decoders import Decoder, hide_unseen_bars
from rescore.decode.cli.arguments import DEFAULT_ALPHA, Misuse
from rescore.decode.drafters.auto_width import AutoWidth
from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import OpenModel, open_model
from rescore.decode.models.target import Target
from rescore.decode.rescoring.calibrated import CalibratedRescorer
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.tuning.settings import Settings
from rescore.lm.arpa import ArpaOptions
from rescore.lm.formats import load
from rescore.lm.ngram import NGram
from rescore.lm.tokenizer import TextTokenizer


class DrafterInputs:
    """Of one command line and the model that it decodes with."""

    def __init__(self, args: argparse.Namespace, decoder: Decoder, threads: int):
        self.args, self.decoder, self.threads = args, decoder, threads
        self._small: dict[Path, OpenModel] = {}
        self._lms: list[NGram] | None = None

    @property
    def model(self) -> OpenModel:
        return self.decoder.model

    def check(self) -> None:
        """ValueError or OSError for what is not there or does not go with the model, which is not loaded for it."""
        self.lms()
        if self.args.settings:
            self._settings(self.args.settings)
        for path in filter(None, (self.args.neural, self.args.draft_model)):
            self._check_small(path)

    @property
    def samples(self) -> bool:
        """Whether text is drawn."""
        return bool(self.args.temperature)

    def lattice(self, top_k: int) -> HeadsLattice:
        """That of the model's heads, which it has."""
        assert self.model.heads is not None
        return HeadsLattice(heads=self.model.heads, top_k=min(top_k, self.model.vocab_size))

    def width(self, nodes: int | str) -> int | AutoWidth:
        """The nodes of a tree, a number or "auto"."""
        return nodes if isinstance(nodes, int) else AutoWidth(self.model.target)

    def alpha(self, alpha: list[float] | None) -> list[float]:
        """The weight of language models, one or one for each slot."""
        alpha = alpha or [DEFAULT_ALPHA]
        slots = self.model.heads.slots if self.model.heads else 1
        if len(alpha) not in (1, slots):
            raise Misuse(f"--alpha: expected one weight, or one for each of the {slots} slots, got {len(alpha)}")
        return alpha

    def rescorer(self, alpha: list[float] | None) -> Rescorer:
        """All models of --lm with their weights; the heads alone without any."""
        models = self.lms()
        if not models:
            return Rescorer(threads=self.threads)
        weights = [[weight * value for value in self.alpha(alpha)] for _, weight in self.args.lm]
        return Rescorer(models, alpha=weights, threads=self.threads)

    def calibrated(self, kind: str, path: Path) -> tuple[CalibratedRescorer, int]:
        """The rescorer of closed or open trees, or of the blend, in a settings file, and the candidates that it was
        tuned for.
        """
        settings = self._settings(path)
        sha256, slots = self.decoder.tokenizer.sha256, self.model.heads.slots if self.model.heads else 0
        try:
            settings.check(vocab_size=self.model.vocab_size, slots=slots, tokenizer_sha256=sha256)
            rescorer = settings.calibrated(kind, threads=self.threads)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        rescorer.model.require_tokenizer(sha256, self.model.vocab_size)
        return rescorer, settings.top_k

    def lms(self) -> list[NGram]:
        """Those of --lm, of the model's vocabulary and tokenizer."""
        if self._lms is None:
            self._lms = [self._lm(path) for path, _ in self.args.lm]
        return self._lms

    def small(self, path: Path | None, option: str) -> Target:
        """The small model of an option, of the same tokenizer where it comes with one."""
        if path is None:
            raise Misuse(f"{option}: expected a small model for this drafter, got none")
        if path not in self._small:
            self._check_small(path)
            self._small[path] = open_model(path, device=self.model.target.device)
        return self._small[path].target

    def _check_small(self, path: Path) -> None:
        hide_unseen_bars(path)
        facts = model_facts(path)
        if facts.tokenizer and not _same(TextTokenizer.open(facts.tokenizer), self.decoder.tokenizer):
            raise ValueError(
                f"{path}: expected a model of the same tokenizer as {self.args.model}, got one with other tokens"
            )

    def _settings(self, path: Path) -> Settings:
        settings = Settings.load(path)
        try:
            settings.check(
                vocab_size=self.decoder.facts.vocab_size,
                slots=settings.slots,
                tokenizer_sha256=self.decoder.tokenizer.sha256,
            )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return settings

    def _lm(self, path: Path) -> NGram:
        vocab_size = self.decoder.facts.vocab_size
        model = load(path, arpa=ArpaOptions(vocab_size=vocab_size, eot=self.decoder.ends[0]))
        try:
            model.require_tokenizer(self.decoder.tokenizer.sha256, vocab_size)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return model


def _same(one: TextTokenizer, other: TextTokenizer) -> bool:
    return one.sha256 == other.sha256 or one.tokenizer.get_vocab(with_added_tokens=True) == other.tokenizer.get_vocab(
        with_added_tokens=True
    )
