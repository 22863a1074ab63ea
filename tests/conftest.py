"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.paths import ROOT
from support.tools import load_tool

# Read when huggingface_hub and OpenMP are first loaded. No test asks the Hub. Tests run side by side, and a forked
# process has no copy of its parent's OpenMP threads and would wait for them, so there are none.
os.environ["HF_HUB_OFFLINE"] = "1"
for variable in ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT"):
    os.environ.setdefault(variable, "1")

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout, which users of the repository do not have."""
    for folder in (os.environ.get("RESCORE_SHARED"), ROOT.parent / "shared"):
        if folder and Path(folder).is_dir():
            return Path(folder)
    pytest.skip("the reference data (a folder 'shared' beside the checkout) is absent")


@pytest.fixture(scope="session")
def demo() -> Path:
    """The shipped demo: checkpoint, tokenizer, language model and dumps."""
    folder = ROOT / "data" / "demo"
    if not (folder / "demo.ngram").exists():
        pytest.skip(f"{folder} holds no demo.ngram")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> str:
    """The name of SmolLM2-135M-Instruct, where the package that ships it is installed."""
    from rescore.decode.models.located import locate_model

    try:
        locate_model("smollm2")
    except FileNotFoundError as absent:
        pytest.skip(str(absent))
    return "smollm2"


@pytest.fixture(scope="session")
def hub(smollm2, tmp_path_factory) -> Path:
    """A cache of the Hugging Face Hub that has the same model under its name there, for commands of the pages."""
    from support import hub_cache

    from rescore.decode.models.located import convert_gguf, locate_model

    folder = tmp_path_factory.mktemp("hub")
    hub_cache.add_model(folder, "HuggingFaceTB/SmolLM2-135M-Instruct", convert_gguf(locate_model(smollm2)))
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with dumps of a model with heads, `dump` and `sampled`; models of the text, `lm.ngram` and `b.ngram`."""
    from support import cli

    folder = tmp_path_factory.mktemp("world")
    made = cli.make_dump(folder / "dump")
    cli.make_dump(folder / "sampled", "sampled")
    cli.make_model(folder / "lm.ngram", made)
    cli.make_model(folder / "b.ngram", made[:3], order=2)
    return folder


@pytest.fixture(scope="module")
def headless(tmp_path_factory) -> Path:
    """A folder with dumps of a model without heads, `dump` and `other`, one with `heads`, and a model, `lm.ngram`."""
    from support import cli, headless_dumps

    folder = tmp_path_factory.mktemp("headless")
    cli.make_model(folder / "lm.ngram", headless_dumps.write(folder / "dump"))
    headless_dumps.write(folder / "other", headless_dumps.sequences(6, seed=1))
    cli.make_dump(folder / "heads")
    return folder


@pytest.fixture(scope="session")
def worked():
    """The worked example's model (NGram) and its sausage."""
    from rescore.lm.model import example

    return example.model(), example.sausage()


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    """The search by C++ OpenFst; compiling it takes some seconds."""
    openfst = load_tool("bench/openfst")
    try:
        return openfst.compile_search(tmp_path_factory.mktemp("openfst") / "openfst_search")
    except openfst.OpenFstUnavailable as reason:
        pytest.skip(str(reason))
