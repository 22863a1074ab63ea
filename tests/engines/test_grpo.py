"""The example of reinforcement learning, with a small model."""

import json
import re
import subprocess
import sys

import pytest
from support.paths import ROOT

pytest.importorskip("trl")

from support import cli, tiny_transformers

TEMPLATE = "{% for m in messages %}w1 {{ m.content }} {% endfor %}w2"


def test_the_samples_of_a_step_are_drafted(tmp_path):
    """The model trains, and the passes of every step are fewer than its tokens."""
    folder = tmp_path / "model"
    tiny_transformers.build("llama").save_pretrained(folder)
    cli.make_tokenizer(folder / "tokenizer.json", tiny_transformers.V)
    special = {"eos_token": "<|endoftext|>", "pad_token": "w36", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}))
    words = [sys.executable, ROOT / "examples" / "grpo.py", folder]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    steps = [tuple(map(int, found)) for found in re.findall(r"(\d+) tokens in (\d+) passes", done.stdout)]
    assert len(steps) == 2 and all(passes < tokens for tokens, passes in steps), done.stdout
