"""Drafts inside llama-cpp-python: the same Llama with a draft model that knows when not to draft.

python examples/llama_cpp.py MODEL.gguf
"""

import sys

from rescore.decode.engines.llama_cpp import Draft, DraftedLlama

llm = DraftedLlama(
    model_path=sys.argv[1], draft_model=Draft(), n_ctx=2048, verbose=False
)  # Draft("lm.ngram"): with a model
answer = llm.create_chat_completion([{"role": "user", "content": "Why is the sky blue?"}], max_tokens=64, temperature=0)
print(answer["choices"][0]["message"]["content"])
