"""Pages of the repository: their links lead somewhere, every page but the notebooks is in the navigation."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT
from support.tools import load_tool

DOCS = ROOT / "docs"
FOLDERS = ("lattice", "lm", "decode", "docs", "data", "tests", "tools", "examples")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
SITE = (ROOT / "tools/docs/mkdocs.yml").read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.+)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", link):
            continue
        target, _, anchor = link.partition("#")
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), link
        assert not anchor or linked.suffix != ".md" or anchor in anchors(linked), link


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_lines_have_at_most_120_columns(page):
    """But for tables, code, and words that are longer: `make format` wraps them."""
    text = page.read_text(encoding="utf-8")
    assert load_tool("docs/wrap").wrap(text) == text


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"(\S+\.md)$", SITE, re.M))
    generated = {name for name in listed if name.startswith("reference/api/") or name == "reference/command-line.md"}
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.parent.name != "notebooks"}
    assert listed - generated == pages


def test_pages_quoted_by_the_code_exist():
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".pyi", ".h", ".cc", ".sh", ".yml") and "build" not in path.parts:
                for name in re.findall(r"(?<![\w])docs/[\w/-]+\.(?:md|json|svg)", path.read_text(encoding="utf-8")):
                    assert (ROOT / name).exists(), f"{path.relative_to(ROOT)}: {name}"


@pytest.mark.slow
def test_the_site_is_built(tmp_path):
    """Without warnings; the page of the command line has every verb, that of the API every name of `rescore`."""
    pytest.importorskip("zensical", reason="the site needs the extra docs")
    pytest.importorskip("mkdocstrings_handlers.python", reason="the site needs the extra docs")
    import rescore
    from rescore.decode.cli import VERBS

    load_tool("docs/pages").write(tmp_path)
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "-f", tmp_path / "mkdocs.yml"], check=True)
    page = (tmp_path / "site/reference/command-line.html").read_text(encoding="utf-8")
    assert all(f'id="rescore-{verb.replace(" ", "-")}' in page for verb in VERBS)
    api = "".join(one.read_text(encoding="utf-8") for one in (tmp_path / "site/reference/api").glob("*.html"))
    missing = [name for name in rescore.__all__ if not re.search(rf'id="rescore\.[\w.]+\.{name}"', api)]
    assert not missing


DOTTED = re.compile(r"(?<![\w/.-])rescore(?:\.[A-Za-z_]\w*)+(\()?")
FILES = re.compile(r"\.(?:egg|ngram|json|html|csv|md|plugin)$")


def named(text: str) -> set[tuple[str, bool]]:
    """The dotted names of a page's code, and whether they are called."""
    code = "\n".join(re.findall(r"`[^`\n]+`|^ {4}.*$|^```.*?^```$", text, re.M | re.S))
    return {(one[0].rstrip("("), bool(one[1])) for one in DOTTED.finditer(code)}


def resolved(name: str) -> object:
    """A module of the package, or what one of its modules holds."""
    module, *rest = name.split(".")
    found = importlib.import_module(module)
    for part in rest:
        if not hasattr(found, part):
            importlib.import_module(f"{found.__name__}.{part}")
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_what_is_named_exists(page):
    """Dotted names, and the imports of examples."""
    text = page.read_text(encoding="utf-8")
    for name, called in named(text):
        if not FILES.search(name):
            found = importable(name)
            assert not called or callable(found), f"{name}(..) is called, but is a {type(found).__name__}"
    for prefix, rows in re.findall(r"^\| \w+ in `(rescore\.[\w.]+)\.`.*\n((?:\|.*\n)+)", text, re.M):
        for cell in re.findall(r"^\| (`.*?) \|", rows, re.M):
            first, *more = re.findall(r"`([\w.]+)`", cell)
            for name in (first, *(f"{first.rpartition('.')[0]}.{one}" for one in more)):
                importable(f"{prefix}.{name}")
    for module, names in re.findall(r"^\s*(?:>>> )?from (rescore[\w.]*) import ([\w, ]+)", text, re.M):
        for name in names.split(","):
            importable(f"{module}.{name.split(' as ')[0].strip()}")


def importable(name: str) -> object:
    """Skips where a package is missing."""
    try:
        return resolved(name)
    except ImportError as error:
        if (error.name or "").startswith("rescore"):
            pytest.fail(f"{name}: {error}")
        pytest.skip(f"{name}: {error}")
