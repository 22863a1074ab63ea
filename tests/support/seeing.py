"""Tiny models that see or hear, with random weights, and prompts with images or sound for them."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from support.generating import padded
from support.tiny_transformers import V
from torch import nn

SHOWN = 5  # the id that stands for a part of an image or a sound
_TEXT = dict(
    vocab_size=V,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    pad_token_id=0,
    max_position_embeddings=256,
)
_EYE = dict(
    hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4
)
_QWEN_EYE = dict(depth=2, num_heads=2, patch_size=4, spatial_merge_size=2)
_LATER_QWEN_EYE = dict(_QWEN_EYE, hidden_size=16, intermediate_size=24, out_hidden_size=32)
_PLANES = dict(_TEXT, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[1, 1, 2]))
_EAR = dict(num_mel_bins=8, max_source_positions=16)
_IMAGE = dict(image_token_id=SHOWN)
_QWEN = dict(_IMAGE, video_token_id=4, vision_start_token_id=6, vision_end_token_id=7)
_CROSS = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_global_layers=1, attention_heads=2)


def _llama(**more: Any) -> Any:
    return transformers.LlamaConfig(**_TEXT, **more)


_CONFIGS = {  # the number of tokens of an image or a sound, and fields of a configuration
    "AyaVision": (4, lambda: dict(text_config=transformers.Cohere2Config(**_TEXT), downsample_factor=2, **_IMAGE)),
    "Gemma3": (4, lambda: dict(text_config=_TEXT, mm_tokens_per_image=4, **_IMAGE)),
    "Idefics3": (4, lambda: dict(text_config=_llama(), scale_factor=2, **_IMAGE)),
    "InternVL": (4, lambda: dict(text_config=transformers.Qwen2Config(**_TEXT), image_seq_length=4, **_IMAGE)),
    "Llava": (16, lambda: dict(text_config=_llama(), **_IMAGE)),
    "LlavaNext": (36, lambda: dict(text_config=_llama(), image_grid_pinpoints=[[16, 16]], **_IMAGE)),
    "Mistral3": (4, lambda: dict(text_config=transformers.MistralConfig(**_TEXT), spatial_merge_size=2, **_IMAGE)),
    "Qwen2VL": (4, lambda: dict(text_config=_PLANES, **_QWEN)),
    "Qwen2_5_VL": (4, lambda: dict(text_config=_PLANES, **_QWEN)),
    "Qwen3VL": (4, lambda: dict(text_config=_PLANES, **_QWEN)),
    "SmolVLM": (4, lambda: dict(text_config=_llama(), scale_factor=2, **_IMAGE)),
    "Qwen2Audio": (8, lambda: dict(text_config=transformers.Qwen2Config(**_TEXT), audio_token_id=SHOWN)),
    "Voxtral": (4, lambda: dict(text_config=_llama(), audio_token_id=SHOWN)),
    "Mllama": (1, lambda: dict(text_config=dict(_TEXT, cross_attention_layers=[1]), image_token_index=SHOWN)),
    "PaliGemma": (16, lambda: dict(text_config=transformers.GemmaConfig(**_TEXT), projection_dim=32, **_IMAGE)),
}
_EYES = {
    "InternVL": dict(_EYE, image_size=[16, 16], patch_size=[4, 4]),
    "Llava": transformers.CLIPVisionConfig(**_EYE),
    "LlavaNext": transformers.CLIPVisionConfig(**_EYE),
    "AyaVision": transformers.SiglipVisionConfig(**_EYE),
    "PaliGemma": transformers.SiglipVisionConfig(**_EYE),
    "Mistral3": transformers.PixtralVisionConfig(**_EYE),
    "Qwen2VL": dict(_QWEN_EYE, embed_dim=16, hidden_size=32, mlp_ratio=2),
    "Qwen2_5_VL": dict(_LATER_QWEN_EYE, window_size=8, fullatt_block_indexes=[0]),
    "Qwen3VL": dict(_LATER_QWEN_EYE, num_position_embeddings=16, deepstack_visual_indexes=[0]),
    "Mllama": dict(_CROSS, image_size=16, patch_size=4, vision_output_dim=32, intermediate_layers_indices=[0]),
}
_EARS = {
    "Qwen2Audio": dict(_EAR, d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=24),
    "Voxtral": dict(_EAR, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64),
}
REFUSED = ("Mllama", "PaliGemma")
FAMILIES = tuple(name for name in _CONFIGS if name not in REFUSED)


@functools.cache
def seeing(name: str) -> Any:
    """A model of a family, in evaluation mode."""
    torch.manual_seed(2)
    sense = {"audio_config": _EARS[name]} if name in _EARS else {"vision_config": _EYES.get(name, _EYE)}
    config = getattr(transformers, name + "Config")(**_CONFIGS[name][1](), **sense)
    model = getattr(transformers, name + "ForConditionalGeneration")(config).eval()
    for weights in model.parameters():
        if weights.dim() > 1:
            nn.init.normal_(weights, std=0.3)
    return model


def shown(name: str, *rows: Sequence[int], seed: int = 0) -> dict[str, torch.Tensor]:
    """What a processor makes of prompts, each of so many random tokens, an image or a sound, so many, .."""
    draw = torch.Generator().manual_seed(seed)
    size, prompts, many = _CONFIGS[name][0], [], sum(len(row) - 1 for row in rows)
    for row in rows:
        parts = [torch.randint(8, V, (length,), generator=draw).tolist() for length in row]
        prompts.append([token for part in parts[:-1] for token in (*part, *[SHOWN] * size)] + parts[-1])
    inputs = padded(prompts)
    marks = inputs["input_ids"] == SHOWN
    if not many:
        return inputs

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    if name in ("SmolVLM", "Idefics3"):  # rows of as many images, zeros where there are fewer
        pixels = torch.zeros(len(rows), max(map(len, rows)) - 1, 3, 16, 16)
        for of_row, row in zip(pixels, rows):
            of_row[: len(row) - 1] = noise(len(row) - 1, 3, 16, 16)
        more = {"pixel_values": pixels}
    elif name.startswith("Qwen") and name.endswith("VL"):
        grid = torch.tensor([[1, 4, 4]] * many)
        more = {"pixel_values": noise(16 * many, 96), "image_grid_thw": grid, "mm_token_type_ids": marks.int()}
    elif name == "Mllama":
        masks = torch.ones(len(rows), 1, 4, dtype=torch.int64), torch.ones(*marks.shape, 1, 4, dtype=torch.int64)
        more = {"pixel_values": noise(len(rows), 1, 4, 3, 16, 16), "aspect_ratio_ids": masks[0][..., 0]}
        more |= {"aspect_ratio_mask": masks[0], "cross_attention_mask": masks[1]}
    elif name in _EARS:
        more = {"input_features": noise(many, 8, 32)}
        if name == "Qwen2Audio":
            more["feature_attention_mask"] = torch.ones(many, 32, dtype=torch.int64)
    else:
        more = {"pixel_values": noise(many, *[2] * (name == "LlavaNext"), 3, 16, 16)}
        if name == "Gemma3":
            more["token_type_ids"] = marks.long()
        elif name == "PaliGemma":
            more["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
        elif name in ("LlavaNext", "Mistral3"):
            more["image_sizes"] = torch.tensor([[16, 16]] * many)
    return {**inputs, **more}
