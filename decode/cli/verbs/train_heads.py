"""`rescore train heads`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli.options import flag, option
from rescore.decode.cli.output import Facts, Result
from rescore.decode.cli.train_groups import TrainingArgs
from rescore.decode.cli.values import AMOUNT, float_between, int_between

if TYPE_CHECKING:
    from rescore.decode.cli.training_texts import TrainingTexts
    from rescore.decode.models.conditioned_heads import ConditionedHeads
    from rescore.decode.train.lessons import Lessons


@dataclass(frozen=True, kw_only=True)
class TrainHeadsArgs(TrainingArgs):
    r"""Train heads for a frozen causal language model from Hugging Face. The training
    data are the model's own answers to the prompts, with its hidden states and
    next-token probabilities along them (docs/use/training-heads.md). Resumable:
    after an interruption, the same command continues.

    stages   texts   the model's answers and its states along them, to DIR/states;
                     with --read along the references instead
             heads   head t learns the model's distribution t tokens after the root
                     token, given the state and the root token, to DIR/heads
    prompts  JSON lines with prompt or text, optionally task and reference, as text
             or token ids; or chats: messages of role and content, whose last answer
             is the reference; or Spec-Bench's files; also packed
    files    DIR/heads        the heads, for --heads and Drafting: the best on the
                              held-out texts, one in 41
             DIR/curve.jsonl  loss and recall of every slot during training
             DIR/texts.npy    the answers, for `rescore lm build`

    examples:
      rescore train heads smollm2 --chat --prompts prompts.jsonl -o trained
      rescore train heads MODEL --prompts prompts.jsonl --tokens 200k --estimate \
          -o trained
      rescore train heads MODEL --prompts texts.jsonl --read --slots 3 -o trained
      rescore train heads smollm2 --chat --prompts more.jsonl \
          --start trained/heads -o further
      rescore generate --model smollm2 --chat --heads trained/heads 'Why is ..?'
    """

    slots: int | None = option("T", "number of heads, one per slot (default: 5)", int_between(1, 63))
    layers: int | None = option("N", "residual blocks per head (default: 1)", int_between(0, 16), rare=True)
    draft_vocabulary: int | None = option(
        "D", "number of tokens that heads may draft, the model's most frequent ones (default: 16384)", AMOUNT, rare=True
    )
    start: Path | None = option(
        "HEADS", "continue from these heads, with their slots, layers and draft vocabulary", Path, rare=True
    )
    teach: float = option(
        "T",
        "temperature of the model's distributions as training targets",
        float_between(0, 100, above=True),
        default=0.7,
        rare=True,
    )
    batch: int = option("N", "positions per step", int_between(1, 1 << 20), default=1024, rare=True)
    rounds: float = option("N", "greatest number of epochs", float_between(0, 1e4, above=True), default=3.0)
    rate: float = option("R", "learning rate", float_between(0, 10, above=True), default=0.02, rare=True)
    estimate: bool = flag("only estimate time and disk space")


def run(args: TrainHeadsArgs) -> Result | None:
    from rescore.decode.cli import screen
    from rescore.decode.cli.training_texts import open_texts, recalls_table

    form, texts = form_of(args), open_texts(args)
    screen.show(estimated(args, form, texts), stderr=True)
    if args.estimate:
        return None
    texts.write()
    figures = trained(args, form, texts)
    title = (
        f"{figures['heads']}: {figures['parameters']:,} weights, {figures['tokens']:,} tokens, "
        f"{figures['lost']:.2%} of held-out tokens outside the draft vocabulary; step {figures['best']['step']}"
    )
    return Result(figures, [title, recalls_table("slot", figures["best"])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What the heads are, and its defaults."""

    slots: int = 5
    layers: int = 1
    draft_vocabulary: int = 16384


def form_of(args: TrainHeadsArgs) -> Form:
    """The form of --start, or that of the options."""
    from rescore.decode.models.conditioned_heads import HEADS

    names = [field.name for field in fields(Form)]
    asked = {name: value for name in names if (value := getattr(args, name)) is not None}
    if not args.start:
        return Form(**asked)
    if asked:
        option = " ".join(map(str, next(iter(asked.items())))).replace("_", "-")
        raise ValueError(f"--{option}: not used with --start, whose heads have their own; leave it out")
    found = HEADS.read_form(args.start)
    return Form(**{name: getattr(found, name) for name in names})


def estimated(args: TrainHeadsArgs, form: Form, texts: TrainingTexts) -> Facts:
    """Time and disk space, estimated before the work."""
    import torch
    from msgspec import structs

    from rescore.decode.cli.training_texts import minutes
    from rescore.decode.train.estimate import estimate

    there = texts.store.tokens
    found = estimate(
        texts.target,
        texts.left(),
        structs.replace(texts.options, tokens=texts.wanted),
        there=there,
        read=args.read,
        width=texts.width,
        slots=form.slots,
        draft_vocabulary=min(form.draft_vocabulary, texts.lazy.facts.vocab_size),
        rounds=args.rounds,
        dtype=getattr(torch, texts.dtype),
    )
    free = shutil.disk_usage(next(path for path in (args.out, *args.out.absolute().parents) if path.exists())).free
    answers = f"{found.tokens:,} tokens to generate after {found.prompt_tokens:,} of prompts; {there:,} exist"
    return Facts(
        [
            ("answers", answers),
            ("texts", minutes(found.texts_seconds)),
            ("heads", f"{minutes(found.heads_seconds)} at most"),
            ("disk", f"{found.disk / 1e9:,.2f} GB, of {free / 1e9:,.0f} GB free"),
        ]
    )


def trained(args: TrainHeadsArgs, form: Form, texts: TrainingTexts) -> dict[str, Any]:
    """Trains the heads and writes them. Returns the figures."""
    from rescore.decode.cli.training_texts import run_training
    from rescore.decode.loop.dump_make import sha256
    from rescore.decode.models.conditioned_heads import HEADS
    from rescore.decode.train import heads_training
    from rescore.decode.train.heads_training import HeadsTraining, TrainingOptions
    from rescore.decode.train.lessons import Lessons, lost_share
    from rescore.lattice.checked import read_object

    lessons = Lessons(texts.store.shards, form.slots)
    heads = heads_to_train(args, form, texts, lessons).to(texts.target.device)
    about = {**texts.about(), "lost": round(lost_share(lessons, heads.ids.cpu().numpy()), 5)}
    if args.start:
        tokens = read_object(args.start / HEADS.config, lenient=True).get("tokens")
        about["start"] = {"tokens": tokens, "sha256": sha256(args.start / HEADS.weights)}
    options = TrainingOptions(
        temperature=args.teach,
        batch=args.batch,
        rounds=args.rounds,
        rate=args.rate,
        seed=args.seed,
        bfloat16=texts.dtype == "bfloat16",
    )
    best = run_training(HeadsTraining(heads, lessons, options, args.out, about), "heads")
    return {
        "heads": str(args.out / heads_training.HEADS),
        "parameters": sum(one.numel() for one in heads.parameters()),
        **about,
        "draft_vocabulary": len(heads.ids),
        "positions": {"train": len(lessons.train), "held_out": len(lessons.valid)},
        "best": best,
    }


def heads_to_train(args: TrainHeadsArgs, form: Form, texts: TrainingTexts, lessons: Lessons) -> ConditionedHeads:
    """The heads of --start, or new ones, which predict what the model predicts."""
    import torch

    from rescore.decode.models.conditioned_heads import ConditionedHeads
    from rescore.decode.models.model_check import matrices_of
    from rescore.decode.train.lessons import choose_vocabulary

    embedding, table = (one.float() for one in matrices_of(texts.model))
    if args.start:
        return ConditionedHeads.load(args.start, embedding=embedding, table=table)
    ids = torch.from_numpy(choose_vocabulary(lessons, texts.lazy.facts.vocab_size, form.draft_vocabulary))
    torch.manual_seed(args.seed)
    return ConditionedHeads(slots=form.slots, layers=form.layers, embedding=embedding, table=table, vocabulary=ids)
