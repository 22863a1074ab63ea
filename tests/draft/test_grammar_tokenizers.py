"""Grammars under tokenizers of several kinds: what a random walk writes is, decoded, of the grammar."""

import gc
import json
import re
import weakref

import numpy as np
import pytest

llguidance = pytest.importorskip("llguidance")
pytest.importorskip("tokenizers")
from support.grammars import BYTES, END, V, byte_tokenizer, reads
from support.paths import ROOT
from support.refusals import refuses
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from rescore.decode.draft.grammar_tokenizer import fast_tokenizer, guided, spelling_of
from rescore.decode.draft.structure import Grammar

SPECIAL = ["<unk>", "<s>", "</s>"]
LETTERS = [*"▁yesnomatb-0123456789YNESO", "ye", "yes", "▁yes", "no", "▁no", "▁m", "may", "be", "maybe", "▁maybe"]
FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]
MERGES = [("y", "e"), ("ye", "s"), ("▁", "yes"), ("n", "o"), ("▁", "no"), ("▁", "m"), ("b", "e")]
LLAMA = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)
PATTERNS = ["(yes|no|maybe not)", "[ab]{2}-[0-9]{2}", "[0-9]{2,4}", "(YES|NO) [0-9]"]


def made(model, *, normalizer=None, pre_tokenizer=None, decoder=None):
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(SPECIAL)
    for name, part in (("normalizer", normalizer), ("pre_tokenizer", pre_tokenizer), ("decoder", decoder)):
        if part is not None:
            setattr(tokenizer, name, part)
    return tokenizer


def bpe(**options):
    vocab = {name: token for token, name in enumerate([*SPECIAL, *FALLBACK, *LETTERS])}
    return models.BPE(vocab=vocab, merges=MERGES, byte_fallback=True, unk_token="<unk>", **options)


def unigram():
    return models.Unigram([(name, -float(place)) for place, name in enumerate([*SPECIAL, *LETTERS])], unk_id=0)


SPACES = normalizers.Replace(" ", "▁")
TOKENIZERS = {
    "bytes": byte_tokenizer(),
    "prefix": byte_tokenizer(prefix_space=True),
    "prefix in a sequence": byte_tokenizer(),
    "prepend": made(bpe(), normalizer=normalizers.Sequence([normalizers.Prepend("▁"), SPACES]), decoder=LLAMA),
    "metaspace first": made(bpe(), pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first"), decoder=LLAMA),
    "metaspace decoder": made(unigram(), pre_tokenizer=pre_tokenizers.Metaspace(), decoder=decoders.Metaspace()),
    "lower case": made(bpe(), normalizer=normalizers.Sequence([normalizers.Lowercase(), SPACES]), decoder=LLAMA),
    "dropout": made(bpe(dropout=0.5), normalizer=SPACES, decoder=LLAMA),
}
split = pre_tokenizers.Split("-", "isolated")
TOKENIZERS["prefix in a sequence"].pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel()])


def walk(grammar, vocab_size, end, seed):
    state, text, rng = grammar.start(vocab_size, [end]), [], np.random.default_rng(seed)
    while not state.ended and len(text) < 40:
        text.append(int(rng.choice(np.flatnonzero(state.mask()))))
        state = state.step(text[-1])
    return text[:-1]


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS.keys())
@pytest.mark.parametrize("pattern", PATTERNS)
def test_walks_are_of_the_grammar(tokenizer, pattern):
    grammar = Grammar.regex(pattern, tokenizer)
    for seed in range(8):
        ids = walk(grammar, tokenizer.get_vocab_size(), END, seed)
        assert re.fullmatch(pattern, tokenizer.decode(ids)), tokenizer.decode(ids)


@pytest.mark.parametrize(
    "tokenizer, named",
    [
        (made(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"), decoder=decoders.WordPiece()), ["WordPiece"]),
        (made(models.WordLevel({"a": 0}, unk_token="a")), ["WordLevel"]),
        (made(bpe(end_of_word_suffix="</w>"), decoder=decoders.BPEDecoder()), ["BPEDecoder"]),
        (made(bpe(end_of_word_suffix="</w>"), decoder=decoders.ByteLevel()), ["BPE", "ByteLevel"]),
    ],
)
def test_tokens_that_do_not_tell_their_text_are_refused(tokenizer, named):
    refuses(ValueError, lambda: Grammar.regex("a", tokenizer).start(400, [2]), "tokenizer", *named)


def test_a_model_with_fewer_ids_than_its_tokenizer():
    """An added token, and tokens of the vocabulary, without a logit."""
    more = byte_tokenizer()
    more.add_special_tokens(["<image>"])
    more.add_tokens(["ab"])
    for vocab_size in (V - 1, V, V + 1, V + 2, V + 70):
        ids = walk(Grammar.regex("(ab){2}", more), vocab_size, END, 0)
        assert more.decode(ids) == "abab" and max(ids) < vocab_size
    fewer = Grammar.regex("(?s).", more).start(V - 9, [END])  # tokens of the vocabulary itself
    assert 100 < np.flatnonzero(fewer.mask()).max() < V - 9


def test_end_tokens_are_the_targets():
    """Also where the tokenizer has no usual name for one; its first token is then no end token."""
    names = ["!", "[END]", "a"]
    tokenizer = Tokenizer(models.BPE(vocab={name: token for token, name in enumerate(names)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["[END]"])
    state = Grammar.regex("!a?", tokenizer).start(3, [1])
    assert np.flatnonzero(state.mask()).tolist() == [0]
    assert np.flatnonzero(state.step(0).mask()).tolist() == [1, 2] and state.step(0).step(1).ended


@pytest.mark.parametrize(
    "grammar", ['start: <s> "ab" </s>', 'start: "ab" </s>', 'start: "ab" <[2]>', 'start: "ab" </s>?']
)
def test_an_end_token_within_a_grammar_ends_the_text(grammar):
    text = ["<s>"] * ("<s>" in grammar) + ["a", "b"]
    state = Grammar.lark(grammar, BYTES).start(V, [END])
    for name in text:
        assert not state.accepting
        assert np.flatnonzero(state.mask()).tolist() == [BYTES.token_to_id(name)]
        state = state.step(BYTES.token_to_id(name))
    assert state.accepting and np.flatnonzero(state.mask()).tolist() == [END] and state.step(END).ended


def test_a_grammar_that_goes_on_after_an_end_token_is_refused():
    start = Grammar.lark('start: "a" </s> "b"', BYTES).start(V, [END])
    refuses(ValueError, lambda: start.step(BYTES.token_to_id("a")).mask(), "structure")
    other = Grammar.lark('start: "a" <pad> "b"', BYTES).start(V, [END])
    assert other.after([BYTES.token_to_id("a"), 0, BYTES.token_to_id("b")]).accepting


OBJECT = {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    "wrapped",
    [
        {"type": "json_schema", "json_schema": {"name": "p", "schema": OBJECT, "strict": True}},
        {"type": "json_schema", "name": "p", "schema": OBJECT},
        {"name": "p", "schema": OBJECT, "strict": True},
        json.dumps({"type": "json_schema", "json_schema": {"name": "p", "schema": OBJECT}}),
    ],
)
def test_schemas_in_a_response_format(wrapped):
    assert reads(Grammar.json_schema(wrapped, BYTES), '{"x": 1}', '{"x": "1"}', "1") == [True, False, False]


def test_schemas_of_any_json():
    for schema in (True, {}, "true"):
        assert reads(Grammar.json_schema(schema, BYTES), "1", '"a"', '{"a": [null]}') == [True] * 3


OVERLAP = {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]}


@pytest.mark.parametrize(
    "schema, named",
    [
        (OVERLAP, ["oneOf", "anyOf"]),
        ({"type": "array", "uniqueItems": True}, ["uniqueItems"]),
        ({"not": {"const": "x"}}, ["not"]),
        ({"if": {}, "then": {}}, ["if", "then"]),
        ({"type": "string", "format": "iri"}, ["format", "iri"]),
        ({"$ref": "#/$defs/none"}, ["$ref", "#/$defs/none"]),
        ({"$ref": "https://a.example/x"}, ["$ref", "https://a.example/x", "$defs"]),
        ({"type": "integer", "minimum": 5, "maximum": 1}, ["schema", "5", "1"]),
        ({"type": "number_"}, ["type", "number_"]),
        (False, ["schema", "false"]),
        ([], ["schema", "[]"]),
    ],
)
def test_refusals_of_schemas_name_a_remedy(schema, named):
    message = refusal(schema)
    assert all(name in message for name in named) and "coerce" not in message and "complexity" not in message


def refusal(schema):
    with pytest.raises(ValueError) as caught:
        Grammar.json_schema(schema, BYTES).start(V, [END])
    return str(caught.value)


def test_a_tokenizer_is_read_once_while_it_is_there(tmp_path):
    tokenizer, other = byte_tokenizer(), byte_tokenizer()
    known = guided(tokenizer, V)
    assert guided(tokenizer, V) is known and guided(other, V) is not known and guided(tokenizer, V + 1) is not known
    tokenizer.add_tokens(["<more>"])
    assert guided(tokenizer, V + 1).decode_str([V]) == "<more>"
    for name in ("one", "two"):
        tokenizer.save(str(tmp_path / f"{name}.json"))
    assert fast_tokenizer(tmp_path / "one.json") is fast_tokenizer(str(tmp_path / "two.json"))
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", sorted(TOKENIZERS.keys() - {"metaspace decoder"}))  # which it cannot read
def test_tokens_have_the_bytes_that_llguidance_reads_from_a_file(name):
    tokenizer = TOKENIZERS[name]
    ours, theirs = guided(tokenizer, tokenizer.get_vocab_size()), llguidance.LLTokenizer(tokenizer.to_str())
    for token in range(tokenizer.get_vocab_size()):
        assert ours.decode_bytes([token]) == theirs.decode_bytes([token]), tokenizer.id_to_token(token)
        assert ours.is_special_token(token) == theirs.is_special_token(token)


NAMES = {
    "wait": {"type": "object", "properties": {}},
    "go": {"type": "object", "properties": {"to": {"type": "string"}}},
}
CALLED = [{"type": "function", "function": {"name": name, "parameters": one}} for name, one in NAMES.items()]
FREE = "a < b, </think> {} 5>4 "
DEMO = Tokenizer.from_file(str(ROOT / "data/demo/tokenizer.json"))
V_DEMO = 49_152
BEGIN, CLOSE = "<tool_call>", "</tool_call>"


def read(state, text, rng):
    """The state after a text, cut into tokens anywhere; what must follow is spelt in one way alone."""
    spelling, at = spelling_of(DEMO), 0
    while at < len(text):
        ways = [tokens[rng.integers(len(tokens))] for _, tokens in spelling.first(text[at : at + 12])]
        token = ways[rng.integers(len(ways))]
        if not state.allows(token):
            allowed = np.flatnonzero(state.mask()).tolist()
            assert len(allowed) < 400, text[:at]
            token = next(one for one in allowed if spelling.tokens[one] and text.startswith(spelling.tokens[one], at))
        state, at = state.step(token), at + len(spelling.tokens[token])
    return state


def of_calls(text):
    """Whether a text is free text with calls between marks, read from its beginning."""
    while BEGIN in text:
        text = text.partition(BEGIN)[2].lstrip(" \t\r\n")
        try:
            value, size = json.JSONDecoder().raw_decode(text)
        except ValueError:
            return False
        closed = re.match(rf"\s{{0,2}}{CLOSE}", text[size:])
        if not closed or value.keys() != {"name", "arguments"} or value["name"] not in NAMES:
            return False
        text = text[size + closed.end() :]
    return True


def test_calls_between_marks():
    grammar = Grammar.tools(CALLED, DEMO, between=(BEGIN, CLOSE))
    start, rng = grammar.start(V_DEMO, [2]), np.random.default_rng(0)
    calls = ['{"name": "wait", "arguments": {}}', '{"name": "go", "arguments": {"to": "ab > <b> é"}}']
    texts = [f"{FREE}{BEGIN}{call}{CLOSE}{FREE}" for call in calls] + [FREE, f"{BEGIN}\n{calls[0]}\n{CLOSE}"]
    texts += [f"{BEGIN} {calls[1]}{CLOSE}{BEGIN}\n{calls[0]}{CLOSE}\n", f"<tool_<tool_call{BEGIN}{calls[0]} {CLOSE}>"]
    for text in texts:
        for _ in range(60):
            state = read(start, text.encode(), rng)
            assert state.accepting and state.after([2]).ended
        assert start.after(DEMO.encode(text).ids).accepting and of_calls(text)
    for text in (f"{BEGIN}{calls[0]}", f"{BEGIN}", f"{BEGIN}{calls[0]}\n</"):
        assert not start.after(DEMO.encode(text).ids).accepting
    for text in (f"{BEGIN}{calls[0]}x", f"{BEGIN}x", f"{BEGIN}{calls[0]}{calls[0]}", f"{BEGIN}{CLOSE}"):
        refuses(ValueError, lambda: start.after(DEMO.encode(text).ids), "structure")  # noqa: B023


def test_walks_with_calls_between_marks():
    """Tokens that go on past a mark are drawn more often than others."""
    spelling = spelling_of(DEMO)
    past = np.array([b">" in text[:-1] or b"<" in text[:-1] for text in spelling.tokens])
    grammar, rng = Grammar.tools(CALLED[:1], DEMO, between=(BEGIN, CLOSE), required=True), np.random.default_rng(1)
    ended = 0
    for _ in range(40):
        state, text = grammar.start(V_DEMO, [2]), list[int]()
        while len(text) < 80 and not state.ended:
            allowed = np.flatnonzero(state.mask())
            if state.accepting and rng.random() < 0.2:
                assert 2 in allowed
                break
            likely = allowed[past[allowed]]
            mark = DEMO.encode(BEGIN).ids
            if rng.random() < 0.1 and state.allows(mark[0]):
                for token in mark:
                    if not state.allows(token):
                        break
                    text.append(token)
                    state = state.step(token)
                continue
            choice = rng.choice(likely if len(likely) and rng.random() < 0.7 else allowed[allowed != 2])
            text.append(int(choice))
            state = state.step(text[-1])
        if state.accepting:
            ended += 1
            assert of_calls(spelling.text(text).decode(errors="replace")), spelling.text(text)
    assert ended > 3
