"""Writes the sources of the site: the pages of docs/, the command line (every verb's --help-all), and the API, which
mkdocstrings makes of docstrings.

    python tools/docs/pages.py FOLDER; zensical build --strict -f FOLDER/mkdocs.yml
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from rescore.decode.cli import parser

DOCS = Path(__file__).resolve().parents[2] / "docs"

API = {
    "lattices": (
        "Lattices, trees and dumps",
        "lattice.sausage.Sausage",
        "lattice.tree.TokenTree",
        "lattice.dump.Dump",
        "lattice.dump_block.DumpBlock",
        "lattice.dump_writer.DumpWriter",
    ),
    "language-models": (
        "N-gram models",
        "lm.model.ngram.NGram",
        "lm.build.in_memory.build_ngram",
        "lm.build.in_memory.build",
        "lm.build.estimate.KatzOptions",
        "lm.build.estimate.KneserNeyOptions",
        "lm.build.prune.PruneOptions",
        "lm.build.interpolate.merge_models",
        "lm.model.formats.load",
        "lm.model.formats.save",
    ),
    "rescoring": (
        "Rescoring",
        "decode.draft.rescorer.Rescorer",
        "decode.draft.calibration.Calibration",
        "decode.draft.normalised.NormalisedLattice",
        "decode.draft.text_memory.TextMemory",
    ),
    "drafters": (
        "Drafters",
        "decode.draft.drafter.Drafter",
        "decode.draft.blended_drafter.blended_drafter",
        "decode.draft.tree_drafter.TreeDrafter",
        "decode.draft.tree_drafter.ngram_drafter",
        "decode.draft.heads_lattice.HeadsLattice",
    ),
    "decoding": (
        "Decoding",
        "decode.models.open.open_model",
        "decode.loop.generate.generate",
        "decode.loop.generate.stream",
        "decode.loop.generate.Options",
        "decode.loop.request.Request",
        "decode.loop.request.Generation",
        "decode.loop.request.Statistics",
        "decode.verify.sampling.Sampling",
        "decode.verify.greedy",
    ),
    "engines": (
        "Engines",
        "decode.engines.huggingface.drafting.Drafting",
        "decode.engines.text_drafter.TextDrafter",
        "decode.engines.text_drafter.DraftRow",
        "decode.engines.llama_cpp.draft.LlamaDraft",
        "decode.engines.llama_cpp.draft.DraftedLlama",
        "decode.engines.vllm.proposer.Proposer",
    ),
    "conformance": (
        "Conformance",
        "decode.conformance.checks.conforms",
        "decode.conformance.parameters.Parameters",
        "decode.conformance.reference.Plain",
        "decode.conformance.checks.Conformance",
        "decode.conformance.huggingface.HuggingFace",
        "decode.conformance.huggingface.logits_of",
        "decode.conformance.loop.Loop",
    ),
    "word-lattices": (
        "Lattices of others",
        "lattice.word_lattice.WordLattice",
        "decode.rescoring.read.read_lattices",
        "decode.rescoring.rescorer.LatticeRescorer",
        "decode.rescoring.rescorer.Weights",
        "decode.rescoring.rescorer.Strings",
    ),
    "tuning": (
        "Tuning",
        "decode.lab.tuning.tune.tune",
        "decode.draft.settings.Settings",
    ),
}


def write(out: Path) -> None:
    """Writes the site's sources into a folder: its settings, the pages of docs/, and those made from the code."""
    shutil.copytree(DOCS, out / "docs", dirs_exist_ok=True)
    settings = Path(__file__).with_name("mkdocs.yml").read_text(encoding="utf-8")
    (out / "mkdocs.yml").write_text(re.sub(r"\[((?:build|tools)/.*)\]", rf"[{DOCS.parent}/\1]", settings))
    for page in DOCS.rglob("*.md"):
        text = linked(page.read_text(encoding="utf-8"), page)
        (out / "docs" / page.relative_to(DOCS)).write_text(text, encoding="utf-8")
    made = {"command-line": command_line()}
    for name, (title, *objects) in API.items():
        made[f"api/{name}"] = f"# {title}\n\n" + "\n".join(f"::: rescore.{one}\n" for one in objects)
    (out / "docs/reference/api").mkdir(exist_ok=True)
    for name, text in made.items():
        (out / "docs/reference" / f"{name}.md").write_text(text, encoding="utf-8")


def linked(markdown: str, page: Path) -> str:
    """A page whose links to files outside docs/ are shown as the names of these files."""

    def shown(match: re.Match[str]) -> str:
        target = page.parent / match[2].split("#")[0]
        if ":" in match[2] or match[2].startswith("#") or DOCS in target.resolve().parents:
            return match[0]
        return f"{match[1]} (`{target.resolve().relative_to(DOCS.parent)}`)"

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", shown, markdown)


def command_line() -> str:
    verbs = "\n".join(f"## {name}\n\n```text\n{text}```\n" for name, text in helps(parser()))
    return f"# Command line\n\nWhat every verb prints with `--help-all`.\n\n{verbs}"


def helps(of: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    os.environ["COLUMNS"] = "80"
    yield of.prog, of.format_help()
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from helps(verb)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
