"""Builds a model in resumable stages on disk, within limits of memory and disk space.

    count     the text, in runs that fit in memory           counting.py
    merge     runs into the n-grams of every order           merging.py
    estimate  Katz or Kneser-Ney                             estimate.py
    prune     by entropy, optional                           prune.py
    compile   the automaton                                  compile.py

Every stage writes columns into the work folder and maps the columns of earlier stages. The result depends only on the
text and the options, not on memory, threads or interruptions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rescore.lm.build.counting import Source, bytes_per_token, count_pieces
from rescore.lm.build.counts import CountOptions, Counts, Run
from rescore.lm.build.estimate import EstimateOptions, estimate_model
from rescore.lm.build.folder import Folder
from rescore.lm.build.merging import merge_runs
from rescore.lm.build.prune import PruneOptions, prune
from rescore.lm.build.work import WorkFolder
from rescore.lm.model.compile import compile_tables
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables

RESERVE_BYTES = 200 << 20  # for the tokenizer and buffers, beside the runs
LEAST_RUN = 1 << 18  # tokens
COMPILED_BYTES = 27  # per n-gram while the model is compacted, when its plain arrays are mapped too


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Limits of a build: bytes of memory of the process, and threads."""

    memory_bytes: int = 4 << 30
    threads: int = os.cpu_count() or 1

    def run_tokens(self, options: CountOptions) -> int:
        """Tokens that each thread can count at once within the memory."""
        room = self.memory_bytes - memory_in_use() - RESERVE_BYTES
        tokens = room // ((self.threads + 1) * bytes_per_token(options))
        if tokens < LEAST_RUN:
            needed = LEAST_RUN * (self.threads + 1) * bytes_per_token(options) + self.memory_bytes - room
            raise ValueError(
                f"memory: expected at least {needed / 1e6:.0f} MB for {self.threads} threads, "
                f"got {self.memory_bytes / 1e6:.0f} MB; allow more (--ram), or use fewer threads"
            )
        return tokens

    def check_model(self, ngrams: int) -> None:
        """Raises ValueError if a model of this many n-grams cannot be compiled within the memory."""
        needed = memory_in_use() + COMPILED_BYTES * ngrams
        if needed > self.memory_bytes:
            most = max(self.memory_bytes - memory_in_use(), 0) // COMPILED_BYTES
            raise ValueError(
                f"memory: expected at least {needed / 1e9:.2f} GB to write a model of {ngrams:,} n-grams, "
                f"got {self.memory_bytes / 1e9:.2f} GB; allow more (--ram)"
                f"{f', or prune to at most {most:,} n-grams' if most else ''}; the same command resumes the build"
            )


def memory_in_use() -> int:
    """Resident memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Arguments: stage, bytes done, bytes in all, items done so far, the items' unit.
Progress = Callable[[str, int, int, int, str], None]


class StagedBuild:
    """The stages of one model. Each method runs its stage, or opens the result if the stage is finished."""

    def __init__(
        self,
        work: WorkFolder,
        options: CountOptions,
        resources: Resources | None = None,
        progress: Progress = lambda stage, done, total, items, unit: None,
    ) -> None:
        self._work, self._options, self._resources, self._progress = work, options, resources or Resources(), progress

    def runs(self, source: Source) -> list[Run]:
        """The sorted and counted windows of the text."""
        sizes = [piece.size for piece in source.pieces]

        def tell(tokens: int, pieces: int) -> None:
            self._progress("count", sum(sizes[:pieces]), sum(sizes), tokens, "tokens")

        return count_pieces(
            self._work,
            source,
            self._options,
            run_tokens=self._resources.run_tokens(self._options),
            threads=self._resources.threads,
            progress=tell,
        )

    def count(self, source: Source, *, adjusted: bool = False) -> Counts:
        """The counts of all orders. adjusted: with the adjusted counts of Kneser-Ney."""
        runs = self.runs(source)
        total, windows = sum(run.slices[-1] for run in runs), sum(run.windows for run in runs)
        return merge_runs(
            self._work,
            runs,
            self._options,
            self._resources.threads,
            adjusted=adjusted,
            progress=lambda done: self._progress("merge", done, total, windows * done // max(total, 1), "windows"),
        )

    def estimate(self, counts: Counts, options: EstimateOptions) -> Tables:
        """The model before pruning, as tables."""
        grams, contexts = sum(map(len, counts.levels)), sum(level.contexts for level in counts.levels)
        return self._stage(
            "estimate",
            asdict(options),
            8 * (grams + contexts),
            grams,
            lambda columns: estimate_model(counts, options, columns),
        )

    def prune(self, tables: Tables, options: PruneOptions | None) -> Tables:
        """The pruned model; `tables` itself if options is None."""
        if options is None:
            return tables
        grams, contexts = sum(tables.ngrams), sum(level.contexts for level in tables.levels)
        left = min(grams, options.max_ngrams or grams)
        return self._stage(
            "prune",
            asdict(options),
            20 * grams + 16 * contexts + 20 * left,
            grams,
            lambda columns: prune(tables, options, columns),
        )

    def compile(self, tables: Tables, *, words: Sequence[str] | None, metadata: dict[str, Any]) -> NGram:
        """The model as an automaton."""
        grams, contexts = sum(tables.ngrams), sum(level.contexts for level in tables.levels)
        self._resources.check_model(grams)
        arrays = self._stage(
            "compile",
            {"pruned": tables.metadata.get("pruning")},
            18 * grams + 16 * contexts,
            grams,
            lambda columns: compile_tables(tables, columns),
        )
        return NGram.from_tables(
            tables, arrays=arrays, words=words, metadata={**metadata, "end_of_text": self._options.end_of_text}
        )

    def _stage(self, name: str, key: dict[str, Any], total: int, grams: int, body: Callable[[Folder], Any]) -> Any:
        """Runs a stage, or opens its result. total: bytes that the stage is expected to write."""
        state, written = self._work.begin(name, key), 0

        def tell(bytes: int) -> None:
            nonlocal written
            written += bytes
            self._progress(name, min(written, total), total, grams * min(written, total) // max(total, 1), "n-grams")

        columns = self._work.columns(name, state, self._resources.threads, tell)
        if state["done"]:
            return body(columns)  # opens finished columns
        with self._work.timed(state):
            return body(columns)
