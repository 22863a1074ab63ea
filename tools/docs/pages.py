"""Pages of the site that are made from the code, and links that lead out of docs/.

Generated: the command line (every verb's --help-all) and the API (docstrings, by mkdocstrings).
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

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
        "lattice.tensors.TensorSausage",
    ),
    "language-models": (
        "N-gram models",
        "lm.model.ngram.NGram",
        "lm.build.in_memory.build_ngram",
        "lm.build.in_memory.build",
        "lm.build.katz.KatzOptions",
        "lm.build.kneser_ney.KneserNeyOptions",
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
        "decode.draft.blended_drafter.BlendedDrafter",
        "decode.draft.tree_drafter.TreeDrafter",
        "decode.draft.ngram_drafter.NGramDrafter",
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
        "decode.engines.llama_cpp.llama.DraftedLlama",
        "decode.engines.vllm.proposer.Proposer",
    ),
    "conformance": (
        "Conformance",
        "decode.conformance.checks.conforms",
        "decode.conformance.parameters.Parameters",
        "decode.conformance.reference.Plain",
        "decode.conformance.report.Conformance",
        "decode.conformance.huggingface.HuggingFace",
        "decode.conformance.huggingface.logits_of",
        "decode.conformance.loop.Loop",
    ),
    "tuning": (
        "Tuning",
        "decode.tuning.tune.tune",
        "decode.draft.settings.Settings",
    ),
}


def on_files(files: Files, config: Any) -> Files:
    pages = {"reference/command-line.md": command_line()}
    for name, (title, *objects) in API.items():
        pages[f"reference/api/{name}.md"] = f"# {title}\n\n" + "\n".join(f"::: rescore.{one}\n" for one in objects)
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


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


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files outside docs/ are shown as the names of these files."""

    def shown(match: re.Match[str]) -> str:
        target = (DOCS / page.file.src_uri).parent / match[2].split("#")[0]
        if ":" in match[2] or match[2].startswith("#") or DOCS in target.resolve().parents:
            return match[0]
        return f"{match[1]} (`{target.resolve().relative_to(DOCS.parent)}`)"

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", shown, markdown)
