"""Acceptance rules: which drafted tokens a target model keeps. docs/how/verification.md says when to use which.

Each module has a rule in two forms: a class for the decode loop, and a pure function `verify` on numpy arrays or torch
tensors.
"""
