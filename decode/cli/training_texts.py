"""The first stage of training: the model's own texts, and its states along them."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from msgspec import structs

from rescore.decode.cli import screen
from rescore.decode.cli.lazy_model import LazyModel, checked_device, open_lazy_model
from rescore.decode.cli.output import Column, TextTable
from rescore.decode.cli.screen import Screen
from rescore.decode.cli.train_groups import TrainingArgs
from rescore.decode.loop.dump_make import fingerprint, sha256
from rescore.decode.loop.prompts import Prompt, read_prompts
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.located import locate_model
from rescore.decode.models.open_target import use_threads
from rescore.decode.train import training_run
from rescore.decode.train.own_texts import TextOptions, own_texts, read_states
from rescore.decode.train.state_store import StateStore, write_texts
from rescore.decode.train.training_run import TrainingRun

STATES, TEXTS = "states", "texts.npy"


def open_texts(args: TrainingArgs) -> TrainingTexts:
    """The texts of the command line's model, prompts and folder."""
    use_threads(args.threads or idle_processors())
    args = replace(args, dtype=args.dtype or fast_dtype(checked_device(args.device)))
    model = open_lazy_model(args, args.model)
    if model.facts.kind != "causal-lm":
        raise ValueError(f"{args.model}: expected a causal language model from Hugging Face, got {model.facts.kind}")
    tasks = read_prompts(args.prompts, model.facts.vocab_size, model.text, references=args.read)
    prompts = sorted((one for task in tasks.values() for one in task), key=lambda one: one.number)
    return TrainingTexts(args, model, fitting(prompts, 1 if args.read else args.max_tokens, model.facts.context))


def fitting(prompts: list[Prompt], answer: int, context: int | None) -> list[Prompt]:
    """The prompts that leave room for an answer of `answer` tokens in the model's context, with references cut at its
    end. Prints how many are left out or cut. ValueError if none fits.
    """
    if context is None:
        return prompts
    found = [one for one in prompts if len(one.tokens) + answer <= context]
    room = f"{context - answer} tokens (the context of {context} minus {answer} for an answer)"
    if not found:
        shortest = min(len(one.tokens) for one in prompts)
        raise ValueError(
            f"--prompts: the shortest has {shortest} tokens and an answer {answer}: expected at most {context} "
            "together, the model's context"
        )
    told = Screen(stderr=True, soft_wrap=True)
    if len(found) < len(prompts):
        told.print(f"{len(prompts) - len(found):,} of {len(prompts):,} prompts are longer than {room} and are left out")
    if cut := sum(len(one.tokens) + len(one.reference) > context for one in found):
        told.print(f"{cut:,} references exceed the context of {context} tokens and are cut there")
    return [replace(one, reference=one.reference[: context - len(one.tokens)]) for one in found]


def idle_processors() -> int:
    """The number of idle processors: threads that wait for each other on busy ones are slower than a single thread."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, count - round(os.getloadavg()[0]))


def fast_dtype(device: torch.device) -> str:
    """bfloat16 if the device multiplies it in hardware, else float32."""
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bfloat16" if device.type == "cpu" and fast else "float32"


class TrainingTexts:
    """A model's texts in the folder `states`: existing ones, and those still to generate."""

    def __init__(self, args: TrainingArgs, model: LazyModel, prompts: list[Prompt]):
        self.args, self.lazy, self.prompts = args, model, prompts
        self.dtype = str(args.dtype)  # `open_texts` has chosen one
        target = model.opened.target
        assert isinstance(target, CausalLMTarget)
        self.target = target
        self.model = self.target.model
        self.width = self.model.config.get_text_config().hidden_size
        self.options = TextOptions(
            temperatures=args.temperature,
            max_tokens=args.max_tokens,
            ends=model.ends,
            rows=args.rows,
            tokens=args.tokens,
            seed=args.seed,
        )
        self.store = StateStore(args.out / STATES, self._about())

    def _about(self) -> dict[str, Any]:
        args = self.args
        told = {
            "model": args.model.name,
            "model_sha256": fingerprint(locate_model(args.model)),
            "prompts_sha256": sha256(args.prompts),
            "chat": args.chat,
            "dtype": args.dtype,
            "width": self.width,
            "vocab_size": self.lazy.facts.vocab_size,
            "top_k": self.options.top_k,
        }
        if args.read:
            return {**told, "read": True}
        return {**told, "max_tokens": args.max_tokens, "temperatures": list(args.temperature), "seed": args.seed}

    def left(self) -> list[Prompt]:
        """The prompts without a text, up to --tokens where the lengths of the texts are known."""
        done, wanted = self.store.numbers(), self.wanted
        prompts = [one for one in self.prompts if one.number not in done]
        if wanted is None:
            return prompts
        if not self.args.read:
            return prompts if wanted > 0 else []
        before = accumulate((len(one.reference) for one in prompts), initial=0)
        return [one for one, tokens in zip(prompts, before) if tokens < wanted]

    @property
    def wanted(self) -> int | None:
        """Tokens still to generate; None for all prompts."""
        return self.args.tokens and self.args.tokens - self.store.tokens

    def write(self) -> None:
        """Generates the missing texts and writes them. ValueError if there are none then."""
        args, store, prompts, wanted = self.args, self.store, self.left(), self.wanted
        if prompts:
            if args.read:
                texts = read_states(self.target, prompts, top_k=self.options.top_k)
            else:
                texts = own_texts(self.target, prompts, structs.replace(self.options, tokens=wanted))
            total = sum(len(one.reference) for one in prompts) if args.read else wanted
            with store, screen.build_progress() as progress:
                done = 0
                for text in texts:
                    store.add(text)
                    done += len(text.tokens)
                    progress("texts", done, total or 0, done, "tokens")
        write_texts(store, args.out / TEXTS, self.lazy.ends[0])
        if not store.tokens:
            raise ValueError(f"{args.out / STATES}: expected texts, got none; give prompts that the model answers")

    def about(self) -> dict[str, Any]:
        """What training records of its texts."""
        return {
            "base_model": self.args.model.name,
            "tokenizer_sha256": self.lazy.tokenizer.sha256,
            "tokens": self.store.tokens,
        }


def run_training(training: TrainingRun, what: str) -> dict[str, Any]:
    """Trains with a progress bar. Returns the best validation, as recorded in the curve."""
    with screen.build_progress() as advance:
        said = Screen(stderr=True)
        latest: list[training_run.Progress] = []

        def report(progress: training_run.Progress) -> None:
            latest.append(progress)
            if not said.is_terminal:
                print(_line(progress), flush=True)

        def stepped(done: int, of: int) -> None:
            advance(what, done, of, done, f"steps; {_line(latest[-1])}" if latest else "steps")

        training.run(report, stepped)
    return training_run.best_of(training.folder / training_run.CURVE)


def _line(progress: training_run.Progress) -> str:
    loss, recall = (" ".join(f"{value:.3f}" for value in values) for values in (progress.loss, progress.recall[1]))
    return f"step {progress.step} of {progress.steps}: loss {loss}; recall@1 {recall}"


def recalls_table(what: str, best: dict[str, Any]) -> TextTable:
    """The best validation of each slot or mask."""
    columns = [Column("loss", [f"{loss:.3f}" for loss in best["loss"]])]
    columns += [Column(f"recall@{k}", [f"{value:.3f}" for value in values]) for k, values in best["recall"].items()]
    return TextTable(what, [str(t + 1) for t in range(len(best["loss"]))], columns)


def minutes(seconds: float) -> str:
    return f"{seconds / 60:,.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
