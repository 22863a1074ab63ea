"""The paper's table 11: every printed cell, and the two formulas that differ from the real cost."""

import pytest

from rescore.decode.cost.paper_cost import PRINTED, TABLE_11, TARGET, table_11


@pytest.mark.parametrize("row", PRINTED)
def test_every_printed_digit(row):
    """Three digits after the point; the table drops the last 0 of 0.570."""
    for value, printed in zip(table_11()[row], PRINTED[row], strict=True):
        assert f"{value:.3f}" == f"{float(printed):.3f}"


def test_the_rows_are_complete():
    assert table_11().keys() == PRINTED.keys()
    assert sum(map(len, PRINTED.values())) == 36


def test_a_cell_by_hand():
    """Neural at 512: keys and values of 512 + 9 tokens, 18 x 12288 and 12 x 1536 numbers of 2 bytes each, for 1.724
    tokens.
    """
    neural = TABLE_11[3]
    assert neural.cache_gb(512) == pytest.approx((18 * 12288 + 12 * 1536) * 2 * 2 * 521 / 1.724 / 1e9, rel=1e-12)
    assert neural.parameter_gb == pytest.approx((3.0 + 0.122) / 1.724, rel=1e-12)


def test_a_cache_of_the_attention_s_width_would_print_other_digits():
    """By the matrices of table 6 the cache is an eighth of the paper's."""
    assert TARGET.cache_bytes == 8 * (2 * 2 * 18 * 1536)
    assert f"{2 * 2 * 18 * 1536 * 2048 / 1e9:.3f}" == "0.226" != PRINTED["KV Cache I/O (GB), 2048"][0]
