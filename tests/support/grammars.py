"""What a grammar reads, by a tokenizer whose tokens are single bytes."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from rescore.decode.draft.structure import Grammar

NAMES = ["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
V, END = len(NAMES), 2


def byte_tokenizer(*, prefix_space: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab={name: token for token, name in enumerate(NAMES)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(NAMES[:3])
    return tokenizer


BYTES = byte_tokenizer()


def reads(grammar: Grammar, *texts: str) -> list[bool]:
    """Whether each text is one of the grammar's."""
    start = grammar.start(V, [END])
    return [_reads(start, text) for text in texts]


def _reads(state, text):
    for token in BYTES.encode(text).ids:
        if not state.allows(token):
            return False
        state = state.step(token)
    return state.accepting
