"""Prompt files as other programs write them."""

import gzip
import json
from types import SimpleNamespace
from typing import Any

import pytest
from support.refusals import refuses

from rescore.decode.loop.prompts import read_prompts

NO_TEXT: Any = SimpleNamespace(encode=None, encode_more=None, encode_chat=None)  # all prompts are ids


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_byte_order_mark_is_skipped(tmp_path, name, end):
    data = b"\xef\xbb\xbf" + end.join(json.dumps({"prompt": [number]}) for number in range(3)).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    (prompts,) = read_prompts(tmp_path / name, 9, NO_TEXT).values()
    assert [(prompt.number, prompt.tokens.tolist()) for prompt in prompts] == [(0, [0]), (1, [1]), (2, [2])]


def test_other_bytes_name_their_line(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"prompt": [1]}\n{"prompt": [2], "task": "\xe9"}\n\xef\xbb\xbf\n')
    refuses(ValueError, lambda: read_prompts(tmp_path / "a.jsonl", 9, NO_TEXT), "a.jsonl", "3")
