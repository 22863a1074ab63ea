"""`rescore lm build --model`: tokenizer, V, end of text and chat template from the model that the drafts are for."""

import json

import pytest
from huggingface_hub import constants
from support import cli, hub_cache, tiny_transformers
from support.models import assert_same_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from rescore.decode.models.chat import ChatTemplate
from rescore.lm.build.in_memory import build
from rescore.lm.model.ngram import NGram

TOKENS, V, NAME = 24, 40, "someone/small-llama"
START, END = 1, 2  # <|im_start|>, <|im_end|>
SAID = [("user", [5, 6]), ("assistant", [7, 8, 9]), ("user", [5, 7]), ("assistant", [8])]
CHATML = (
    "{% for m in messages %}<|im_start|> {{ m.role }} {{ m.content }} <|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)
BARE = "{% for m in messages %}{{ m.role }} {{ m.content }}\n{% endfor %}"


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A chat model in the Hub's cache whose logits are padded."""
    cache, folder = tmp_path / "hub", tmp_path / "model"
    cache.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    tiny_transformers.build("llama", vocab_size=V).save_pretrained(folder)
    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "user", "assistant"]
    vocabulary = [*words, *(f"w{i}" for i in range(5, TOKENS))]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="w5"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(words[:3])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_template(folder, CHATML)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [END, 0]}))
    hub_cache.add_model(cache, NAME, folder)
    return folder


def write_template(folder, template: str | None) -> None:
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "unk_token": "w5"}
    config |= {"chat_template": template} if template else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def spelt(ids: list[int]) -> str:
    return " ".join(f"w{i}" for i in ids)


def chat(said=SAID) -> str:
    return json.dumps({"messages": [{"role": role, "content": spelt(ids)} for role, ids in said]}) + "\n"


def text(ids: list[int]) -> str:
    return json.dumps({"text": spelt(ids)}) + "\n"


def ids_of(said=SAID) -> list[int]:
    return [token for role, ids in said for token in (START, 3 + (role == "assistant"), *ids, END)]


def built(capsys, tmp_path, lines: str, *more, name=NAME) -> NGram:
    (tmp_path / "logs.jsonl").write_text(lines)
    out = tmp_path / "lm.ngram"
    cli.figures(capsys, f"lm build {tmp_path}/logs.jsonl --model", name, "--order", 3, "-o", out, *more)
    return NGram.open(out)


@pytest.mark.parametrize("by, times", [("name", 1), ("folder", 1), ("name", 40)])
def test_chats_and_documents_are_counted_as_the_model_reads_them(model, capsys, tmp_path, monkeypatch, by, times):
    """Many lines on all threads."""
    monkeypatch.setattr("rescore.lm.build.inputs.PIECE_BYTES", 2000)
    monkeypatch.setattr("rescore.lm.build.tokens.BATCH", 300)
    lines, want = chat() + text([9, 8, 7]) + chat(SAID[:2]), [ids_of(), [9, 8, 7], ids_of(SAID[:2])]
    found = built(capsys, tmp_path, lines * times, "--threads", 4, name=NAME if by == "name" else model)
    assert_same_model(found, build(want * times, order=3, vocab_size=V, end_of_text=END))
    assert found.end_of_text == END and found.metadata["tokenizer"] and found.vocab_size == V


def test_answers_are_ended_where_the_template_does_not(model, capsys, tmp_path):
    write_template(model, BARE)
    parts = [[3, 5, 6, 4, 7, 8, 9], [3, 5, 7, 4, 8]]  # the two turns, each with its end
    assert_same_model(built(capsys, tmp_path, chat(), name=model), build(parts, order=3, vocab_size=V, end_of_text=END))


def test_the_end_of_a_text_may_be_another_token_than_that_of_an_answer(model, capsys, tmp_path):
    found = built(capsys, tmp_path, chat(), "--end-of-text", "<|endoftext|>")
    assert_same_model(found, build([ids_of()], order=3, vocab_size=V, end_of_text=0))


def test_what_is_no_chat_is_skipped_and_reported(model, capsys, tmp_path):
    bad = ['{"messages": []}', '{"messages": "hello"}', '{"messages": [{"content": "w5"}]}', '{"conversations": []}']
    (tmp_path / "logs.jsonl").write_text(chat() + "\n".join(bad) + "\n")
    arguments = f"lm build {tmp_path}/logs.jsonl --order 3 -o {tmp_path}/lm.ngram --model"
    report = cli.figures(capsys, arguments, NAME)
    assert report["skipped"]["reasons"] == {"no chat": 3, "no text": 1}
    write_template(model, None)
    cli.refusal(capsys, arguments, model, "--strict", names=["line 1", "messages", "--model"])


def test_the_model_drafts_for_its_target(model, capsys, tmp_path):
    """And so does one built with the tokenizer alone, which has fewer ids than the logits."""
    built(capsys, tmp_path, chat() * 20)
    (tmp_path / "t.jsonl").write_text(text([9, 8, 7, 6]) * 20)
    few = f"lm build {tmp_path}/t.jsonl --tokenizer {model} --end-of-text <|im_end|> -o {tmp_path}/few.ngram"
    cli.done(capsys, few)
    ways = ("--drafter none", f"--lm {tmp_path}/lm.ngram", f"--lm {tmp_path}/few.ngram")
    texts = {cli.done(capsys, f"generate --model {model} --max-tokens 12 {way}", "w5 w6").out for way in ways}
    assert len(texts) == 1


def test_a_chat_is_what_the_template_writes(model):
    messages = json.loads(chat())["messages"]
    whole = ChatTemplate(model).whole(messages, ["<|im_end|>"])
    assert whole == ChatTemplate(model).text(messages).removesuffix("<|im_start|> assistant ").rstrip()
