"""The example of reinforcement learning, with a small model."""

import json
import re
import subprocess
import sys

import pytest
from support.paths import ROOT

pytest.importorskip("trl")
pytest.importorskip("torch")

from support import tiny_transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

WORDS = ["<unk>", "<end>", "<pad>", *(f"w{i}" for i in range(37))]
TEMPLATE = "{% for m in messages %}w1 {{ m.content }} {% endfor %}w2"


def test_the_samples_of_a_step_are_drafted(tmp_path):
    """The model trains, and the passes of every step are fewer than its tokens."""
    folder = tmp_path / "model"
    tiny_transformers.build("llama", vocab_size=len(WORDS)).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.WhitespaceSplit(), decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"eos_token": "<end>", "pad_token": "<pad>", "unk_token": "<unk>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}))
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "grpo.py", folder], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    steps = [tuple(map(int, found)) for found in re.findall(r"(\d+) tokens in (\d+) passes", done.stdout)]
    assert len(steps) == 2 and all(passes < tokens for tokens, passes in steps), done.stdout
