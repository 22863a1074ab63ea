"""Train a small causal language model of Hugging Face's architectures on token files; resumable, CPU or CUDA.

    python tools/train/small_lm.py OUT --preset 32M --tokenizer tokenizer.json --train gsm8k=train.gsm8k.npy*2 \\
        --valid gsm8k=valid.gsm8k.npy --steps 600

OUT becomes a folder that `AutoModelForCausalLM.from_pretrained` opens (fp32 weights in safetensors, config.json and
tokenizer.json) with the loop's `state.pt`, `curve.jsonl` and `training.json` (`training_loop.py`). Presets are the
rescoring models of Kim et al. 2024, table 6; `--config` takes any other configuration. Positions past `--length` are
never trained.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from causal_lm import PRESETS, hidden_states, new_model, preset, read_config, save_model, table
from prepare_demo import END_OF_TEXT
from tied_loss import first_loss
from token_files import Batch, TokenFiles
from tokenizers import Tokenizer
from torch import Tensor, nn
from training_loop import Pair, add_options, check_options, device, optimizers, token_files, train


class LanguageModel:
    """A `Trainee`: all weights of a causal LM, on the next token."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.pair = Pair(
            new_model(configuration(args), args.seed), device(), torch.bfloat16 if args.bf16 else torch.float32
        )
        self.weights = self.pair.master
        self.pair.model.train()

    def optimizers(self) -> list[torch.optim.Optimizer]:
        tables = [module.weight for module in self.weights.modules() if isinstance(module, nn.Embedding)]
        return optimizers(self.weights, [*tables, table(self.weights)], self.args.muon_lr, self.args.adam_lr)

    def gradients(self, batch: Batch, step: int, logged: bool) -> list[Tensor]:
        loss = first_loss(hidden_states(self.pair.model, batch.ids), table(self.pair.model), batch.ids)
        loss.backward()
        self.pair.take_gradients()
        return [loss.detach()]

    def refresh(self) -> None:
        self.pair.refresh()

    @torch.no_grad()
    def validate(self, valid: TokenFiles) -> dict[str, list[float]]:
        self.pair.model.eval()
        found = {}
        for name, file in valid.files.items():
            ids = file.spread(16).to(device()).ids
            hidden = hidden_states(self.pair.model, ids)
            found[name] = [round(float(first_loss(hidden.float(), table(self.weights), ids)), 4)]
        self.pair.model.train()
        return found

    def save(self, steps: int) -> None:
        save_model(self.weights, self.args.out, self.args.tokenizer)


def configuration(args: argparse.Namespace):
    """That of the options, checked against the tokenizer and the windows."""
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    size, end = tokenizer.get_vocab_size(), tokenizer.token_to_id(END_OF_TEXT)
    config = read_config(args.config) if args.config else preset(args.preset, vocab_size=size, context=args.length)
    config.bos_token_id, config.eos_token_id = end, end
    if config.vocab_size != size:
        raise SystemExit(
            f"{args.config}: expected vocab_size {size}, that of {args.tokenizer}, got {config.vocab_size}"
        )
    if config.max_position_embeddings < args.length:
        raise SystemExit(
            f"{args.config}: expected positions for --length {args.length} tokens, got {config.max_position_embeddings}"
        )
    return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json of the token files")
    shape = parser.add_mutually_exclusive_group(required=True)
    shape.add_argument(
        "--preset",
        choices=PRESETS,
        help="layers, width, hidden: " + "; ".join(f"{name} {shape}" for name, shape in PRESETS.items()),
    )
    shape.add_argument("--config", type=Path, metavar="FILE", help="JSON of a Hugging Face configuration")
    args = parser.parse_args()
    check_options(parser, args)
    train(LanguageModel(args), *token_files(args), args)


if __name__ == "__main__":
    main()
