"""Models of Hugging Face as decoders and as references."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import transformers
from torch import Tensor

from rescore.decode.conformance.parameters import CANCEL, Parameters
from rescore.decode.conformance.reference import Logits
from rescore.lattice.structure import begin


def logits_of(model: Any) -> Logits:
    """The reference that a causal model is."""

    @torch.inference_mode()
    def logits(ids: list[int]) -> Any:
        return model(input_ids=torch.tensor([ids], device=model.device)).logits[0].double().cpu().numpy()

    return logits


class HuggingFace:
    """`model.generate(..., **arguments)` as a decoder, such as `custom_generate=Drafting()` or `assistant_model=`.

    tokenizer  of transformers, for stop strings
    lacks      features that this way of generating does not have; no way has a seed for each row of a call
    """

    def __init__(self, model: Any, *, tokenizer: Any = None, lacks: Collection[str] = (), **arguments: Any):
        self.model, self.tokenizer, self.arguments = model, tokenizer, arguments
        self.lacks = frozenset(lacks) | {"seeds"} | (set() if tokenizer else {"stop strings"})

    def __call__(self, prompts: list[list[int]], parameters: Parameters) -> list[list[int]]:
        width, device = max(map(len, prompts)), self.model.device
        pad = self.model.generation_config.pad_token_id or 0
        ids = torch.tensor([[pad] * (width - len(one)) + one for one in prompts], device=device)
        real = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in prompts], device=device)
        arguments: dict[str, Any] = {"do_sample": parameters.temperature > 0, **self.arguments}
        if parameters.temperature:
            torch.manual_seed(parameters.seeds[0])
            arguments |= {name: getattr(parameters, name) for name in ("temperature", "top_k", "top_p")}
        if parameters.min_new_tokens:
            arguments["min_new_tokens"] = parameters.min_new_tokens
        if parameters.stop_strings:
            arguments |= {"stop_strings": [*parameters.stop_strings], "tokenizer": self.tokenizer}
        if parameters.structure is not None:
            size, ends = self.model.config.vocab_size, parameters.end_tokens
            starts = [begin(parameters.structure, size, ends, prompt) for prompt in prompts]

            def allowed(row: int, text: Tensor) -> list[int]:
                start = starts[row]
                try:
                    state = start.after(text[width:].tolist())
                except ValueError:  # after a drafted token outside, which nothing can follow
                    state = start
                return (start if state.ended else state).mask().nonzero()[0].tolist()

            arguments["prefix_allowed_tokens_fn"] = allowed
        if parameters.cancel is not None:
            arguments["stopping_criteria"] = [_Cancelled(parameters.cancel, width + CANCEL)]
        found = self.model.generate(
            input_ids=ids,
            attention_mask=real,
            max_new_tokens=parameters.max_new_tokens,
            repetition_penalty=parameters.repetition_penalty,
            # Without an end token complete rows would go on until all are.
            eos_token_id=[*parameters.end_tokens] or [-1],
            pad_token_id=pad,
            **arguments,
        )
        return [self._text(row, pad, parameters, i) for i, row in enumerate(found[:, width:].tolist())]

    def _text(self, row: list[int], pad: int, parameters: Parameters, number: int) -> list[int]:
        """A row without the padding behind its end."""
        size = max((i + 1 for i, x in enumerate(row) if x != pad), default=0)
        least = CANCEL if parameters.cancel == number else len(row)
        decode = self.tokenizer.decode if self.tokenizer else None
        return row[: next(n for n in range(size, len(row) + 1) if n >= least or parameters.ended(row[:n], decode))]


class _Cancelled(transformers.StoppingCriteria):
    def __init__(self, row: int, length: int):
        self.row, self.length = row, length

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        done = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        done[self.row] = input_ids.shape[1] >= self.length
        return done
