"""`rescore generate` and `bench decode` under a structure: refusals on a tiny model, texts of a real one."""

import json
import re
import shutil

import pytest
import torch
from support import cli, tiny_transformers
from support.paths import ROOT

from rescore.decode.draft.tools import in_openai_form
from rescore.decode.models.chat import ChatTemplate

V, PATTERN = 49_160, "[ab]{5} (x|y)z"
PROPERTIES = {"city": {"type": "string", "maxLength": 20}, "sunny": {"type": "boolean"}}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": [*PROPERTIES], "additionalProperties": False}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A tiny model with random weights and the demo's tokenizer."""
    folder = tmp_path_factory.mktemp("structure")
    torch.manual_seed(0)
    model = tiny_transformers.build("llama", vocab_size=V, eos_token_id=2)
    model.save_pretrained(folder / "model")
    (folder / "model" / "tokenizer.json").write_bytes((ROOT / "data/demo/tokenizer.json").read_bytes())
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "bad.json").write_text('{"type": "nothing"}')
    tool = {"name": "look", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
    (folder / "tools.json").write_text(json.dumps([{"type": "function", "function": tool}]))
    return folder


def words(world, *more) -> list:
    return ["generate", "--model", world / "model", "--max-tokens", 40, "--threads", 1, *more, "where"]


@pytest.mark.parametrize(
    "option, wanted", [("tools", re.escape('{"name": "look", "arguments": {}}')), ("regex", PATTERN)]
)
def test_texts_are_of_the_structure(world, capsys, option, wanted):
    value = PATTERN if option == "regex" else world / "tools.json"
    report = cli.figures(capsys, *words(world, f"--{option}", value, "--drafter", "blend"))
    assert re.fullmatch(wanted, report["texts"][0]["text"])


def test_structures_behind_marks(world, capsys):
    """The prompt ends with the mark, so that the text begins with the structure."""
    look = re.escape('{"name": "look", "arguments": {}}')
    for option, wanted in (
        (("--regex", PATTERN, "--after", "</think>"), PATTERN),
        (("--tools", world / "tools.json", "--between", "<call>", "</think>"), f"{look}\\s*</think>.*"),
    ):
        mark = option[3]
        report = cli.figures(capsys, *words(world, *option)[:-1], f"where {mark}")
        assert re.fullmatch(f"\\s*{wanted}", report["texts"][0]["text"], re.S)
    free = cli.figures(capsys, *words(world))["texts"][0]
    assert cli.figures(capsys, *words(world, "--regex", PATTERN, "--after", "</think>"))["texts"][0] == free


def test_the_chat_template_gets_the_tools_and_gives_the_marks(world, tmp_path, capsys, monkeypatch):
    """Of a template that writes a call as <call> JSON </call>; one without calls has no marks. Tools are read once."""
    template = (
        "{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}"
        "{% for message in messages %}<|im_start|>{{ message.content }}"
        "{% for call in message.tool_calls %}<call>{{ call.function | tojson }}</call>{% endfor %}<|im_end|>"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>{% endif %}"
    )
    model = tmp_path / "model"
    shutil.copytree(world / "model", model)
    options = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    for text, marks in ((template, ("<call>", "</call>")), (template.replace("tool_calls", "none"), None)):
        (model / "tokenizer_config.json").write_text(json.dumps(options | {"chat_template": text}))
        assert ChatTemplate(model).tool_marks() == marks
        monkeypatch.setattr("sys.stdin", open(world / "tools.json"))
        report = cli.figures(capsys, *words(world, "--chat", "--tools", "-", "--model", model))
        written = report["texts"][0]["text"]
        assert (written == '{"name": "look", "arguments": {}}') == (marks is None)
    chat = ChatTemplate(model).with_tools(in_openai_form(json.loads((world / "tools.json").read_text())))
    assert chat.text("where").startswith("[look]<|im_start|>where")


def test_drafts_change_nothing(world, capsys):
    """Also of a drafter that knows no structures."""
    found = [
        cli.figures(capsys, *words(world, "--json-schema", world / "schema.json", "--drafter", drafter))["texts"][0]
        for drafter in ("none", "blend", "prompt-lookup")
    ]
    assert found[0]["text"].startswith('{"city": "') and found[0]["tokens"] == found[1]["tokens"] == found[2]["tokens"]


def test_refusals(world, capsys):
    cli.refusal(capsys, *words(world, "--regex", "("), names=["--regex"])
    cli.refusal(capsys, *words(world, "--after", "x"), names=["--after"], status=2)
    cli.refusal(capsys, *words(world, "--regex", "a", "--between", "x", "y"), names=["--between", "--tools"], status=2)
    bad = ("--json-schema", world / "bad.json")
    cli.refusal(capsys, *words(world, *bad), names=[*bad, "nothing"])


@pytest.mark.slow
def test_a_real_model_writes_json(world, smollm2, capsys):
    question = "Is it sunny in Rome? Answer with the city and whether it is sunny, as JSON."
    arguments = ("generate", "--model", smollm2, "--chat", "--json-schema", world / "schema.json", question)
    drafted = cli.figures(capsys, *arguments)
    value = json.loads(drafted["texts"][0]["text"])
    assert set(value) == {"city", "sunny"} and isinstance(value["sunny"], bool)
    plain = cli.figures(capsys, *arguments[:-1], "--drafter", "none", question)
    assert plain["texts"][0]["text"] == drafted["texts"][0]["text"]
