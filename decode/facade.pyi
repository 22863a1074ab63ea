"""The names of `rescore` for type checkers; `facade.py` is the implementation."""

from rescore.decode.draft.blended_drafter import blended_drafter as blended_drafter
from rescore.decode.draft.calibration import Calibration as Calibration
from rescore.decode.draft.heads_lattice import HeadsLattice as HeadsLattice
from rescore.decode.draft.rescorer import Rescorer as Rescorer
from rescore.decode.draft.settings import Settings as Settings
from rescore.decode.draft.text_memory import TextMemory as TextMemory
from rescore.decode.draft.tree_drafter import TreeDrafter as TreeDrafter
from rescore.decode.draft.tree_drafter import ngram_drafter as ngram_drafter
from rescore.decode.engines.huggingface.drafting import Drafting as Drafting
from rescore.decode.engines.text_drafter import TextDrafter as TextDrafter
from rescore.decode.lab.tuning.tune import tune as tune
from rescore.decode.loop.generate import Options as Options
from rescore.decode.loop.generate import generate as generate
from rescore.decode.loop.generate import stream as stream
from rescore.decode.models.open import open_model as open_model
from rescore.decode.rescoring.read import read_lattices as read_lattices
from rescore.decode.rescoring.rescorer import LatticeRescorer as LatticeRescorer
from rescore.decode.verify import greedy as greedy
from rescore.decode.verify.sampling import Sampling as Sampling
from rescore.lattice.dump import Dump as Dump
from rescore.lattice.sausage import Sausage as Sausage
from rescore.lattice.word_lattice import WordLattice as WordLattice
from rescore.lm.build.in_memory import build_ngram as build_ngram
from rescore.lm.build.interpolate import merge_models as merge_models
from rescore.lm.model.formats import load as load
from rescore.lm.model.ngram import NGram as NGram

__version__: str
