"""Acceptance rules: which drafted tokens a target model keeps. docs/how/verification.md says when to use which.

Each module has a rule in two forms: a class for the decode loop, and a pure function `verify` on numpy arrays or torch
tensors.
"""

from rescore.decode.verify.block import BlockVerification
from rescore.decode.verify.greedy import Greedy
from rescore.decode.verify.greedy_block import GreedyBlockVerification
from rescore.decode.verify.matching import Matching
from rescore.decode.verify.recursive import RecursiveRejection
from rescore.decode.verify.rule import Rule, StatelessRule, Verdict, Verifier
from rescore.decode.verify.token import TokenVerification

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
