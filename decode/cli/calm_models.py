"""Opens models, exits and prompts for `rescore calm`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rescore.decode.cli.lazy_model import LazyModel, open_lazy_model
from rescore.decode.cli.options import Misuse
from rescore.decode.cli.train_groups import ExitArgs, ExitModelArgs, PromptArgs
from rescore.decode.loop.generate import Options
from rescore.decode.loop.prompts import Prompt, read_prompts
from rescore.decode.loop.request import Stopping
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.exit_heads import ExitHeads, exits_of
from rescore.decode.models.open_target import use_threads
from rescore.decode.train.calm.confidence import Threshold
from rescore.decode.train.calm.early_exit import ExitSetting, LayeredModel, usual_exits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExitModel:
    """A model, its layers, and the trained exits of --exits, if any."""

    lazy: LazyModel
    layered: LayeredModel
    heads: ExitHeads | None

    def setting(self, args: ExitArgs, threshold: float, max_tokens: int) -> ExitSetting:
        """The setting of --confidence, --layers and --decay."""
        exits = self.heads.exits if self.heads else usual_exits(self.layered.depth)
        if self.heads and args.layers and not set(args.layers) <= set(self.heads.exits):
            raise Misuse(f"--layers: expected trained exits, some of {exits}, got {args.layers}")
        return ExitSetting(
            confidence=args.confidence or "softmax",
            exits=args.layers or exits,
            threshold=Threshold(value=threshold, decay=args.decay, length=max_tokens),
        )

    def options(self, max_tokens: int) -> Options:
        return Options(max_tokens=max_tokens, stopping=Stopping(tokens=frozenset(self.lazy.ends)))


def open_exit_model(args: ExitModelArgs, exits: Path | None = None) -> ExitModel:
    """The model of the command line. `exits` are checked against it."""
    use_threads(args.threads)
    model = open_lazy_model(args, args.model)
    target = model.opened.target
    if not isinstance(target, (CausalLMTarget, EncoderDecoderTarget)):
        raise ValueError(f"{args.model}: expected a Hugging Face model, got {model.facts.kind}")
    layered, heads = LayeredModel(target), None
    if exits:
        heads = exits_of(exits, target.model)
    return ExitModel(lazy=model, layered=layered, heads=heads)


def chosen_prompts(args: PromptArgs, model: LazyModel) -> list[Prompt]:
    """The prompts within --limit and after --skip. Raises ValueError if one leaves no room for a text."""
    tasks = read_prompts(args.prompts, model.facts.vocab_size, model.text, limit=args.limit)
    found = [prompt for prompts in tasks.values() for prompt in prompts[args.skip :]]
    if not found:
        raise ValueError(f"{args.prompts}: expected prompts after --skip {args.skip}, got none")
    for prompt in found:
        model.check_length(f"{args.prompts}, line {prompt.number + 1}", len(prompt.tokens), args.max_tokens)
    return found
