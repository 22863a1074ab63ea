"""A GPU gives the results of the CPU: the loop with every drafter and rule, and the rules on its tensors."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from support.tiny_blockwise import END, V, text, trained

from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.draft.drawn_drafter import DrawnDrafter
from rescore.decode.draft.heads_lattice import HeadsLattice, TensorRescorer
from rescore.decode.draft.lattice_drafters import PathDrafter
from rescore.decode.draft.neural_drafter import NeuralDrafter, NeuralRescorer
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.tree_drafter import NGramDrafter, TreeDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.models.blockwise import BlockwiseHeads, BlockwiseTarget, BlockwiseTransformer
from rescore.decode.verify.chain_rules import BlockVerification, GreedyBlockVerification, TokenVerification
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.decode.verify.tree_rules import RecursiveRejection
from rescore.lattice.dump import Dump
from rescore.lattice.sausage import Sausage
from rescore.lattice.tensors import TensorSausage
from rescore.lm.build.in_memory import build
from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module")
def work():
    """The tiny model on both devices, an n-gram model of its words, and five prompts."""
    torch.backends.cuda.matmul.allow_tf32 = False
    models = {device: copy.deepcopy(trained()).to(device) for device in ("cpu", "cuda")}
    lm = build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, end_of_text=END)
    return models, lm, [text(16 + s, 50 + s).astype(np.int64) for s in range(5)]


@pytest.fixture(scope="module")
def lm(demo) -> NGram:
    return NGram.open(demo / "demo.ngram")


def drafters(model: BlockwiseTransformer, lm: NGram) -> dict:
    slots = HeadsLattice(heads=BlockwiseHeads(model), top_k=12)
    rescorer = Rescorer(lm, alpha=0.3)
    target = BlockwiseTarget(model)
    size = target.vocab_size
    return {
        "none": (None, TreeLayout()),
        "base": (PathDrafter(slots), TreeLayout()),
        "parallel as rows": (PathDrafter(slots, rescorer, paths=8), BatchLayout(8)),
        "tree": (TreeDrafter(slots, rescorer, nodes=32), TreeLayout()),
        "neural": (NeuralDrafter(slots, NeuralRescorer(target, vocab_size=size, paths=2)), TreeLayout()),
        "draft model": (DraftModelDrafter(target, gamma=4, vocab_size=size, drawn=False), TreeLayout()),
        "ngram": (NGramDrafter(lm, slots=6, nodes=12), TreeLayout()),
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


@pytest.mark.parametrize(
    "rule",
    [TokenVerification(), BlockVerification(), GreedyBlockVerification(), RecursiveRejection()],
    ids=lambda rule: type(rule).__name__,
)
def test_drawn_drafts_are_verified_on_the_gpu(rule, work):
    models, lm, prompts = work
    drafter = DrawnDrafter(
        HeadsLattice(heads=BlockwiseHeads(models["cuda"]), top_k=12),
        Rescorer(lm, alpha=0.3),
        paths=4 if isinstance(rule, RecursiveRejection) else 1,
    )
    options = Options(max_tokens=24, shaping=Shaping(sampling=Sampling(temperature=0.7, seed=3)), rule=rule)
    out = generate(BlockwiseTarget(models["cuda"]), prompts, drafter, options)
    assert all(len(one.tokens) == 24 for one in out) and sum(sum(one.statistics.accepted) for one in out) > 20


@pytest.mark.parametrize("rule", [TokenVerification(), BlockVerification(), GreedyBlockVerification()])
def test_rules_agree_on_both_devices(rule):
    draw = np.random.default_rng(0)
    p, q = draw.dirichlet(np.ones(7), 4), draw.dirichlet(np.ones(7), 3)
    for _ in range(50):
        draft, uniforms = [int(draw.choice(7, p=row)) for row in q], draw.random(4)
        assert rule.verdict(torch.from_numpy(p).cuda(), torch.from_numpy(q).cuda(), draft, uniforms) == rule.verdict(
            p, q, draft, uniforms
        )


class Captured:
    """A call as a CUDA graph, with whatever would wait for the device made an error on the way."""

    def __init__(self, call):
        self.call, self.graph = call, torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call()
            call()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self.graph):
            torch.cuda.set_sync_debug_mode("error")
            try:
                self.found = call()
            finally:
                torch.cuda.set_sync_debug_mode("default")

    def replay(self):
        self.graph.replay()
        torch.cuda.synchronize()
        return self.found


class Lattices:
    """Tensors whose addresses stay, to be filled with one batch of the demo's lattices after another."""

    def __init__(self, demo, lm: NGram, count: int):
        self.block = next(Dump.open(demo / "sampled").blocks())
        self.context, self.count = lm.order - 1, count
        sausages, histories = self.rows(0)
        self.tensors = TensorSausage.of(sausages, torch.device("cuda"))
        self.history = torch.from_numpy(histories).cuda()

    def rows(self, start: int) -> tuple[Sausage, np.ndarray]:
        at = np.arange(start, start + self.count)
        return self.block.sausages()[at], self.block.histories(at, self.context)

    def fill(self, start: int) -> tuple[Sausage, np.ndarray]:
        sausages, histories = self.rows(start)
        self.tensors.ids.copy_(torch.from_numpy(sausages.ids))
        self.tensors.cost.copy_(torch.from_numpy(sausages.cost))
        self.history.copy_(torch.from_numpy(histories))
        return sausages, histories


def assert_equal(found, wanted, names):
    for name in names:
        assert np.array_equal(getattr(found, name).cpu().numpy(), getattr(wanted, name)), name


@pytest.mark.parametrize("count", [1, 8, 64])
def test_captured_searches_find_what_the_cpu_finds(count, lm, demo):
    """One graph, replayed over batches that it had not seen."""
    rescorer, lattices = Rescorer(lm, alpha=0.3), Lattices(demo, lm, count)
    on_tensors = TensorRescorer(rescorer)
    trees = Captured(lambda: on_tensors.trees(lattices.tensors, lattices.history, 64))
    for start in (100, 400):
        batch = lattices.fill(start)
        assert_equal(trees.replay(), rescorer.trees(*batch, 64), ("tokens", "parents", "depths", "logq", "count"))


def test_a_whole_step_is_captured(work):
    """Heads, candidates, rescored tree, mask and pass in one graph: what the same call gives without one."""
    models, lm, _ = work
    model = models["cuda"]
    target, slots = BlockwiseTarget(model), HeadsLattice(heads=BlockwiseHeads(model), top_k=12)
    rescorer = TensorRescorer(Rescorer(lm, alpha=0.3))
    hidden = torch.randn(4, model.config.width, device="cuda")
    history = torch.randint(model.config.vocab_size, (4, 3), dtype=torch.int32, device="cuda")
    start = torch.full((4,), 10, device="cuda")
    with torch.inference_mode():
        cache, _ = target.open([np.zeros(10, np.int64)] * 4, 1, 43)

        def step():
            logits = slots.heads.of_hidden(hidden, history[:, -1])
            trees = rescorer.trees(slots.tensors(logits), history, 32)
            block = TreeLayout().lay_tensors(trees, history[:, -1], start, 43)
            return target.logits(target.read(block, cache)).argmax(dim=-1)

        captured = Captured(step)
        for seed in (1, 2):
            torch.manual_seed(seed)
            hidden.normal_()
            found = captured.replay().clone()
            assert torch.equal(found, step())
