"""What `rescore train heads` does."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.decoders import Decoder, checked_device, open_decoder
from rescore.decode.loop.dump_make import fingerprint, sha256
from rescore.decode.loop.prompts import Prompt, read_prompts
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.checkpoint import read_object
from rescore.decode.models.conditioned_files import CONFIG, WEIGHTS, read_form
from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.models.gguf import gguf_file
from rescore.decode.training import heads_training, training_run
from rescore.decode.training.estimate import Estimate, estimate
from rescore.decode.training.heads_training import HeadsTraining, TrainingOptions
from rescore.decode.training.lessons import Lessons
from rescore.decode.training.own_texts import TextOptions, own_texts
from rescore.decode.training.state_store import StateStore, write_texts
from rescore.decode.training.states import read_states
from rescore.decode.training.vocabulary import choose_vocabulary, lost_share

STATES, TEXTS = "states", "texts.npy"
FORM = {"slots": 5, "layers": 1, "draft_vocabulary": 16384}


def call(args: argparse.Namespace) -> None:
    if args.json:
        output.check_place(args.json)
    choose_form(args)
    torch.set_num_threads(args.threads or idle_processors())
    args.dtype = args.dtype or fast_dtype(checked_device(args.device))
    decoder = open_decoder(args)
    if decoder.facts.kind != "causal-lm":
        raise ValueError(f"{args.model}: expected a causal language model of Hugging Face, got {decoder.facts.kind}")
    tasks = read_prompts(args.prompts, decoder.facts.vocab_size, decoder.text, references=args.read)
    prompts = sorted((one for task in tasks.values() for one in task), key=lambda one: one.number)
    run = _Run(args, decoder, fitting(prompts, 1 if args.read else args.max_tokens, decoder.facts.context))
    run.tell_estimate()
    if args.estimate:
        return
    run.write_texts()
    output.report(args, *run.train())


def fitting(prompts: list[Prompt], answer: int, context: int | None) -> list[Prompt]:
    """Those that leave room for an answer of so many tokens in the model's context, references cut where it ends.

    Says how many are left out or cut. ValueError if none fits.
    """
    if context is None:
        return prompts
    found = [one for one in prompts if len(one.tokens) + answer <= context]
    room = f"{context - answer} tokens (the context of {context} less {answer} for an answer)"
    if not found:
        shortest = min(len(one.tokens) for one in prompts)
        raise ValueError(f"--prompts: expected prompts of at most {room}, got none; the shortest has {shortest}")
    told = Console(stderr=True, markup=False, soft_wrap=True)
    if len(found) < len(prompts):
        told.print(f"{len(prompts) - len(found):,} of {len(prompts):,} prompts have more than {room} and are left out")
    if cut := sum(len(one.tokens) + len(one.reference) > context for one in found):
        told.print(f"{cut:,} references go beyond the context of {context} tokens and are cut there")
    return [replace(one, reference=one.reference[: context - len(one.tokens)]) for one in found]


def choose_form(args: argparse.Namespace) -> None:
    """Slots, layers and draft vocabulary: those asked for, or those of the heads to start from."""
    asked = [name for name in FORM if getattr(args, name) is not None]
    if args.start and asked:
        raise ValueError(
            f"--{asked[0].replace('_', '-')}: expected none beside --start, whose heads bring their own, "
            f"got {getattr(args, asked[0])}"
        )
    form = asdict(read_form(args.start)) if args.start else FORM
    for name in set(FORM).difference(asked):
        setattr(args, name, form[name])


def idle_processors() -> int:
    """Those that nothing keeps busy: threads that wait for each other on a busy machine are slower than one."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, count - round(os.getloadavg()[0]))


def fast_dtype(device: torch.device) -> str:
    """bfloat16 where the device multiplies it itself."""
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bfloat16" if device.type == "cpu" and fast else "float32"


class _Run:
    def __init__(self, args: argparse.Namespace, decoder: Decoder, prompts: list[Prompt]):
        self.args, self.decoder, self.prompts = args, decoder, prompts
        self.target = decoder.model.target
        assert isinstance(self.target, CausalLMTarget)
        self.model = self.target.model
        self.width = self.model.config.get_text_config().hidden_size
        self.options = TextOptions(
            temperatures=args.temperature,
            max_tokens=args.max_tokens,
            ends=decoder.ends,
            rows=args.rows,
            tokens=args.tokens,
            seed=args.seed,
        )
        self.training = TrainingOptions(
            temperature=args.teach,
            batch=args.batch,
            rounds=args.rounds,
            rate=args.rate,
            seed=args.seed,
            bfloat16=args.dtype == "bfloat16",
        )
        self.store = StateStore(args.out / STATES, self._about())

    def _about(self) -> dict[str, Any]:
        args = self.args
        told = {
            "model": args.model.name,
            "model_sha256": fingerprint(gguf_file(args.model) or args.model),
            "prompts_sha256": sha256(args.prompts),
            "chat": args.chat,
            "dtype": args.dtype,
            "width": self.width,
            "vocab_size": self.decoder.facts.vocab_size,
            "top_k": self.options.top_k,
        }
        if args.read:
            return {**told, "read": True}
        return {**told, "max_tokens": args.max_tokens, "temperatures": list(args.temperature), "seed": args.seed}

    def left(self) -> list[Prompt]:
        """The prompts without a text yet, as many as --tokens asks for where the lengths are known."""
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
        """Tokens still to come, None for those of all prompts."""
        return self.args.tokens and self.args.tokens - self.store.tokens

    def tell_estimate(self) -> None:
        args = self.args
        found = estimate(
            self.target,
            self.left(),
            replace(self.options, tokens=self.wanted),
            there=self.store.tokens,
            read=args.read,
            width=self.width,
            slots=args.slots,
            draft_vocabulary=min(args.draft_vocabulary, self.decoder.facts.vocab_size),
            rounds=args.rounds,
            dtype=getattr(torch, args.dtype),
        )
        Console(stderr=True, markup=False).print(_estimated(found, self.store.tokens, args.out))

    def write_texts(self) -> None:
        """The texts that are not there yet."""
        args, store, prompts, wanted = self.args, self.store, self.left(), self.wanted
        if prompts:
            if args.read:
                texts = read_states(self.target, prompts, top_k=self.options.top_k)
            else:
                texts = own_texts(self.target, prompts, replace(self.options, tokens=wanted))
            total = sum(len(one.reference) for one in prompts) if args.read else wanted
            with store, bar("texts", total, "tokens") as advance:
                done = 0
                for text in texts:
                    store.add(text)
                    done += len(text.tokens)
                    advance(done, "")
        write_texts(store, args.out / TEXTS, self.decoder.ends[0])

    def train(self) -> tuple[dict[str, Any], Table]:
        args = self.args
        if not self.store.tokens:
            raise ValueError(f"{args.out / STATES}: expected texts, got none; give prompts that the model answers")
        lessons = Lessons(self.store.shards, args.slots)
        heads = self._heads(lessons).to(self.target.device)
        about = {
            "base_model": args.model.name,
            "tokenizer_sha256": self.decoder.tokenizer.sha256,
            "tokens": self.store.tokens,
            "lost": round(lost_share(lessons, heads.ids.cpu().numpy()), 5),
        }
        if args.start:
            about["start"] = {
                "tokens": read_object(args.start / CONFIG).get("tokens"),
                "sha256": sha256(args.start / WEIGHTS),
            }
        training = HeadsTraining(heads, lessons, self.training, args.out, about)
        parameters = sum(one.numel() for one in heads.parameters())
        with bar("heads", training.steps, "steps") as advance:
            said = Console(stderr=True, markup=False)
            latest: list[training_run.Progress] = []

            def report(progress: training_run.Progress) -> None:
                latest.append(progress)
                if not said.is_terminal:
                    print(_line(progress), flush=True)

            training.run(report, lambda done, of: advance(done, _line(latest[-1]) if latest else ""))
        best = training_run.best_of(args.out / training_run.CURVE)
        figures = {
            "heads": str(args.out / heads_training.HEADS),
            "parameters": parameters,
            **about,
            "draft_vocabulary": len(heads.ids),
            "positions": {"train": len(lessons.train), "held_out": len(lessons.valid)},
            "best": best,
        }
        return figures, _table(figures)

    def _heads(self, lessons: Lessons) -> ConditionedHeads:
        """Those to start from, or new ones, which say what the model says."""
        args, model = self.args, self.model
        embedding, table = (one.weight.float() for one in (model.get_input_embeddings(), model.get_output_embeddings()))
        if args.start:
            return ConditionedHeads.load(args.start, embedding=embedding, table=table, device=table.device)
        ids = torch.from_numpy(choose_vocabulary(lessons, self.decoder.facts.vocab_size, args.draft_vocabulary))
        torch.manual_seed(args.seed)
        return ConditionedHeads(slots=args.slots, layers=args.layers, embedding=embedding, table=table, vocabulary=ids)


@contextmanager
def bar(name: str, total: int | None, unit: str) -> Iterator[Any]:
    """A bar with speed and time left; call it with what is done and words behind it."""
    screen = Console(stderr=True, markup=False, emoji=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[words]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task(name, total=total, words="")

        def advance(done: int, words: str) -> None:
            seconds = progress.tasks[task].elapsed or 0.0
            rate = f", {done / seconds:,.0f}/s" if seconds > 0.1 else ""
            progress.update(task, completed=done, words=f"{done:,} {unit}{rate} {words}")

        yield advance


def _line(progress: training_run.Progress) -> str:
    loss, recall = (" ".join(f"{value:.3f}" for value in values) for values in (progress.loss, progress.recall[1]))
    return f"step {progress.step} of {progress.steps}: loss {loss}; recall@1 {recall}"


def _estimated(found: Estimate, there: int, out: Path) -> Table:
    free = shutil.disk_usage(next(path for path in (out, *out.absolute().parents) if path.exists())).free
    return output.facts(
        [
            ("answers", f"{found.tokens:,} tokens behind {found.prompt_tokens:,} of prompts; {there:,} are there"),
            ("texts", _minutes(found.texts_seconds)),
            ("heads", f"{_minutes(found.heads_seconds)} at most"),
            ("disk", f"{found.disk / 1e9:,.2f} GB, of {free / 1e9:,.0f} GB free"),
        ]
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:,.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def _table(figures: dict[str, Any]) -> Table:
    best = figures["best"]
    table = Table(
        title=f"{figures['heads']}: {figures['parameters']:,} weights, {figures['tokens']:,} tokens; of those held out "
        f"{figures['lost']:.2%} lie outside the draft vocabulary; step {best['step']}",
        title_justify="left",
    )
    table.add_column("slot")
    for name in ("loss", *(f"recall@{k}" for k in best["recall"])):
        table.add_column(name, justify="right")
    for t, loss in enumerate(best["loss"]):
        table.add_row(str(t + 1), f"{loss:.3f}", *(f"{values[t]:.3f}" for values in best["recall"].values()))
    return table
