"""Incremental text against the whole text, and against a search of it for stop strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescore.decode.loop.text_stream import Detokenizer, TextStream


def decode_bytes(ids) -> str:
    """Every id is a byte; ids above 255 are special tokens without text."""
    return bytes(i for i in ids if i < 256).decode(errors="replace")


def decode_words(ids) -> str:
    return " ".join(f"w{i}" for i in ids)


def decode_pieces(ids) -> str:
    """As SentencePiece: a blank in front of odd ids, not at the beginning of a text."""
    return "".join((" " if i % 2 else "") + chr(97 + i % 26) for i in ids).removeprefix(" ")


def spoken(decode, ids, prompt=()) -> list[str]:
    one = Detokenizer(decode, prompt)
    return [*(one.add(i) for i in ids), one.finish()]


@given(st.text(max_size=30), st.integers(0, 3))
def test_bytes_of_text_come_as_whole_characters(text, special):
    ids = list(text.encode(errors="surrogatepass").decode(errors="replace").encode()) + [300] * special
    parts = spoken(decode_bytes, ids)
    assert "".join(parts) == decode_bytes(ids)
    if "\N{REPLACEMENT CHARACTER}" not in text and not any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert not any("\N{REPLACEMENT CHARACTER}" in part for part in parts)


@given(st.lists(st.integers(0, 300), max_size=30))
def test_bytes_that_are_no_text_all_come_in_the_end(ids):
    assert "".join(spoken(decode_bytes, ids)) == decode_bytes(ids)


@pytest.mark.parametrize("decode, between", [(decode_words, " "), (decode_pieces, "")])
@given(
    ids=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    prompt=st.lists(st.integers(0, 60), min_size=1, max_size=5),
)
def test_blanks_stand_where_they_stand_in_the_whole(decode, between, ids, prompt):
    assert "".join(spoken(decode, ids)) == decode(ids)
    assert "".join(spoken(decode, ids, prompt)) == decode(prompt + ids)[len(decode(prompt)) :]


def said(ids, stops):
    """Text of every token, and whether a stop string has come, of a stream marked by positions."""
    one = TextStream(decode_bytes, stops=stops)
    pieces = [piece for i, token in enumerate(ids) for piece in one.add(token, i)] + one.finish(len(ids))
    return pieces, one.stopped


@given(st.text("ab", max_size=20), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_stop_strings_are_looked_for_across_tokens(text, stops):
    pieces, stopped = said(list(text.encode()), stops)
    ends = [n for n in range(len(text) + 1) if any(stop in text[:n] for stop in stops)]
    assert stopped == bool(ends)
    seen = text[: ends[0]] if ends else text  # up to the character that completes the first of them
    expected = min((seen[: seen.find(stop)] for stop in stops if stop in seen), key=len, default=text)
    assert "".join(piece.text for piece in pieces) == expected
    assert "".join(text[piece.mark] for piece in pieces if piece.mark < len(text)) == expected  # each with its own mark


def test_the_beginning_of_a_stop_string_waits():
    one = TextStream(decode_bytes, stops=["<end>", "<e2"])
    shown = ["".join(piece.text for piece in one.add(token, 0)) for token in b"a<b<en<end>x"]
    assert shown == ["a", "", "<b", "", "", "", "<en", "", "", "", "", ""] and one.stopped
    other = TextStream(decode_bytes, stops=["<end>"])
    assert [one.text for token in b"x<e" for one in other.add(token, 0)] == ["x"]
    assert [one.text for one in other.finish(0)] == ["<", "e"] and not other.stopped
