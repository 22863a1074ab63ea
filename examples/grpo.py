"""GRPO with drafts: the samples of a prompt draft from each other while they are drawn, and their law is the policy's.

pip install trl; python examples/grpo.py [MODEL]; MODEL is any chat model, by its folder or its name on the Hub.
"""

import sys
from functools import partial

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from rescore import Drafting

name = sys.argv[1] if len(sys.argv) > 1 else "HuggingFaceTB/SmolLM2-135M-Instruct"
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
drafting = Drafting()
model.generate = partial(model.generate, custom_generate=drafting)  # rows of one prompt share their running text

questions = [f"Add {a} and {b}, and explain each step." for a, b in ((17, 25), (48, 36), (123, 89), (250, 175))]
prompts = Dataset.from_dict({"prompt": [[{"role": "user", "content": question}] for question in questions]})


def brevity(completions: list, **_) -> list[float]:
    return [-len(completion[0]["content"]) / 100 for completion in completions]


class Passes(TrainerCallback):
    def on_step_end(self, *_, **__) -> None:
        passes = sum(row.passes for row in drafting.statistics)
        accepted = sum(sum(row.accepted) for row in drafting.statistics)
        print(f"{passes + accepted} tokens in {passes} passes")


config = GRPOConfig(
    output_dir="grpo",
    per_device_train_batch_size=8,
    num_generations=8,
    max_completion_length=64,
    max_steps=2,
    bf16=False,  # the weights are float32, and drafts are verified as they are
    use_cpu=not torch.cuda.is_available(),
    save_strategy="no",
    report_to=[],
)
GRPOTrainer(
    model=model,
    processing_class=AutoTokenizer.from_pretrained(name),
    reward_funcs=brevity,
    args=config,
    train_dataset=prompts,
    callbacks=[Passes()],
).train()
