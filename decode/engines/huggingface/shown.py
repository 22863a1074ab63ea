"""Prompts with images or sound for the decode loop: prepared by a model's own processor and its own `generate`, which
is left where decoding would begin.
"""

from __future__ import annotations

import wave
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rescore.decode.engines.huggingface.caches import ReadTarget, RememberingTarget, read_prompts
from rescore.decode.engines.huggingface.call import GenerateCall
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.target import Target
from rescore.decode.verify.shaping import Processor
from rescore.lattice.checked import foreign_errors
from rescore.lattice.extras import needed_for

with needed_for("images and sound"):
    from transformers import AutoProcessor
    from transformers.utils import logging


UNTOLD = 1 << 29  # samples of a WAV file that was written to a pipe, and many more: its length was not known yet


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shown:
    """What the loop decodes: a target that has read images or sound, prompts for it, and the processors of its model's
    own `generate`.
    """

    target: Target
    prompts: list[NDArray[np.int32]]
    processors: tuple[Processor, ...]


class _Reached(BaseException):
    """Ends a call of `generate` where decoding would begin."""

    def __init__(self, shown: Shown):
        self.shown = shown


def show(
    target: ReadTarget,
    folder: Path,
    prompts: Sequence[str],
    images: Sequence[Path] = (),
    sounds: Sequence[Path] = (),
    *,
    chat: bool = False,
) -> Shown:
    """Reads every prompt behind all images and sounds; with a model that writes down what it hears, without prompts,
    every sound by itself.

    folder  of the model, with its processor's files
    sounds  WAV files of 16 bits at the processor's rate
    chat    whether prompts are user messages

    ValueError or OSError for files that cannot be read, and what the model cannot be shown.
    """
    processor = _processor(folder)
    seen, heard = [_image(path) for path in images], [_sound(path, processor) for path in sounds]
    if isinstance(target, EncoderDecoderTarget):
        if prompts or seen:
            raise ValueError(f"{folder}: expected sound alone, each a text to write down, got prompts or images")
        given: dict[str, Any] = {"audio": heard}
    else:
        if not prompts:
            raise ValueError(f"{folder}: expected a prompt about the images or sounds, got none")
        given = {"text": [_prompt(processor, folder, one, len(seen), len(heard), chat) for one in prompts]}
        given |= {"images": [seen] * len(prompts)} if seen else {}
        given |= {"audio": heard * len(prompts)} if heard else {}
        given |= {"padding": True, "padding_side": "left"}
    more = {"sampling_rate": _rate(processor), "return_attention_mask": True} if heard else {}
    with foreign_errors(f"{folder}: its processor fails:"):
        inputs = processor(**given, **more, return_tensors="pt")
    floats = {name: one.to(target.model.dtype) for name, one in inputs.items() if one.is_floating_point()}
    said = logging.get_verbosity()
    logging.set_verbosity_error()  # or it tells of the arguments that it gives itself
    try:
        target.model.generate(**{**inputs, **floats}, do_sample=False, custom_generate=partial(_opening, target))
    except _Reached as reached:
        return reached.shown
    finally:
        logging.set_verbosity(said)
    raise AssertionError("generate decodes")


@torch.inference_mode()
def _opening(
    reader: ReadTarget,
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    **given: Any,
) -> Any:
    """Called by `generate` in place of its loop."""
    call = GenerateCall.of(model, input_ids, logits_processor, stopping_criteria, generation_config, {}, given)
    if isinstance(reader, EncoderDecoderTarget):
        target: Target = reader.of_states(given["encoder_outputs"][0], given.get("attention_mask"))
    else:
        past, expected = read_prompts(model, input_ids, generation_config, given, None)
        target = RememberingTarget(reader, past, call.pads, call.shift, expected)
    prompts = [prompt.astype(np.int32) for prompt in call.prompts()]
    raise _Reached(Shown(target=target, prompts=prompts, processors=tuple(logits_processor)))


def _processor(folder: Path) -> Any:
    files = "processor_config.json, preprocessor_config.json"
    with foreign_errors(f"{folder}: expected a model with a processor of images or sound ({files}), got"):
        return AutoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _prompt(processor: Any, folder: Path, text: str, images: int, sounds: int, chat: bool) -> str:
    """A prompt with the tokens that stand for images and sounds in front."""
    if chat:
        parts = [{"type": "image"}] * images + [{"type": "audio"}] * sounds + [{"type": "text", "text": text}]
        messages = [{"role": "user", "content": parts}]
        return processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    marks = [("image_token", images), ("audio_token", sounds)]
    if missing := [name for name, many in marks if many and not hasattr(processor, name)]:
        raise ValueError(f"{folder}: expected a processor with {missing[0]}, got none; give --chat")
    return "".join(getattr(processor, name) * many for name, many in marks if many) + text


def _image(path: Path) -> Any:
    with needed_for("images"):
        from PIL import Image
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except Exception as error:  # Pillow raises many kinds
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{path}: expected an image, got {type(error).__name__}: {error}") from None


def _rate(processor: Any) -> int:
    return int(processor.feature_extractor.sampling_rate)


def _sound(path: Path, processor: Any) -> NDArray[np.float32]:
    """Samples in [-1, 1)."""
    if not hasattr(processor, "feature_extractor"):
        raise ValueError(f"{path}: expected a model that hears, got a processor without sound")
    rate = _rate(processor)
    remedy = f"ffmpeg -i {path} -ar {rate} -ac 1 -sample_fmt s16 OUT.wav makes one"
    try:
        with wave.open(str(path)) as file:
            got, frames = (file.getframerate(), file.getsampwidth(), file.getnchannels()), file.getnframes()
            samples = np.frombuffer(file.readframes(frames), "<i2") if got == (rate, 2, 1) else None
            if samples is not None and (not len(samples) or len(samples) < frames < UNTOLD):
                raise EOFError(f"{len(samples) or 'none'} of its {frames} samples")
    except (wave.Error, EOFError, ValueError) as error:
        raise ValueError(f"{path}: expected a whole WAV file, got {str(error) or 'a part of one'}; {remedy}") from None
    if samples is None:
        raise ValueError(
            f"{path}: expected WAV of {rate} Hz, 16 bits, one channel, got {got[0]} Hz, {8 * got[1]} bits, "
            f"{got[2]} channels; {remedy}"
        )
    longest = getattr(processor.feature_extractor, "n_samples", None)
    if longest is not None and len(samples) > longest:
        raise ValueError(
            f"{path}: expected at most {longest / rate:.0f} s, which the model hears at once, got "
            f"{len(samples) / rate:.1f} s; give Drafting to its own generate, which goes on from part to part"
        )
    return samples.astype(np.float32) / np.float32(32768)
