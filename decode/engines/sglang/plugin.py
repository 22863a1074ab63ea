"""Registers RESCORE as a --speculative-algorithm of SGLang; the entry point `sglang.srt.plugins` calls `register`."""

from __future__ import annotations

from typing import Any

NAME = "RESCORE"


def register() -> None:
    """Registers the algorithm with SGLang. All its predicates (`is_*`, `supports_*`, `has_*`) are the n-gram
    algorithm's, so the engine verifies and schedules as for that one.
    """
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import CustomSpecAlgo

    ngram = SpeculativeAlgorithm.NGRAM

    class RescoreAlgorithm(CustomSpecAlgo):
        def handle_server_args(self, server_args: Any) -> None:
            ngram.handle_server_args(server_args)

    for name in vars(SpeculativeAlgorithm):
        if name.startswith(("is_", "supports_", "has_")):
            setattr(RescoreAlgorithm, name, lambda self, *args, name=name: getattr(ngram, name)(*args))

    @SpeculativeAlgorithm.register(NAME, supports_overlap=True, spec_class=RescoreAlgorithm)
    def worker(server_args: Any) -> type:
        from rescore.decode.engines.sglang.worker import RescoreWorker

        return RescoreWorker
