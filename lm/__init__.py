"""N-gram language models as weighted automata. See README.md.

Estimation and OpenFst are in modules of their own: `rescore.lm.build`, `rescore.lm.katz`, `rescore.lm.kneser_ney`,
`rescore.lm.prune`, `rescore.lm.fst`.
"""
