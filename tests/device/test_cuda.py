"""A GPU gives the results of the CPU: the loop with every drafter and rule, and the rules on its tensors."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from support.tiny_blockwise import END, V, text, trained

from rescore import HeadsLattice, NGram, Options, Rescorer, Sampling, TreeDrafter, generate, ngram_drafter
from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.draft.drawn_drafter import DrawnDrafter
from rescore.decode.draft.lattice_drafters import PathDrafter
from rescore.decode.draft.neural_drafter import NeuralDrafter, NeuralRescorer
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.models.blockwise import BlockwiseHeads, BlockwiseTarget, BlockwiseTransformer
from rescore.decode.verify.chain_rules import BlockVerification, GreedyBlockVerification, TokenVerification
from rescore.decode.verify.shaping import Shaping
from rescore.decode.verify.tree_rules import RecursiveRejection
from rescore.lm.build.in_memory import build

CHAIN_RULES = (TokenVerification(), BlockVerification(), GreedyBlockVerification())


@pytest.fixture(scope="module")
def work():
    """The tiny model on both devices, an n-gram model of its words, and five prompts."""
    torch.backends.cuda.matmul.allow_tf32 = False
    models = {device: copy.deepcopy(trained()).to(device) for device in ("cpu", "cuda")}
    lm = build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, end_of_text=END)
    return models, lm, [text(16 + s, 50 + s).astype(np.int64) for s in range(5)]


def drafters(model: BlockwiseTransformer, lm: NGram) -> dict:
    slots, target = HeadsLattice(heads=BlockwiseHeads(model), top_k=12), BlockwiseTarget(model)
    rescorer, size = Rescorer(lm, alpha=0.3), target.vocab_size
    return {
        "none": (None, TreeLayout()),
        "base": (PathDrafter(slots), TreeLayout()),
        "parallel as rows": (PathDrafter(slots, rescorer, paths=8), BatchLayout(8)),
        "tree": (TreeDrafter(slots, rescorer, nodes=32), TreeLayout()),
        "neural": (NeuralDrafter(slots, NeuralRescorer(target, vocab_size=size, paths=2)), TreeLayout()),
        "draft model": (DraftModelDrafter(target, gamma=4, vocab_size=size, drawn=False), TreeLayout()),
        "ngram": (ngram_drafter(lm, slots=6, nodes=12), TreeLayout()),
    }


@pytest.mark.parametrize("sampling", [None, Sampling(temperature=0.7, top_p=0.95, seed=3)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", ["none", "base", "parallel as rows", "tree", "neural", "draft model", "ngram"])
def test_the_gpu_writes_the_text_of_the_cpu(name, sampling, work):
    models, lm, prompts = work
    texts = []
    for model in models.values():
        drafter, layout = drafters(model, lm)[name]
        options = Options(max_tokens=24, shaping=Shaping(sampling=sampling), layout=layout)
        texts.append([one.tokens.tolist() for one in generate(BlockwiseTarget(model), prompts, drafter, options)])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("rule", [*CHAIN_RULES, RecursiveRejection()], ids=lambda rule: type(rule).__name__)
def test_drawn_drafts_are_verified_on_the_gpu(rule, work):
    models, lm, prompts = work
    slots, paths = HeadsLattice(heads=BlockwiseHeads(models["cuda"]), top_k=12), 1 if rule in CHAIN_RULES else 4
    drafter = DrawnDrafter(slots, Rescorer(lm, alpha=0.3), paths=paths)
    options = Options(max_tokens=24, shaping=Shaping(sampling=Sampling(temperature=0.7, seed=3)), rule=rule)
    out = generate(BlockwiseTarget(models["cuda"]), prompts, drafter, options)
    assert all(len(one.tokens) == 24 for one in out) and sum(sum(one.statistics.accepted) for one in out) > 20


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_rules_agree_on_both_devices(rule):
    draw = np.random.default_rng(0)
    p, q = draw.dirichlet(np.ones(7), 4), draw.dirichlet(np.ones(7), 3)
    for _ in range(50):
        rest = [int(draw.choice(7, p=row)) for row in q], draw.random(4)
        on_gpu = rule.verdict(torch.from_numpy(p).cuda(), torch.from_numpy(q).cuda(), *rest)
        assert on_gpu == rule.verdict(p, q, *rest)
