"""`rescore generate --image` and `--audio`: the text is that of the model's own `generate`."""

import wave

import numpy as np
import pytest
import transformers
from PIL import Image
from support import cli, tiny_transformers
from support.refusals import assert_named
from support.seeing import SHOWN, seeing
from support.tiny_transformers import V

RATE = 16000


def written(path, samples, rate=RATE, channels=1):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A model that sees and one that hears, with their processors, two images and sounds."""
    folder, draw = tmp_path_factory.mktemp("shown"), np.random.default_rng(1)
    for number in (1, 2):
        Image.fromarray(draw.integers(0, 256, (20, 24, 3), np.uint8)).save(folder / f"{number}.png")
        written(folder / f"{number}.wav", draw.uniform(-1, 1, 6000 * number))
    written(folder / "long.wav", np.zeros(RATE + 1))
    written(folder / "slow.wav", np.zeros(99), rate=8000)
    written(folder / "silent.wav", np.zeros(0))
    (folder / "no.wav").write_bytes(b"RIFF")
    (folder / "part.png").write_bytes((folder / "1.png").read_bytes()[:900])
    whole = (folder / "1.wav").read_bytes()
    (folder / "part.wav").write_bytes(whole[:6000])
    (folder / "pipe.wav").write_bytes(whole[:4] + b"\xff" * 4 + whole[8:40] + b"\xff" * 4 + whole[44:])

    def tokenizer(name, size):
        cli.make_tokenizer(folder / name / "tokenizer.json", size)
        special = dict(eos_token="<|endoftext|>", pad_token="<|endoftext|>")
        return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / name / "tokenizer.json"), **special)

    seeing("Llava").save_pretrained(folder / "llava")
    eye = transformers.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    words = tokenizer("llava", V)
    own = dict(patch_size=4, vision_feature_select_strategy="default", num_additional_image_tokens=1)
    transformers.LlavaProcessor(eye, words, image_token=f" w{SHOWN}", **own).save_pretrained(folder / "llava")

    model = tiny_transformers.whisper(max_source_positions=50)
    model.save_pretrained(folder / "whisper")
    ear = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    words = tokenizer("whisper", model.config.vocab_size)
    transformers.WhisperProcessor(ear, words).save_pretrained(folder / "whisper")
    tiny_transformers.build("llama").save_pretrained(folder / "llama")
    tokenizer("llama", V)
    return folder


def expected(model, inputs):
    return model.generate(**inputs, do_sample=False, max_new_tokens=12)


def test_images(capsys, world):
    """One prompt about two images, and two about one."""
    processor = transformers.AutoProcessor.from_pretrained(world / "llava")
    images = [Image.open(world / f"{number}.png") for number in (1, 2)]
    for shown, prompts in ((images, [" w8 w9"]), (images[:1], [" w8 w9", " w11"])):
        texts = [f" w{SHOWN}" * len(shown) + one for one in prompts]
        inputs = processor(
            text=texts, images=[shown] * len(prompts), padding=True, padding_side="left", return_tensors="pt"
        )
        model = seeing("Llava")
        plain = expected(model, inputs)[:, inputs["input_ids"].shape[1] :]
        options = [word for number in range(len(shown)) for word in ("--image", world / f"{number + 1}.png")]
        for more in ("", "--nodes 6 --compare"):
            call = f"generate --model {world}/llava --max-tokens 12 {more}"
            found = cli.figures(capsys, call, *options, *prompts)
            for one, tokens in zip(found["texts"], plain.tolist()):
                assert one["tokens"] == tokens[: len(one["tokens"])] and len(one["tokens"]) in (
                    12,
                    tokens.index(2) + 1 if 2 in tokens else 12,
                )


def test_sounds_are_written_down_each_by_itself(capsys, world):
    processor, model = (
        transformers.AutoProcessor.from_pretrained(world / "whisper"),
        tiny_transformers.whisper(max_source_positions=50),
    )
    for number in (1, 2):
        with wave.open(str(world / f"{number}.wav")) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
        inputs = processor(samples, sampling_rate=RATE, return_tensors="pt")
        (plain,) = expected(model, inputs).tolist()
        for name in (number, *(["pipe"] if number == 1 else [])):  # of a length that its header does not tell
            call = f"generate --model {world}/whisper --max-tokens 12 --audio {world}/{name}.wav"
            (text,) = cli.figures(capsys, call, "--nodes", 6)["texts"]
            assert text["tokens"] == plain[: len(text["tokens"])] and text["tokens"]


@pytest.mark.parametrize(
    "call, named",
    [
        ("llava w3 --image {}/no.wav", ["no.wav", "image"]),
        ("llava w3 --image {}/part.png", ["part.png", "image", "truncated"]),
        ("llava --image {}/1.png", ["llava", "prompt"]),
        ("llava w3 --image {}/1.png --heads early:1", ["Llava", "text alone"]),
        ("llava w3 --image {}/gone.png", ["gone.png"]),
        ("llava w3 --audio {}/1.wav", ["1.wav", "hears"]),
        ("whisper w3", ["input_features", "--audio"]),
        ("whisper w3 --audio {}/1.wav", ["prompts"]),
        ("whisper --audio {}/no.wav", ["no.wav", "WAV"]),
        ("whisper --audio {}/part.wav", ["part.wav", "2978 of its 6000"]),
        ("whisper --audio {}/silent.wav", ["silent.wav", "none of its"]),
        ("whisper --audio {}/1.wav --draft-model {}/whisper", ["whisper", "encoder-decoder"]),
        ("whisper --audio {}/slow.wav", ["slow.wav", RATE, 8000]),
        ("whisper --audio {}/long.wav", ["long.wav", "1 s"]),
        ("whisper --audio {}/1.wav --max-tokens 50", ["40", "context"]),
        ("llama w3 --image {}/1.png", ["processor"]),
        ("llama", ["PROMPT"]),
    ],
)
def test_what_cannot_be_shown(capsys, world, call, named):
    result = cli.call(capsys, f"generate --model {world}/" + call.replace("{}", str(world)))
    assert result.status in (1, 2) and "Traceback" not in result.err
    assert_named(result.err, named)
