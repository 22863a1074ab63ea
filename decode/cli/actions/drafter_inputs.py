"""Inputs of drafters: heads, n-gram models, small models, settings. Each is opened once."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from rescore.decode.cli.actions.decoders import Decoder, hide_unseen_bars
from rescore.decode.cli.arguments import Misuse
from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import OpenModel, open_model
from rescore.decode.models.target import Target
from rescore.lm.arpa import ArpaOptions
from rescore.lm.formats import load
from rescore.lm.ngram import NGram
from rescore.lm.tokenizer import TextTokenizer


class DrafterInputs:
    """The inputs of one command line and its model."""

    def __init__(self, args: argparse.Namespace, decoder: Decoder, threads: int):
        self.args, self.decoder, self.threads = args, decoder, threads
        self._small: dict[Path, OpenModel] = {}
        self._lms: list[NGram] | None = None
        self._memory: TextMemory | None = None

    @property
    def model(self) -> OpenModel:
        return self.decoder.model

    def check(self) -> None:
        """ValueError or OSError if an input is missing or does not match the model; does not load the model."""
        self.lms()
        if self.args.settings:
            self._settings(self.args.settings)
        for path in filter(None, (self.args.neural, self.args.draft_model)):
            self._check_small(path)
        self.memory()

    @property
    def samples(self) -> bool:
        """Whether text is sampled."""
        return bool(self.args.temperature)

    @property
    def target(self) -> Target:
        return self.model.target

    def has_heads(self) -> bool:
        return self.model.heads is not None

    def lattice(self, top_k: int) -> HeadsLattice:
        """The lattice of the model's heads. The model must have some."""
        assert self.model.heads is not None
        return HeadsLattice(heads=self.model.heads, top_k=min(top_k, self.model.vocab_size))

    def memory(self) -> TextMemory | None:
        """The memory of --memory, empty if the file does not exist."""
        path = self.args.memory
        if path and self._memory is None:
            opened = partial(TextMemory.open, path) if path.exists() else TextMemory
            self._memory = opened(vocab_size=self.decoder.facts.vocab_size, end_of_text=self.decoder.ends[0])
        return self._memory

    def frozen_memory(self) -> None:
        """Opens --memory read-only: later rounds decode the same prompts and must not find the earlier texts in it."""
        if not self.args.memory.exists():
            raise FileNotFoundError(f"{self.args.memory}: expected a file written by `rescore generate --memory`")
        memory = self.memory()
        assert memory is not None
        memory.frozen = True

    def alpha(self, alpha: list[float] | None) -> list[float]:
        """The weight of the n-gram models: one, or one per slot."""
        alpha = alpha or [DEFAULT_ALPHA]
        slots = self.model.heads.slots if self.model.heads else 1
        if len(alpha) not in (1, slots):
            raise Misuse(f"--alpha: expected one weight, or one for each of the {slots} slots, got {len(alpha)}")
        return alpha

    def rescorer(self, alpha: list[float] | None) -> Rescorer:
        """A rescorer with all models of --lm and their weights, or with none."""
        models = self.lms()
        if not models:
            return Rescorer(threads=self.threads)
        weights = [[weight * value for value in self.alpha(alpha)] for _, weight in self.args.lm]
        return Rescorer(models, alpha=weights, threads=self.threads)

    def calibrated(self, kind: str, path: Path) -> tuple[Rescorer, int]:
        """The rescorer of a kind of tree in a settings file (closed, open or blend), and the top-k it was tuned for."""
        settings = self._settings(path)
        slots = self.model.heads.slots if self.model.heads else 0
        try:
            settings.check(vocab_size=self.model.vocab_size, slots=slots)
            rescorer = settings.calibrated(kind, threads=self.threads)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        self._require_tokenizer(rescorer.models[0], path)
        return rescorer, settings.top_k

    def lms(self) -> list[NGram]:
        """The models of --lm, checked against the model's vocabulary and tokenizer."""
        if self._lms is None:
            self._lms = [self._lm(path) for path, _ in self.args.lm]
        return self._lms

    def small(self, path: Path | None, option: str) -> Target:
        """The small model of an option. If it comes with a tokenizer, that must be the model's, up to added tokens."""
        if path is None:
            raise Misuse(f"{option}: expected a small model for this drafter, got none")
        if path not in self._small:
            self._check_small(path)
            self._small[path] = open_model(path, device=self.model.target.device)
        return self._small[path].target

    def _check_small(self, path: Path) -> None:
        hide_unseen_bars(path)
        facts = model_facts(path)
        if facts.tokenizer and not _agree(TextTokenizer.open(facts.tokenizer), self.decoder.tokenizer):
            raise ValueError(
                f"{path}: expected a model with the same tokenizer as {self.args.model}, got one with other tokens"
            )

    def _settings(self, path: Path) -> Settings:
        settings = Settings.load(path)
        try:
            settings.check(
                vocab_size=self.decoder.facts.vocab_size,
                slots=settings.slots,
                tokenizer_sha256=self.decoder.tokenizer.sha256,
                words=self._words,
            )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return settings

    def _lm(self, path: Path) -> NGram:
        vocab_size = self.decoder.facts.vocab_size
        model = load(path, arpa=ArpaOptions(vocab_size=vocab_size, end_of_text=self.decoder.ends[0]))
        self._require_tokenizer(model, path)
        return model.widened(vocab_size)

    def _words(self) -> tuple[str, ...]:
        return self.decoder.tokenizer.words(self.decoder.facts.vocab_size)

    def _require_tokenizer(self, model: NGram, path: Path) -> None:
        vocab_size = self.decoder.facts.vocab_size
        try:
            model.require_tokenizer(self.decoder.tokenizer.sha256, vocab_size, self._words)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _agree(one: TextTokenizer, other: TextTokenizer) -> bool:
    """Whether the tokens of the smaller vocabulary have the same ids in the other, which may have more added later."""
    if one.sha256 == other.sha256:
        return True
    few, many = sorted((own.tokenizer.get_vocab(with_added_tokens=True) for own in (one, other)), key=len)
    return few.items() <= many.items()
