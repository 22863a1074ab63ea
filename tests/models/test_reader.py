"""A small model that reads along gives the same logits as when it reads every history from the beginning."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.refusals import refuses
from support.steps import texts_of
from support.tiny_blockwise import CONFIG, V, untrained

from rescore.decode.models.blockwise import BlockwiseTarget
from rescore.decode.models.reader import Reader

MODEL = untrained(config=structs.replace(CONFIG, heads=1))
ids = st.lists(st.integers(0, V - 1), min_size=1, max_size=6)


class Counting(BlockwiseTarget):
    """Remembers the blocks that it read."""

    def __init__(self, context: int | None = None):
        super().__init__(MODEL)
        self.blocks = []
        self.context = context

    def read(self, block, cache):
        self.blocks.append(block)
        assert self.context is None or (block.positions < self.context).all()
        return super().read(block, cache)


def scratch(history) -> torch.Tensor:
    """Logits [V] after a history read at once."""
    with torch.no_grad():
        return MODEL.logits(MODEL(torch.tensor([list(history)]))[0, -1], 1)


def close(got, expected) -> None:
    torch.testing.assert_close(got, expected, atol=5e-5, rtol=0)


def array(tokens) -> np.ndarray:
    return np.array(tokens, np.int32)


def sync(reader, histories, numbers=None) -> torch.Tensor:
    return reader.sync(texts_of(histories, numbers))


@settings(max_examples=40)
@given(st.data())
def test_reading_along_equals_reading_from_the_beginning(data):
    """Drafts of any length, of which any part is accepted and anything follows; requests come to an end or change
    places.
    """
    copies, ahead = data.draw(st.integers(1, 3)), 3
    texts = [data.draw(ids) for _ in range(data.draw(st.integers(1, 3)))]
    reader, numbers = Reader(BlockwiseTarget(MODEL), list(map(array, texts)), ahead=ahead, copies=copies), None
    for _ in range(4):
        got = sync(reader, texts, numbers)
        drafts = [[] for _ in range(len(texts) * copies)]
        for row, logits in enumerate(got):
            close(logits, scratch(texts[row // copies]))
        for _ in range(data.draw(st.integers(0, ahead))):
            sources = [row // copies * copies + data.draw(st.integers(0, copies - 1)) for row in range(len(drafts))]
            tokens = [data.draw(st.integers(0, V - 1)) for _ in drafts]
            drafts = [[*drafts[source], token] for source, token in zip(sources, tokens)]
            got = reader.extend(torch.tensor(tokens), torch.tensor(sources) if copies > 1 else None)
            for row, logits in enumerate(got):
                close(logits, scratch([*texts[row // copies], *drafts[row]]))
        for i, text in enumerate(texts):
            draft = drafts[i * copies + data.draw(st.integers(0, copies - 1))]
            text += [*draft[: data.draw(st.integers(0, len(draft)))], *data.draw(ids)[:2]]
        if data.draw(st.booleans()):
            rows = data.draw(st.permutations(range(len(texts))))[: data.draw(st.integers(1, len(texts)))]
            texts, numbers = [texts[row] for row in rows], [(numbers or range(len(texts)))[row] for row in rows]


def test_what_was_accepted_is_not_read_again_and_another_text_can_be_looked_at_in_passing():
    model, texts = Counting(), [array([1, 2, 3, 6]), array([4, 5, 7])]
    reader = Reader(model, [text[:-1] for text in texts], ahead=2)
    sync(reader, texts)
    close(reader.peek(1, texts[1], [8, 9]), scratch([4, 5, 7, 8, 9]))
    close(torch.stack([*sync(reader, texts)]), torch.stack([scratch(text) for text in texts]))
    reader.extend(torch.tensor([8, 9]))
    reader.extend(torch.tensor([10, 11]))
    sync(reader, [array([1, 2, 3, 6, 8, 10, 12]), array([4, 5, 7, 3])])
    read = [block.ids.tolist() for block in model.blocks]
    assert read[:3] == [[[1, 2, 3], [4, 5, 0]], [[6], [7]], [[6, 0], [8, 9]]]
    assert read[3:] == [[[6], [7]], [[8], [9]], [[10], [11]], [[12], [3]]]


def test_a_history_beyond_the_context_is_read_from_a_later_token_on():
    """Context 10 and 2 tokens ahead leave 8; the first of them go in steps of 4."""
    model = Counting(context=10)
    long, short = list(range(20)), [3, 1]
    reader = Reader(model, [array(long[:3]), array(short)], ahead=2)
    for n in range(4, 21):
        got = sync(reader, [array(long[:n]), array(short)])
        origin = min(origin for origin in range(0, 20, 4) if n - origin <= 8)
        close(got[0], scratch(long[origin:n]))
        close(got[1], scratch(short))
        tokens = torch.tensor([5, 6])
        reader.extend(tokens)
        close(reader.extend(tokens)[0], scratch([*long[origin:n], 5, 5]))
    reread = [block.width for block in model.blocks if block.width > 1]
    assert reread == [3, 5, 5, 5]  # the prompts, then what is left once per 4 tokens


def test_prompts_may_be_empty_or_beyond_the_context():
    reader = Reader(Counting(context=10), [array([]), array(range(20))], ahead=2)
    got = sync(reader, [array([1]), array([*range(20), 7])])
    close(got[0], scratch([1]))
    close(got[1], scratch([*range(16, 20), 7]))
    empty = Reader(BlockwiseTarget(MODEL), [array([])], ahead=0)
    close(sync(empty, [array([1])])[0], scratch([1]))


def test_a_text_is_read_without_the_ids_that_the_model_lacks():
    reader = Reader(BlockwiseTarget(MODEL), [array([V + 7]), array([1])], ahead=1, vocab_size=5000)
    got = sync(reader, [array([V + 7]), array([1, V, 2, 4999])])
    close(got[1, :V], scratch([1, 2]))
    assert got.shape == (2, 5000) and got[0].isfinite().any()
    close(reader.extend(torch.tensor([3, V + 1]))[0, :V], scratch([0, 3]))  # nothing known is read as id 0
    close(reader.peek(1, array([1, V, 2]), [V])[:V], scratch([1, 2]))
    got = sync(reader, [array([V + 7, 4, V, 5]), array([1, 3])])
    close(got[:, :V], torch.stack([scratch([0, 4, 5]), scratch([1, 3])]))


def test_messages():
    model = BlockwiseTarget(MODEL)
    refuses(ValueError, lambda: Reader(model, [array([1])], ahead=96), "ahead", "0..95", "96")
    reader = Reader(model, [array([1, 2]), array([3])], ahead=1)
    refuses(ValueError, lambda: sync(reader, [array([1, 2])], [7]), "[0, 1]", "[7]")
    refuses(ValueError, lambda: reader.peek(7, array([1, 2]), [1]), "[0, 1]", "7")
    refuses(ValueError, lambda: sync(reader, [array([1, 2]), array([])]), "histories[1]", "[n]", "[0]")
    refuses(ValueError, lambda: sync(reader, [array([1, 3, 4]), array([3])]), "histories[0]", "2", "[1, 3]")
    refuses(ValueError, lambda: sync(reader, [array([1, 2]), array([3, 24])]), "histories[1]", "0", "3..24")
    sync(reader, [array([1, 2]), array([3])])
    reader.extend(torch.tensor([1, 1]))
    refuses(ValueError, lambda: reader.extend(torch.tensor([1, 1])), "another", "1")
    refuses(ValueError, lambda: reader.peek(0, array([1, 2]), [1, 1]), "drafted", "1", "2")
