"""Lattices of a recogniser that has heard speech: utterances spoken by eSpeak, decoded by PocketSphinx with an n-gram
model of ours; its best path, and OpenFst's p best strings of the composition.
"""

import array
import math
import shutil
import subprocess
import wave

import numpy as np
import pytest

from rescore.decode.rescoring.read import read_lattices
from rescore.decode.rescoring.rescorer import LatticeRescorer, Weights
from rescore.lattice.word_lattice import NOTHING
from rescore.lm.build.in_memory import build
from rescore.lm.model.arpa import read_arpa
from rescore.lm.model.arpa_write import write_arpa

pocketsphinx = pytest.importorskip("pocketsphinx")
pywrapfst = pytest.importorskip("pywrapfst")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="expected espeak-ng, which speaks the utterances"),
]

SUBJECTS = ("the old man", "my sister", "a small dog", "the weather", "our teacher", "the young doctor")
VERBS = (
    "walked to the river",
    "will be here tomorrow",
    "came home again",
    "was very cold last winter",
    "can see the house",
)
TEXTS = [f"{subject} {verb}" for subject in SUBJECTS for verb in VERBS]
RATE = 16000
PATHS = 16
LM_WEIGHT, BEST_PATH_WEIGHT, INSERTION = 6.5, 9.5, 0.65  # PocketSphinx's lw, bestpathlw and wip


def spoken(text, folder) -> bytes:
    """The samples of a text, 16 bits at 16 kHz."""
    subprocess.run(["espeak-ng", "-v", "en-us", "-s", "130", "-w", folder / "a.wav", text], check=True)
    with wave.open(str(folder / "a.wav")) as file:
        rate, samples = file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), np.int16)
    at = np.arange(0, len(samples) - 1, rate / RATE)
    return array.array("h", np.interp(at, np.arange(len(samples)), samples).astype(np.int16).tolist()).tobytes()


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """The model, the lattices, and what the recogniser makes of each."""
    folder = tmp_path_factory.mktemp("speech")
    words = ["</s>", "<unk>", *sorted({word for text in TEXTS for word in text.split()})]
    ids = [np.array([words.index(word) for word in text.split()]) for text in TEXTS[::2] + TEXTS[::3]]
    made = build(ids, order=3, vocab_size=len(words), end_of_text=0, words=tuple(words))
    write_arpa(made, folder / "lm.arpa", words="text", sentence_ends=True)
    decoder = pocketsphinx.Decoder(samprate=RATE, loglevel="FATAL", lm=str(folder / "lm.arpa"))
    texts = []
    for number, text in enumerate(TEXTS):
        decoder.start_utt()
        decoder.process_raw(spoken(text, folder), full_utt=True)
        decoder.end_utt()
        texts.append(decoder.hyp().hypstr.split())
        decoder.get_lattice().write_htk(str(folder / f"{number}.slf"))
    lattices = [one for number in range(len(TEXTS)) for one in read_lattices(folder / f"{number}.slf")]
    return read_arpa(folder / "lm.arpa"), lattices, texts


WEIGHTS = Weights(acoustic=1 / BEST_PATH_WEIGHT, word_penalty=-math.log(INSERTION) / LM_WEIGHT)


def test_the_best_string_is_the_recognisers(heard):
    model, lattices, texts = heard
    found = LatticeRescorer(model, weights=WEIGHTS).paths_of(lattices, 1)
    assert [one.words[0] for one in found] == texts


def composed(lattice, model, weights):
    """The lattice with the model, every state of it spelt out, as an acceptor of OpenFst; labels are tokens + 1."""
    fst, number, queue = pywrapfst.VectorFst(), {}, []
    acoustic, language, penalty = weights.of(lattice)
    ids = np.append(model.ids([*lattice.words]), NOTHING)

    def of(pair):
        if pair not in number:
            number[pair] = fst.add_state()
            queue.append(pair)
        return number[pair]

    fst.set_start(of((0, model.start([model.metadata["bos"]]))))
    for state, context in queue:
        for arc in range(int(lattice.first[state]), int(lattice.first[state + 1])):
            token, target = int(lattice.tokens[arc]), int(lattice.targets[arc])
            cost, after = float(lattice.costs[arc] @ [acoustic, language]), context
            if target == lattice.states - 1:
                cost, after = cost + model.step(context, model.metadata["eos"])[1], 0
            elif token != NOTHING:
                after, paid = model.step(context, int(ids[token]))
                cost += paid + penalty
            weight = pywrapfst.Weight("tropical", cost)
            fst.add_arc(number[state, context], pywrapfst.Arc(token + 1, token + 1, weight, of((target, after))))
        if state == lattice.states - 1:
            fst.set_final(number[state, context])
    return fst


def strings(fst):
    """The cost and labels of every path."""
    found, stack = [], [(fst.start(), (), 0.0)]
    while stack:
        state, labels, cost = stack.pop()
        if fst.final(state) != pywrapfst.Weight.zero("tropical"):
            found.append((cost + float(fst.final(state)), labels))
        for arc in fst.arcs(state):
            own = (arc.ilabel,) if arc.ilabel else ()
            stack.append((arc.nextstate, labels + own, cost + float(arc.weight)))
    return sorted(found)


def test_the_best_strings_are_openfsts(heard):
    model, lattices, _ = heard
    for lattice, ours in zip(lattices, LatticeRescorer(model, weights=WEIGHTS).paths_of(lattices, PATHS)):
        every = composed(lattice, model, WEIGHTS).rmepsilon()
        theirs = strings(pywrapfst.shortestpath(every, nshortest=PATHS, unique=True))
        assert ours.cost.tolist() == pytest.approx([cost for cost, _ in theirs], abs=1e-3)
        known = {labels: cost for cost, labels in theirs}
        for tokens, cost in zip(ours.tokens, ours.cost.tolist()):
            labels = tuple((tokens + 1).tolist())
            assert known.get(labels, ours.cost[-1]) == pytest.approx(cost, abs=1e-3)  # the last ones may tie
