"""Whether a decoder with drafts keeps its promise: the model's own greedy text, the model's own law. See README.md."""

from rescore.decode.conformance.checks import conforms
from rescore.decode.conformance.parameters import Parameters
from rescore.decode.conformance.reference import Plain

__all__ = ["Parameters", "Plain", "conforms"]
