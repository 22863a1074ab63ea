"""Pages are wrapped at 120 columns where their words allow it, and nowhere else."""

from support.tools import load_tool

wrap = load_tool("docs/wrap").wrap

LONG = "one two three four five six seven eight nine ten eleven twelve " * 4


def test_paragraphs_and_items():
    """An item's further lines stand below its first word; a paragraph whose lines fit stays as it is."""
    page = f"# Title\n\nshort\nlines\n\n{LONG}\nand more\n- {LONG}\n  and more\n- short\n"
    lines = wrap(page).split("\n")
    assert lines[:5] == ["# Title", "", "short", "lines", ""] and max(map(len, lines)) <= 120
    first, more = (f"{LONG}and more".split(), [line for line in lines[5:] if not line.startswith(("-", "  "))])
    assert " ".join(more).split() == first
    item = [line for line in lines if line.startswith(("-", "  "))]
    assert item[0].startswith("- one") and item[1].startswith("  ") and item[-1] == "- short"
    assert " ".join(item[:-1]).split() == ["-", *first]


def test_what_stays_as_it_is():
    table, code, span = f"| {LONG} |", f"    {LONG}", f"`{LONG}`"
    for page in (table, code, span, f"```\n{LONG}\n```", f"# {LONG}", "x" * 130):
        assert wrap(page) == page


def test_no_line_begins_something_else():
    """A number, a dash or a plus in a sentence is not the mark of an item."""
    for mark in ("-", "+", "12.", "#"):
        page = " ".join(["x" * 9] * 11 + ["y" * 9, mark, "z" * 20])
        first, *rest = wrap(page).split("\n")
        assert len(rest) == 1 and not rest[0].startswith(mark)
