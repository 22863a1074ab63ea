"""What a GPU must do as the CPU does: the loop with every drafter and rule, and the rules on its tensors."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from rescore.decode.blockwise import BlockwiseTransformer  # noqa: E402
from rescore.decode.draft import Rescorer  # noqa: E402
from rescore.decode.drafters.draft_model import DraftModelDrafter  # noqa: E402
from rescore.decode.drafters.drawn import DrawnDrafter  # noqa: E402
from rescore.decode.drafters.lattice import PathDrafter, Slots, TreeDrafter  # noqa: E402
from rescore.decode.drafters.neural import NeuralDrafter  # noqa: E402
from rescore.decode.drafters.ngram import NGramDrafter  # noqa: E402
from rescore.decode.generate import Options, generate  # noqa: E402
from rescore.decode.layout import BatchLayout, TreeLayout  # noqa: E402
from rescore.decode.models.blockwise_target import BlockwiseHeads, BlockwiseTarget  # noqa: E402
from rescore.decode.neural import NeuralRescorer  # noqa: E402
from rescore.decode.rules import BlockVerification, GreedyBlockVerification, RecursiveRejection, TokenVerification  # noqa: E402
from rescore.decode.sampling import Sampling  # noqa: E402
from rescore.decode.shaping import Shaping  # noqa: E402
from rescore.decode.verify import block, greedy_block, token  # noqa: E402
from rescore.lattice.dump import Dump  # noqa: E402
from rescore.lm.ngram import NGram  # noqa: E402


@pytest.fixture(scope="module")
def work(demo):
    """The demo's model on both devices, its n-gram model, and five prompts."""
    torch.backends.cuda.matmul.allow_tf32 = False
    models = {device: BlockwiseTransformer.load(demo / "model.safetensors").to(device) for device in ("cpu", "cuda")}
    found = next(Dump.open(demo / "sampled").blocks("gsm8k"))
    prompts = [found.prompt_tokens[slice(*found.prompt_offsets[s : s + 2])][-16 - s :].astype(np.int64) for s in range(5)]
    return models, NGram.open(demo / "demo.ngram"), prompts


def drafters(model: BlockwiseTransformer, lm: NGram) -> dict:
    slots, rescorer, target = Slots(heads=BlockwiseHeads(model), top_k=12), Rescorer(lm, alpha=0.3), BlockwiseTarget(model)
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


@pytest.mark.parametrize("rule", [TokenVerification(), BlockVerification(), GreedyBlockVerification(), RecursiveRejection()], ids=lambda rule: type(rule).__name__)
def test_drawn_drafts_are_verified_on_the_gpu(rule, work):
    models, lm, prompts = work
    drafter = DrawnDrafter(Slots(heads=BlockwiseHeads(models["cuda"]), top_k=12), Rescorer(lm, alpha=0.3), paths=4 if isinstance(rule, RecursiveRejection) else 1)
    options = Options(max_tokens=24, shaping=Shaping(sampling=Sampling(temperature=0.7, seed=3)), rule=rule)
    out = generate(BlockwiseTarget(models["cuda"]), prompts, drafter, options)
    assert all(len(one.tokens) == 24 for one in out) and sum(sum(one.statistics.accepted) for one in out) > 20


@pytest.mark.parametrize("rule", [token, block, greedy_block], ids=lambda rule: rule.__name__.split(".")[-1])
def test_rules_agree_on_both_devices(rule):
    draw = np.random.default_rng(0)
    p, q = draw.dirichlet(np.ones(7), 4), draw.dirichlet(np.ones(7), 3)
    for _ in range(50):
        draft, uniforms = [int(draw.choice(7, p=row)) for row in q], draw.random(4)
        assert rule.verify(torch.from_numpy(p).cuda(), torch.from_numpy(q).cuda(), draft, uniforms) == rule.verify(p, q, draft, uniforms)
