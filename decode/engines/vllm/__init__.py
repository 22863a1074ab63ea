"""vLLM: drafts by its `custom_class` method (docs/vllm.md)."""

from rescore.decode.engines.vllm.proposer import Proposer

__all__ = ["Proposer"]
