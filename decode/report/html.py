"""A report's sections as HTML. Everything is escaped here, once; `page.py` has the page around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from rescore.decode.report.content import Cell, Facts, Plot, Report, Section, Table, Tile
from rescore.lattice.svg import clean

HOW = "How to read it"


def body(report: Report) -> str:
    """The HTML from the title to the last section."""
    lines = [f"<h1>{text(report.title)}</h1>", f'<p class="subtitle">{text(report.subtitle)}</p>']
    lines += [f'<p class="verdict-line">{text(report.verdict)}</p>']
    lines += ['<div class="tiles">', *map(_tile, report.tiles), "</div>"]
    for lead, sections in groupby(report.sections, key=lambda section: section.lead):
        parts = [line for section in sections for line in _section(section)]
        lines += parts if lead else ['<div class="compact">', *parts, "</div>"]
    return "\n".join(lines)


def navigation(sections: Sequence[Section]) -> str:
    return "\n".join(f'<a href="#{section.key}">{text(section.title)}</a>' for section in sections)


def _tile(tile: Tile) -> str:
    return (
        f'<div class="tile"><p>{text(tile.name)}</p><b>{text(tile.figure)}</b><small>{text(tile.beside)}</small></div>'
    )


def _section(section: Section) -> Iterator[str]:
    cites = f' <span class="cites">{text(section.cites)} of Kim et al. 2024</span>' if section.cites else ""
    yield f'<section id="{section.key}" aria-labelledby="{section.key}-title">'
    yield f'<h2 id="{section.key}-title">{text(section.title)}{cites}</h2>'
    prose = '<div class="prose">' + "".join(f"<p>{text(paragraph)}</p>" for paragraph in section.prose) + "</div>"
    if section.lead:
        yield prose
    if section.browser is not None:
        yield '<div class="browser" id="browser"></div>'
    for number, part in enumerate(section.parts):
        key = f"{section.key}-{number}"
        if isinstance(part, Plot):
            yield _plot(part, key)
        elif isinstance(part, Table):
            yield from _table(part, key)
        else:
            yield _facts(part)
    if not section.lead:
        yield _folded(HOW, prose)
    yield "</section>"


def _plot(plot: Plot, key: str) -> str:
    """A figure for plots.js to draw into; its data are in the page's JSON under the same key."""
    title = f'<figcaption id="{key}-title">{text(plot.title)}</figcaption>'
    return (
        f'<figure class="plot" data-plot="{key}">{title}<div class="views"></div><div class="legend"></div>'
        f'<div class="canvas" role="img" aria-label="{text(plot.alt)}"></div></figure>'
    )


def _table(table: Table, key: str) -> Iterator[str]:
    kinds = [
        "" if any(row[place].value is not None for row in table.rows) else " class=words"
        for place in range(len(table.headers))
    ]
    gist = table.gist or f"{len(table.rows)} row{'s' * (len(table.rows) != 1)}"
    yield (
        f'<details class="folded" data-table="{key}"><summary><span class="caption" id="{key}-title">'
        f'{text(table.title)}</span> <span class="gist">{text(gist)}</span></summary>'
    )
    yield (
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{key}-title"><table '
        f'aria-labelledby="{key}-title">'
    )
    yield "<thead><tr>" + "".join(_header(header, kind) for header, kind in zip(table.headers, kinds)) + "</tr></thead>"
    yield "<tbody>"
    for number, row in enumerate(table.rows):
        cells = "".join(_cell(cell, "th" if place == 0 else "td", kinds[place]) for place, cell in enumerate(row))
        yield f"<tr{' class=strong' if number in table.strong else ''}>{cells}</tr>"
    yield "</tbody></table></div></details>"


def _header(header: str, kind: str) -> str:
    return f'<th scope="col"{kind}><button type="button">{text(header)}</button></th>'


def _cell(cell: Cell, tag: str, kind: str) -> str:
    scope = kind + (' scope="row"' if tag == "th" else "")
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    note = f"<small>{text(cell.note)}</small>" if cell.note else ""
    return f"<{tag}{scope}{value}>{text(cell.text)}{note}</{tag}>"


def _facts(facts: Facts) -> str:
    rows = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts.rows)
    return _folded(facts.title, f'<dl class="facts">{rows}</dl>')


def _folded(title: str, content: str) -> str:
    return f'<details class="folded"><summary><span class="caption">{text(title)}</span></summary>{content}</details>'


def text(content: str) -> str:
    """Escapes text. Line breaks, control characters and bidirectional overrides are removed."""
    return escape(clean(content), quote=True)
