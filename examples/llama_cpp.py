"""Drafts inside llama-cpp-python: the same Llama with a draft model that knows when not to draft.

python examples/llama_cpp.py MODEL.gguf
"""

import sys

from rescore.decode.engines.llama_cpp import Draft, DraftedLlama

draft = Draft()  # Draft("lm.ngram"): with an n-gram model of the tokenizer
llm = DraftedLlama(model_path=sys.argv[1], draft_model=draft, n_ctx=2048, verbose=False)
answer = llm.create_chat_completion([{"role": "user", "content": "Why is the sky blue?"}], max_tokens=64, temperature=0)
print(answer["choices"][0]["message"]["content"])
