"""Acceptance rules: which drafted tokens a target model keeps. docs/how/verification.md says when to use which.

Each module has a rule in two forms: a class for the decode loop, and a pure function `verify` on numpy arrays or torch
tensors.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rescore.decode.verify.block import BlockVerification
    from rescore.decode.verify.greedy import Greedy
    from rescore.decode.verify.greedy_block import GreedyBlockVerification
    from rescore.decode.verify.matching import Matching
    from rescore.decode.verify.recursive import RecursiveRejection
    from rescore.decode.verify.rule import Rule, StatelessRule, Verdict, Verifier
    from rescore.decode.verify.token import TokenVerification

_HOME = {
    "BlockVerification": "block",
    "Greedy": "greedy",
    "GreedyBlockVerification": "greedy_block",
    "Matching": "matching",
    "RecursiveRejection": "recursive",
    "Rule": "rule",
    "StatelessRule": "rule",
    "Verdict": "rule",
    "Verifier": "rule",
    "TokenVerification": "token",
}

__all__ = [
    "BlockVerification",
    "Greedy",
    "GreedyBlockVerification",
    "Matching",
    "RecursiveRejection",
    "Rule",
    "StatelessRule",
    "TokenVerification",
    "Verdict",
    "Verifier",
]


def __getattr__(name: str) -> Any:
    """Rules are imported on first use: drafts and their shaping need no torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'rescore.decode.verify' has no attribute {name!r}")
    return getattr(import_module(f"rescore.decode.verify.{_HOME[name]}"), name)
