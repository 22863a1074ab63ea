"""A recogniser's lattice, rescored with a trigram model of your own text. Runs in a second."""

from pathlib import Path
from tempfile import TemporaryDirectory

from rescore import LatticeRescorer, load, read_lattices
from rescore.decode.cli import main

TEXT = """how to recognise speech
how to recognise a friend
it is hard to recognise speech
it is hard to wreck a car
a nice day on the beach
"""
SLF = """VERSION=1.0
UTTERANCE=hard
lmscale=10 wdpenalty=0
N=10 L=11
I=0 W=!SENT_START
I=1 W=hard
I=2 W=to
I=3 W=recognise
I=4 W=wreck
I=5 W=a
I=6 W=nice
I=7 W=speech
I=8 W=beach
I=9 W=!SENT_END
J=0 S=0 E=1 a=-410.0
J=1 S=1 E=2 a=-150.5
J=2 S=2 E=3 a=-602.0
J=3 S=2 E=4 a=-270.0
J=4 S=4 E=5 a=-110.0
J=5 S=5 E=6 a=-210.0
J=6 S=3 E=7 a=-400.5
J=7 S=6 E=7 a=-401.0
J=8 S=6 E=8 a=-390.0
J=9 S=7 E=9 a=-40.0
J=10 S=8 E=9 a=-40.0
"""

with TemporaryDirectory() as folder:
    text, slf, lm = (Path(folder) / name for name in ("text.txt", "hard.slf", "lm.ngram"))
    text.write_text(TEXT)
    slf.write_text(SLF)
    main(["lm", "build", str(text), "--order", "3", "-o", str(lm)])
    rescorer = LatticeRescorer(load(lm))  # acoustic costs weigh 1 / lmscale, the model 1
    for lattice in read_lattices(slf):
        alone = LatticeRescorer().paths(lattice, 1)
        found = rescorer.paths(lattice, 4)
        print(f"{lattice.name}: without a model {' '.join(alone.words[0])!r}")
        for words, cost, acoustic, lm_cost in zip(found.words, found.cost, found.costs[:, 0], found.models[:, 0]):
            print(f"{cost:8.2f} = {acoustic:7.1f} / 10 + {lm_cost:5.2f}   {' '.join(words)}")
