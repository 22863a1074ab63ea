"""The report's one sentence, worked out by hand."""

from rescore.decode.report.sections.summary import verdict


def overall(**drafters: tuple[float, float]) -> dict:
    """Block efficiency and verified tokens by name, whose blanks are underscores."""
    named = {name.replace("_", " "): values for name, values in drafters.items()}
    return {
        "block_efficiency": {name: efficiency for name, (efficiency, _) in named.items()},
        "verified_per_pass": {name: verified for name, (_, verified) in named.items()},
    }


def test_the_best_within_the_budget_against_base():
    """More verified tokens and the oracle do not count: 1.91 / 1.25 = 1.528."""
    found = overall(
        base=(1.25, 5.0), tree_16=(1.5, 15.8), blend_16=(1.91, 16.0), blend_64=(2.5, 64.0), oracle=(2.2, 5.0)
    )
    assert verdict(found) == (
        "Best with 16 verified tokens: blend, 1.91 tokens per pass, 53% over base (1.25, the heads' own draft)."
    )


def test_without_heads_against_prompt_lookup():
    found = overall(**{"prompt-lookup": (2.0, 6.0)}, blend_16=(2.5, 16.0), blend_64=(3.0, 64.0))
    assert verdict(found) == (
        "Best with 16 verified tokens: blend, 2.50 tokens per pass, 25% over prompt-lookup (2.00)."
    )


def test_no_gain():
    assert "the same as base" in verdict(overall(base=(1.0, 0.0), tree_16=(1.0, 0.0), oracle=(1.0, 0.0)))
