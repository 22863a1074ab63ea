"""Drafts inside Hugging Face's generate: one argument more, the same text, fewer passes of the model.

python examples/huggingface.py [MODEL]; MODEL is any causal model, by its folder or its name on the Hugging Face Hub.
"""

import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rescore import Drafting

name = sys.argv[1] if len(sys.argv) > 1 else "HuggingFaceTB/SmolLM2-135M-Instruct"
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).eval()

question = (
    "Correct the spelling: The ligth of the sun is made of many colors. The air scaters blue ligth more than red "
    "ligth, so the sky looks blue at noon and red in the evening."
)
chat = [{"role": "user", "content": question}]
inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
start = inputs["input_ids"].shape[1]

drafting = Drafting()  # or Drafting("lm.ngram"): with an n-gram model of the tokenizer
texts = []
for name, more in {"plain": {}, "drafted": {"custom_generate": drafting}}.items():
    began = time.perf_counter()
    texts.append(model.generate(**inputs, max_new_tokens=64, do_sample=False, **more)[0, start:])
    print(f"{name:8} {len(texts[-1])} tokens, {len(texts[-1]) / (time.perf_counter() - began):.1f} per second")
assert torch.equal(*texts)
print(f"{drafting.statistics[0].passes} passes instead of {len(texts[0])}:\n{tokenizer.decode(texts[1])}")
