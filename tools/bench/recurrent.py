"""Models with recurrent state: what passes over several tokens cost, how many of these were read before, and whether
`auto` widths are slower than none.

    python tools/bench/recurrent.py costs
    python tools/bench/recurrent.py tails
    python tools/bench/recurrent.py auto qwen3_5_text --width 2560 --layers 32 --tokens 48

Random weights, float32. `costs`: seconds of passes, the fastest of six, as multiples of a pass over one token; and of a
copy of the states. `tails`: drafts of a fixed length whose tokens are each right with a given probability; tokens per
pass, tokens read again per pass, and in percent of the passes those that only read again. `auto`: texts of 60-token
prompts in alternation, greedy and at temperature 1, over a vocabulary of 16 tokens: everything repeats and nothing is
accepted, the worst case for drafts from the text. The texts must be equal.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from answers import SPEED, Way, differing, in_turns, speed
from markdown_tables import show_header, show_row
from numpy.typing import NDArray
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.lab.bench.decoding import System
from rescore.decode.lab.bench.machine import machine
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.loop.request import Request
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.recurrent import KeptStates, causal_target
from rescore.decode.models.target import Block
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree

LENGTHS = (1, 2, 5, 9, 17, 33)
EXPERTS = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=512, shared_expert_intermediate_size=512)
HEADS = dict(linear_num_value_heads=8, linear_num_key_heads=4)
LATENT = dict(  # multi-head latent attention and eight experts
    num_key_value_heads=8,
    kv_lora_rank=128,
    qk_rope_head_dim=32,
    qk_nope_head_dim=64,
    v_head_dim=64,
    num_local_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=512,
    n_group=1,
    topk_group=1,
)
OWN: dict[str, Any] = {
    "llama": {},
    "qwen3_5_text": HEADS,
    "qwen3_5_moe_text": EXPERTS | HEADS,
    "falcon_h1": dict(mamba_d_head=64, mamba_d_state=64),
    "mamba2": dict(head_dim=64, state_size=64),
    "lfm2": {},
    "lfm2_moe": dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=512),
    "lfm3": {},
    "qwen3_next": EXPERTS,
    "lara_mini": EXPERTS | HEADS,
    "kimi_linear": LATENT | dict(linear_num_heads=8, linear_head_dim=64),
    "bailing_hybrid": LATENT | dict(head_dim=64, first_k_dense_replace=1, layer_group_size=4),
    "zaya": dict(num_experts=8, moe_intermediate_size=1024),
    "olmo_hybrid": {},
    "bamba": dict(attn_layer_indices=[3, 7], mamba_d_head=64, mamba_n_heads=16, mamba_d_state=64),
    "granitemoehybrid": dict(mamba_d_head=64, mamba_n_heads=16, mamba_d_state=64, num_local_experts=4),
    "nemotron_h": dict(mamba_head_dim=64, mamba_num_heads=16, ssm_state_size=64),
    "zamba2": dict(
        layers_block_type=["linear_attention", "hybrid"] * 4, mamba_headdim=64, n_mamba_heads=16, mamba_d_state=64
    ),
}


def build(family: str, width: int, layers: int, vocab_size: int) -> CausalLMTarget:
    more = dict(OWN[family])
    if family == "falcon_h1":
        more |= dict(mamba_d_ssm=2 * width, mamba_n_heads=2 * width // 64)
    if family == "mamba2":
        more |= dict(num_heads=2 * width // 64)
    if family in ("lfm2", "lfm2_moe"):
        more |= dict(layer_types=["conv", "conv", "full_attention", "conv"] * (layers // 4))
    sizes = dict(
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=max(8, width // 128),
        num_key_value_heads=2,
        vocab_size=vocab_size,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    known = CONFIG_MAPPING[family]().to_dict()
    config = CONFIG_MAPPING[family](**{name: value for name, value in sizes.items() if name in known} | more)
    torch.manual_seed(0)
    return causal_target(AutoModelForCausalLM.from_config(config).eval())


@torch.inference_mode()
def pass_seconds(target: CausalLMTarget, length: int = 200) -> Iterator[tuple[int, float]]:
    prompt = np.arange(length) % target.vocab_size
    cache, _ = target.open([prompt], 1, 2048)
    target.read(Block.of_texts([prompt], [0], target.device), cache)
    for tokens in LENGTHS:
        best = float("inf")
        for _ in range(6):
            block = Block.of_texts([np.arange(tokens)], [length], target.device)
            began = time.process_time()
            target.logits(target.read(block, cache))
            best = min(best, time.process_time() - began)
            cache.keep([length], [range(tokens)])
            length += tokens
        yield tokens, best
    if isinstance(cache, KeptStates) and not cache.recordable:
        copies = []
        for _ in range(6):
            began = time.process_time()
            cache.begin_drafted(1, [[0]])
            copies.append(time.process_time() - began)
        yield 0, min(copies)


def costs(args: argparse.Namespace) -> int:
    show_header("", ("M parameters", "1 token, ms", *(f"x {n}" for n in LENGTHS[1:]), "copy, ms"))
    for family in args.families or OWN:
        target = build(family, args.width or 512, args.layers or 8, 4096)
        seconds = dict(pass_seconds(target))
        ratios = (f"{seconds[n] / seconds[1]:.1f}" for n in LENGTHS[1:])
        size = sum(one.numel() for one in target.model.parameters()) / 1e6
        copy = f"{1e3 * seconds[0]:.2f}" if 0 in seconds else "-"
        show_row(family, (f"{size:.0f}", f"{1e3 * seconds[1]:.1f}", *ratios, copy))
    return 0


class Guesses:
    """Drafts of `length` tokens of known texts, of which each is right with probability `share`."""

    drawn = 0

    def __init__(self, texts: Sequence[NDArray[np.int32]], length: int, share: float, vocab_size: int):
        self.texts, self.length, self.share, self.vocab_size = texts, length, share, vocab_size
        self.random = np.random.default_rng(0)

    def open(self, prompts: Any, shaping: Any) -> Guesses:
        return self

    def propose(self, step: DraftStep) -> list[Draft]:
        drafts = []
        for text, history, room in zip(self.texts, step.histories, step.room):
            own = text[len(history) :][: min(self.length, room)]
            wrong = self.random.random(len(own)) >= self.share
            tokens = np.where(wrong, (own + 1) % self.vocab_size, own).astype(np.int32)
            drafts.append(Draft(tree=TokenTree.from_drafts(tokens[None])))
        return drafts


def tails(args: argparse.Namespace) -> int:
    shares = (0.0, 0.5, 0.7, 0.9, 1.0)
    show_header("draft", ("right", "tok/pass", "read again/pass", "passes that only read again, %"))
    for family in args.families or ["qwen3_5_text"]:
        target = build(family, args.width or 64, args.layers or 4, 256)
        prompt, options = np.arange(60), Options(max_tokens=args.tokens)
        (plain,) = generate(target, [prompt], None, options)
        text, read = np.concatenate((prompt, plain.tokens)).astype(np.int32), list[int]()
        chains = target._chains  # type: ignore[attr-defined]

        def counted(ids: Tensor, *more: Any, chains: Any = chains, read: list[int] = read) -> Tensor:
            read.append(ids.numel())
            return chains(ids, *more)

        target._chains = counted  # type: ignore[attr-defined]
        for length, share in itertools.product((4, 8, 16), shares):
            read.clear()
            (found,) = generate(target, [prompt], Guesses([text], length, share, 256), options)
            assert found.tokens.tolist() == plain.tokens.tolist()
            passes = found.statistics.passes - 1  # without the prompt's
            again = sum(read) - len(prompt) - passes - sum(found.statistics.drafted)
            alone = 100 * (len(read) - 1 - passes) / passes
            show_row(f"{family}, {length}", (share, len(found.tokens) / (passes + 1), again / passes, alone))
    return 0


def auto(args: argparse.Namespace) -> int:
    draw, wrong = np.random.default_rng(0), []
    show_header("", ("billion parameters", "temperature", *SPEED))
    for family in args.families or ["qwen3_5_text"]:
        target = build(family, args.width or 1024, args.layers or 24, 16)
        size = sum(one.numel() for one in target.model.parameters()) / 1e9
        ways: dict[str, Way] = {
            name: (System.of_drafter(target, name, drafter, TreeLayout()).write, lambda prompt: Request(prompt=prompt))
            for name, drafter in {"plain": None, "auto": blended_drafter(target)}.items()
        }
        prompts = [draw.integers(1, 16, 60) for _ in range(args.prompts)]
        for temperature in (0.0, 1.0):
            sampling = Sampling(temperature=temperature, seed=0) if temperature else None
            options = Options(max_tokens=args.tokens, shaping=Shaping(sampling=sampling))
            found = in_turns(ways, prompts, lambda prompt, options=options: options)
            for name, texts in found.items():
                show_row(f"{family}, {name}", (size, temperature, *speed(texts, found["plain"])))
            wrong += differing(found)
    return bool(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["costs", "tails", "auto"])
    parser.add_argument("families", nargs="*", choices=[*OWN, []])
    parser.add_argument("--width", type=int)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    torch.set_num_threads(args.threads or (1 if args.what == "costs" else 2))
    print(machine()["cpu"])
    return {"costs": costs, "tails": tails, "auto": auto}[args.what](args)


if __name__ == "__main__":
    raise SystemExit(main())
