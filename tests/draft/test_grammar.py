"""Structures of JSON schemas, tools, regular expressions and grammars: random walks through what they allow end in what
they describe; states that fork equal a matcher that reads straight on.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import numpy as np
import pytest
from support.paths import ROOT
from support.refusals import refuses
from support.steps import texts_of

llguidance = pytest.importorskip("llguidance")
tokenizers = pytest.importorskip("tokenizers")
jsonschema = pytest.importorskip("jsonschema")

from rescore.decode.draft import grammar_trial
from rescore.decode.draft.blended_drafter import blend_rescorer
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.drafter import drafts_of
from rescore.decode.draft.structure import Grammar
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.structure import State

TOKENIZER = tokenizers.Tokenizer.from_file(str(ROOT / "data/demo/tokenizer.json"))
STRING = r'"(\\.|[^"\\])*"'
V, ENDS = 49_160, (2, 0)  # more ids than the tokenizer's, as of models with padded embeddings
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["a", "bc", "bcd"]},
        "sizes": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}
MOVE = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
PARAMETERS = {"wait": {"type": "object", "properties": {}}, "move": MOVE}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": one}} for name, one in PARAMETERS.items()]


def allowed(state: State) -> np.ndarray:
    return np.flatnonzero(state.mask())


def walks(grammar: Grammar, count: int) -> list[str]:
    """Random texts of a structure, of so many those that end within 120 tokens."""
    found = []
    for seed in range(count):
        rng, state, text = np.random.default_rng(seed), grammar.start(V, ENDS), []
        while len(text) < 120:
            tokens = allowed(state)
            if state.accepting and (len(tokens) == len(ENDS) or rng.random() < 0.5):
                found.append(TOKENIZER.decode(text))
                break
            text.append(int(rng.choice(tokens[~np.isin(tokens, ENDS)])))
            state = state.step(text[-1])
    return found


def test_json_of_a_schema():
    found = walks(Grammar.json_schema(SCHEMA, TOKENIZER), 60)
    assert len(found) > 10
    for text in found:
        value = json.loads(text)
        jsonschema.validate(value, SCHEMA)
        assert re.sub(STRING, '""', text) == re.sub(STRING, '""', json.dumps(value))


def test_what_json_dumps_writes_is_accepted():
    value = {"name": "Zoë", "kind": "bcd", "sizes": [1, -20, 3]}
    tight, free = (Grammar.json_schema(json.dumps(SCHEMA), TOKENIZER, whitespace=free) for free in (False, True))
    plain, spread = (json.dumps(value, ensure_ascii=False, indent=indent) for indent in (None, 1))
    for grammar, text in ((tight, plain), (free, plain), (free, spread)):
        assert grammar.start(V, ENDS).after(TOKENIZER.encode(text).ids).accepting
    refuses(ValueError, lambda: tight.start(V, ENDS).after(TOKENIZER.encode(spread).ids))


def test_calls_of_tools():
    one, several = (walks(Grammar.tools(TOOLS, TOKENIZER, several=several), 40) for several in (False, True))
    calls = [json.loads(text) for text in one]
    assert {call["name"] for call in calls} == {"wait", "move"} and all(
        {*call} == {"name", "arguments"} for call in calls
    )
    assert all(call["name"] == "wait" or type(call["arguments"]["x"]) is int for call in calls)
    assert {call["name"] for text in several for call in json.loads(text)} <= {"wait", "move"}


def test_copies_of_a_prompt_are_values_in_the_tokens_that_json_gives_them():
    """What `json.dumps` writes of a word of the prompt holds the copy's tokens; a prompt has others for the word."""
    grammar, prompt = Grammar.tools(TOOLS, TOKENIZER), "Weather in New York, on the 25th?"
    copies = grammar.start(V, ENDS).copies(np.array(TOKENIZER.encode(prompt).ids, np.int32))
    for value in ("New York", 25):
        ids = TOKENIZER.encode(json.dumps({"x": value})).ids[:-2]
        begun = next(i for i, token in enumerate(ids) if TOKENIZER.decode([token]) in (' "', " ") and i > 1)
        assert any(copy[1 : 1 + len(ids) - begun].tolist() == ids[begun:] for copy in copies), value
    assert not len(Grammar.regex("[a-z]+", TOKENIZER).start(V, ENDS).copies(np.array([1], np.int32)))


def test_drafts_copy_values_from_the_prompt():
    """The tree under the structure holds the prompt's value, which no other source knows; so it does in a group."""
    ask, call = TOKENIZER.encode("Call Zanzibar now. Call: ").ids, TOKENIZER.encode('{"name": "Zanzibar"').ids
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    state = Grammar.json_schema(schema, TOKENIZER).start(V, ENDS)
    rest = call[3:]
    drafter = TreeDrafter(None, blend_rescorer(V, None, HEADLESS), nodes=16)
    for rows, groups in ((1, ()), (2, (7, 7))):
        session = drafter.open([np.array(ask)] * rows, Shaping())
        texts = texts_of([ask] * rows, state=[state] * rows, group=groups)
        step = DraftStep(texts=texts, room=[20] * rows)
        for taken in (call[:1], call[1:3]):
            for text in texts:
                text.append(taken)
                text.state = text.state.after(taken)
            proposed = session.propose(step)
        for draft in drafts_of(proposed, step.room):
            assert draft.tree.accepted(rest) >= len(rest) - 1


def test_a_pydantic_model():
    pydantic = pytest.importorskip("pydantic")

    class Person(pydantic.BaseModel):
        age: int
        sure: bool

    found = walks(Grammar.json_schema(Person, TOKENIZER), 20)
    assert found and all(map(Person.model_validate_json, found))


def test_regular_expressions_and_grammars():
    dates = walks(Grammar.regex(r"20[0-9]{2}-0[1-9]-[0-2][1-8]", TOKENIZER), 20)
    assert len(list(map(date.fromisoformat, dates))) == 20
    for pattern, text in ((r"\d\D", "7x"), (r"[\w-]{2}", "_-"), (r"\\d", r"\d"), (r"\s\S", "\tx")):
        state = Grammar.regex(pattern, TOKENIZER).start(V, ENDS).after(TOKENIZER.encode(text).ids)
        assert state.accepting
    digits = Grammar.regex(r"\d{3}", TOKENIZER).start(V, ENDS)  # of ASCII alone
    assert {TOKENIZER.decode([token]) for token in allowed(digits)} == {*"0123456789"}
    sums = walks(Grammar.lark('start: NUMBER ("+" NUMBER)*\nNUMBER: /[1-9][0-9]?/', TOKENIZER), 20)
    assert all(re.fullmatch(r"[1-9]\d?(\+[1-9]\d?)*", text) for text in sums) and any("+" in text for text in sums)


def test_states_that_fork_equal_a_matcher_that_reads_on():
    """The masks along a text, after other branches were followed, are those of llguidance itself."""
    tokenizer = llguidance.LLTokenizer(TOKENIZER.to_str(), n_vocab=V, eos_token=list(ENDS))
    style = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(SCHEMA), style))
    state, rng = Grammar.json_schema(SCHEMA, TOKENIZER).start(V, ENDS), np.random.default_rng(1)
    for token in TOKENIZER.encode('{"name": "x", "kind": "bc", "sizes": [7]}').ids:
        mask = np.zeros((V + 31) // 32, np.uint32)
        matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        own = allowed(state)
        assert own.tolist() == np.flatnonzero(np.unpackbits(mask.view(np.uint8), count=V, bitorder="little")).tolist()
        assert own.max() < TOKENIZER.get_vocab_size()
        for other in rng.choice(own, 2):
            assert state.step(int(other)) is state.step(int(other))
        matcher.consume_token(token)
        state = state.step(token)
    assert state.accepting and {*ENDS} <= {*allowed(state).tolist()}
    assert state.step(ENDS[0]).ended and not state.step(ENDS[0]).allowed().any()


@pytest.mark.parametrize(
    "make, error, told",
    [
        (lambda: Grammar.json_schema({"type": "nothing"}, TOKENIZER), ValueError, ["nothing"]),
        (lambda: Grammar.json_schema("{", TOKENIZER), ValueError, ["schema"]),
        (lambda: Grammar.json_schema(f'"{"x" * (1 << 20)}"', TOKENIZER), ValueError, ["1,048,576"]),
        (lambda: Grammar.regex("(", TOKENIZER), ValueError, ["invalid"]),
        (lambda: Grammar.lark("start: x", TOKENIZER), ValueError, ["unknown"]),
        (lambda: Grammar.tools([], TOKENIZER), ValueError, ["tools"]),
        (lambda: Grammar.tools([{"parameters": {}}], TOKENIZER), ValueError, ["tools[0]"]),
        (lambda: Grammar.json_schema({"$ref": "#/$defs/none"}, TOKENIZER), ValueError, ["none"]),
        (lambda: Grammar.regex("a", object()), TypeError, ["object"]),
    ],
)
def test_refusals(make, error, told):
    refuses(error, lambda: make().start(V, ENDS), *told)


NESTED: dict = {"type": "integer"}
for _ in range(5000):
    NESTED = {"type": "array", "items": NESTED}
CYCLIC: dict = {}
CYCLIC["items"] = CYCLIC
CHAIN = {f"l{i}": {"$ref": f"#/$defs/l{i + 1}"} for i in range(4000)} | {"l4000": {"type": "null"}}
RULES = "\n".join(f"r{i}: r{i + 1}" for i in range(4000))
REFERENCES = {f"l{i}": {"anyOf": [{"$ref": f"#/$defs/l{i - 1}"}] * 2} for i in range(1, 60)} | {"l0": {"type": "null"}}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Grammar.json_schema(NESTED, TOKENIZER),
        lambda: Grammar.json_schema(CYCLIC, TOKENIZER),
        lambda: Grammar.json_schema("[" * 1_000_000, TOKENIZER),
        lambda: Grammar.json_schema({"$ref": "#"}, TOKENIZER),
        lambda: Grammar.json_schema({"$defs": REFERENCES, "$ref": "#/$defs/l59"}, TOKENIZER),
        lambda: Grammar.json_schema({"$defs": CHAIN, "$ref": "#/$defs/l0"}, TOKENIZER),
        lambda: Grammar.lark(f'start: r0\n{RULES}\nr4000: "a"', TOKENIZER),
        lambda: Grammar.json_schema({"enum": [f"value {i}" for i in range(45_000)]}, TOKENIZER),
        lambda: Grammar.json_schema({"properties": {f"p{i}": {} for i in range(30_000)}}, TOKENIZER),
        lambda: Grammar.json_schema({"type": "array", "minItems": 10**9}, TOKENIZER),
        lambda: Grammar.json_schema({"type": "string", "pattern": "^(a|b)*a(a|b){30}$"}, TOKENIZER),
        lambda: Grammar.regex(r"((a{1,1000}){1,1000}){1,1000}", TOKENIZER),
        lambda: Grammar.regex(r"(a?){5000}a{5000}", TOKENIZER),
        lambda: Grammar.regex("(" * 200_000 + ")" * 200_000, TOKENIZER),
        lambda: Grammar.lark('start: start start | "a" | ', TOKENIZER),
        lambda: Grammar.lark("start: x\nx: y\ny: x", TOKENIZER),
        lambda: Grammar.lark("start: " + "(" * 100_000 + '"a"' + ")" * 100_000, TOKENIZER),
        lambda: Grammar.lark("start: " + " | ".join(f'"word{i}"' for i in range(20_000)), TOKENIZER),
    ],
)
def test_hostile_grammars_end_or_are_refused(make):
    """In bounded time and memory: either a state that goes on, or an error of a few lines."""
    try:
        state = make().start(V, ENDS)
        for _ in range(20):
            if not len(tokens := np.setdiff1d(allowed(state), ENDS)):
                break
            state = state.step(int(tokens[0]))
    except ValueError as error:
        assert re.match("(structure|schema|pattern): ", str(error)) and len(str(error)) < 600


def test_a_grammar_that_takes_too_long(monkeypatch):
    """Its patterns are intersected pairwise."""
    monkeypatch.setattr(grammar_trial, "SECONDS", 0.5)
    schema = {"patternProperties": {f"^p{i}$": {} for i in range(2000)}}
    refuses(ValueError, lambda: Grammar.json_schema(schema, TOKENIZER).start(V, ENDS), "0.5")


def test_trials_after_one_that_overflows():
    """Share a process, which is not the one that has ended; threads have their own."""
    small = [f'start: "{"word" * 400}{i}"' for i in range(6)]
    assert grammar_trial.fails(llguidance.LLMatcher.grammar_from_lark(small[0])) is None
    (waiting,) = grammar_trial._waiting
    for text in small[1:3]:
        assert grammar_trial.fails(text) is None
        assert grammar_trial._waiting == [waiting] and waiting._process.poll() is None
    assert "stack" in grammar_trial.fails(f'start: r0\n{RULES}\nr4000: "b"')
    assert waiting._process.poll() is not None
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(grammar_trial.fails, small[3:])) == [None] * 3
    assert len(grammar_trial._waiting) == 1
    grammar_trial._waiting[0]._process.kill()  # by someone else: the next trial begins another
    assert grammar_trial.fails(small[0] + "\n") is None


def test_a_run_is_what_masks_say_one_by_one():
    state = Grammar.json_schema(SCHEMA, TOKENIZER).start(V, ENDS)
    matcher = llguidance.LLMatcher(
        llguidance.LLTokenizer(TOKENIZER.to_str(), n_vocab=V, eos_token=list(ENDS)),
        llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(SCHEMA), {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
        ),
    )
    runs = 0
    for token in TOKENIZER.encode('{"name": "x", "kind": "bc", "sizes": [7]}').ids:
        ahead = matcher.deep_copy()
        for forced in state.run:
            mask = np.zeros((V + 31) // 32, np.uint32)
            ahead.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            assert np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist() == [forced]
            assert ahead.consume_token(forced)
        runs += len(state.run) > 2
        matcher.consume_token(token)
        state = state.step(token)
    assert runs
