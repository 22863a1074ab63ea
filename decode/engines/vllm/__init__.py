"""vLLM: drafts through its `custom_class` method (docs/use/vllm.md)."""

from rescore.decode.engines.vllm.proposer import Proposer

__all__ = ["Proposer"]
