"""Token Recycling during decoding, against the model's own forward passes."""

import pytest

torch = pytest.importorskip("torch")

from support.tiny_blockwise import predicted, text, trained

from rescore.decode.draft.drafter import drafts_of
from rescore.decode.draft.token_recycling import TokenRecyclingDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.models.blockwise import BlockwiseTarget


class Watched(TokenRecyclingDrafter):
    """Records the steps and the drafts proposed for them."""

    def open(self, prompts, shaping):
        self.session, self.steps = super().open(prompts, shaping), []
        propose = self.session.propose

        def keep(step):
            drafts = propose(step)
            self.steps.append((step, drafts))
            return drafts

        self.session.propose = keep
        return self.session


def test_every_token_read_is_recycled():
    """The latest prediction of every token of prompt, text and tree nodes."""
    prompt, drafter, options = text(9, seed=3), Watched(), Options(max_tokens=14)
    plain = generate(BlockwiseTarget(trained()), [prompt], None, options)
    drafted = generate(BlockwiseTarget(trained()), [prompt], drafter, options)
    assert drafted[0].tokens.tolist() == plain[0].tokens.tolist()
    assert drafted[0].statistics.passes < plain[0].statistics.passes
    wanted = {}
    for step, _ in drafter.steps:
        history, last = step.histories[0].tolist(), step.last[0]
        if not wanted:
            wanted = {history[at - 1]: predicted(history[:at]) for at in range(1, len(history) - 1)}
        read = history[: len(history) - 1 - len(last.accepted)]
        wanted[read[-1]] = predicted(read)
        for node, token in enumerate(last.tree.tokens.tolist()):
            path = last.tree.tokens[last.tree.path_to(node)].tolist()
            wanted[token] = predicted([*read, *path])
    (matrix,) = drafter.session._matrices
    assert {token: set(ids.tolist()) for token, (ids, _) in matrix._after.items()} == {
        token: set(ids) for token, ids in wanted.items()
    }


def test_drafts_keep_to_their_room():
    drafter = Watched()
    made = generate(BlockwiseTarget(trained()), [text(9, seed=3)] * 2, drafter, Options(max_tokens=3))
    assert [len(one.tokens) for one in made] == [3, 3]
    assert (
        max(
            draft.tree.depths.max(initial=0)
            for step, proposed in drafter.steps
            for draft in drafts_of(proposed, step.room)
        )
        <= 2
    )
