"""Acceptance rules: which drafted tokens a target model keeps. docs/how/verification.md says when to use which.

A rule has two forms: `verify` for the decode loop, and `verdict`, a pure function of numpy arrays or torch tensors.
"""
