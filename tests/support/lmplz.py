"""What KenLM's lmplz made of a small text (tools/data/lmplz_fixtures.py), as dictionaries of ids."""

from pathlib import Path

from support.oracle_lm import Backoff

FOLDER = Path(__file__).parents[1] / "lm" / "build" / "lmplz"
EOT = 0
UNSEEN = 1  # <unk>
LN10 = 2.302585092994046


def sentences(lines=None):
    """The text as words."""
    return [line.split() for line in (FOLDER / "text.txt").read_text().splitlines()[:lines]]


def ids_of(text):
    """{word: id} of a text; both <s> and </s> are the end of text."""
    words = dict.fromkeys(word for sentence in text for word in sentence)
    return {"<s>": EOT, "</s>": EOT, "<unk>": UNSEEN, **{word: number for number, word in enumerate(words, 2)}}


def read(name, ids) -> Backoff:
    """An ARPA file; costs are negated natural logarithms."""
    model = Backoff(cost={}, backoff={}, order=0, vocab_size=len(set(ids.values())))
    for line in (FOLDER / name).read_text().splitlines():
        if line.endswith("-grams:"):
            model.order = int(line[1:-7])
        fields = line.split("\t")
        if len(fields) < 2:
            continue
        words = fields[1].split()
        gram = tuple(ids[word] for word in words)
        if words != ["<s>"]:
            model.cost[gram] = -float(fields[0]) * LN10
        if len(fields) > 2 and words[-1] != "</s>":
            model.backoff[gram] = -float(fields[2]) * LN10
    return model
