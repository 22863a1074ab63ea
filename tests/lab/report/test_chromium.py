"""The report's page in a real browser."""

import csv
import io
import struct
from pathlib import Path
from urllib.parse import parse_qs, quote

import pytest
from support import chromium, cli, headless_dumps

pytestmark = pytest.mark.slow
HOSTILE = "</script><img src=x onerror=alert(1)>"
HOSTILE_TASK = "<b onmouseover=alert(2)>a&amp;b"
NAMED = ["blend tuned", "blend-without-heads tuned", "tree tuned", "parallel-base", "parallel-rescored"]


@pytest.fixture(scope="module")
def browser():
    with chromium.browser() as running:
        yield running


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The page of a small dump whose words and tasks are hostile."""
    folder = tmp_path_factory.mktemp("report")
    made = cli.make_dump(folder / "plain")
    for one in made:
        one["task"] = HOSTILE_TASK if one["task"] == "first" else one["task"]
    cli.dumps.write(folder / "dump", "forced", made)
    words = (*cli.WORDS[:1], *(f" {HOSTILE}{i}" for i in range(1, cli.dumps.V)))
    cli.make_model(folder / "lm.ngram", made, words=words)
    assert cli.main(f"report {folder}/dump --lm {folder}/lm.ngram -o {folder}/report.html".split()) == 0
    return folder / "report.html"


@pytest.fixture
def visit(browser, path):
    """The page, newly opened; it complains of nothing and asks for nothing."""
    with chromium.Visit(browser, path) as one:
        yield one
        assert one.complaints == []
        assert one.requests == [f"file://{path}"]


def test_hostile_texts_stay_text(visit):
    assert visit.page.locator("img, main b[onmouseover]").count() == 0
    assert visit.page.locator(f"th:has-text('{HOSTILE_TASK}')").count() >= 1
    assert HOSTILE_TASK in visit.page.locator("[data-plot=drafts-2] .xtick text").all_text_contents()
    assert "</script>" in visit.page.locator(".browser .text").inner_text()


def opened_table(visit):
    """The table of block efficiency per task, unfolded."""
    folded = visit.page.locator("details.folded[data-table^=efficiency]").first
    folded.evaluate("one => { one.open = true; }")
    return folded.locator("table")


def test_tables_are_folded(visit):
    tables = visit.page.locator("main .scroll > table[aria-labelledby]")
    assert tables.count() > 10 and not any(one.is_visible() for one in tables.all()[1:])
    gists = visit.page.locator("details[data-table] > summary .gist").all_inner_texts()
    assert len(gists) == tables.count() and all(gists)


LEGEND = (
    "(layer) => [...layer.querySelectorAll('.traces')].map(one => [one.textContent, getComputedStyle(one).opacity])"
)


def legend(plot):
    """(all names of the legend, names of the curves that are shown)"""
    found = plot.locator("g.legend").evaluate(LEGEND)
    return [name for name, _ in found], [name for name, opacity in found if opacity == "1"]


def test_the_legend_shows_all_curves(visit):
    """Those that come first are shown; a click shows or hides one, also after another view or other colours."""
    plot = visit.page.locator("[data-plot=efficiency-0]")
    names, shown = legend(plot)
    assert len(names) > 8 and sorted(shown) == sorted(NAMED)
    assert plot.locator(".scatterlayer .trace").count() == len(NAMED)
    hidden = next(name for name in names if name not in NAMED)
    for name in (hidden, NAMED[0]):
        plot.locator("g.legend .legendtoggle").nth(names.index(name)).click()
        visit.page.wait_for_timeout(500)  # plotly waits for a second click
    wanted = sorted({*NAMED, hidden} - {NAMED[0]})
    assert sorted(legend(plot)[1]) == wanted
    visit.page.emulate_media(color_scheme="dark")
    plot.locator("select").select_option(index=1)
    visit.page.wait_for_timeout(100)
    assert sorted(legend(plot)[1]) == wanted and plot.locator(".scatterlayer .trace").count() == len(wanted)


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_the_page_fits_its_screen(browser, path, width):
    """Legends are below the axis, and no longer than the picture; the header, which scrolls, names all sections."""
    with chromium.Visit(browser, path, width=width) as visit:
        links = visit.page.locator("header nav a")
        assert links.count() == visit.page.locator("main section").count()
        plots = visit.page.locator("[data-plot]:has(g.legend)")
        assert plots.count() > 3
        for plot in plots.all():
            area, legend, picture = (
                plot.locator(name).first.bounding_box() for name in (".bglayer .bg, .nsewdrag", "g.legend", ".main-svg")
            )
            assert area["height"] > 100
            assert area["y"] + area["height"] < legend["y"]
            assert legend["y"] + legend["height"] <= picture["y"] + picture["height"] + 1
        links.last.click()
        assert visit.page.evaluate("location.hash") == links.last.get_attribute("href")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.complaints == []


def saved(page, button):
    with page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_figures_and_pictures_are_saved(browser, path):
    """CSV of tables with all digits, PNG of plots, under names that say what they are."""
    with chromium.Visit(browser, path) as visit:
        plot = visit.page.locator("[data-plot=efficiency-0]")
        name, content = saved(visit.page, plot.get_by_role("button", name="Save as PNG"))
        assert name.endswith("-mean-over-tasks.png") and content.startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack(">II", content[16:24]) == (2000, 1120)  # width and height

        table = opened_table(visit)
        folded = visit.page.locator("details[data-table^=efficiency]").first
        name, content = saved(visit.page, folded.get_by_role("button", name="Save as CSV"))
        assert name == "block-drafts-of-a-test-block-efficiency-per-task.csv"
        rows = list(csv.reader(io.StringIO(content.decode())))
        cells = table.locator("tbody tr").first.locator("td[data-value]")
        values = [float(one.get_attribute("data-value")) for one in cells.all()]
        assert len(rows) == 1 + table.locator("tbody tr").count()
        assert [
            float(cell) for head, cell in zip(rows[0], rows[1]) if "interval" not in head and cell[0].isdigit()
        ] == values
        assert visit.complaints == []


def test_fields_of_csv(visit):
    """Quoted after RFC 4180; an apostrophe keeps spreadsheets from reading a text as a formula."""
    made = visit.page.evaluate("""[1.5, null, 'a,b', 'a"b', 'a\\nb', '=1+1', '-x', '-1', '–'].map(field)""")
    assert made == ["1.5", "", '"a,b"', '"a""b"', '"a\nb"', "'=1+1", "'-x", "-1", "–"]


def test_the_address_leads_to_a_lattice(visit, browser, path):
    """What is shown is in the address, and the address shows it again; ranks and the tree as well."""
    page = visit.page
    page.get_by_label("Task", exact=True).select_option(HOSTILE_TASK)
    page.get_by_label("Sequence", exact=True).select_option(index=1)
    page.get_by_role("button", name="Next pass").click()
    page.get_by_label("Tree", exact=True).select_option("open")
    address, text = page.evaluate("location.hash"), page.locator(".browser .text").inner_text()
    query = parse_qs(address.partition("?")[2])
    assert address.startswith("#lattices?") and query["task"] == [HOSTILE_TASK] and query["sequence"] == ["1"]
    assert query["tree"] == ["open"] and int(query["position"][0]) > 0
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"file://{path}{address}")
    page.wait_for_selector("html[data-plots=drawn]", state="attached")
    assert page.locator(".browser .text").inner_text() == text
    assert page.get_by_label("Tree", exact=True).input_value() == "open"
    assert page.locator("#browser").bounding_box()["y"] < 800
    page.evaluate(f"location.hash = 'lattices?task={quote(HOSTILE_TASK)}&sequence=99&position=x'")
    assert page.locator(".browser output").inner_text().startswith("pass 2 of ")
    notice = page.locator(".browser [role=status]")
    assert notice.inner_text() == f"This page has no sequence 99 of {HOSTILE_TASK}; this is another one."
    page.get_by_role("button", name="Next pass").click()
    assert notice.inner_text() == ""
    page.close()


def test_sorting(visit):
    table = opened_table(visit)
    header = table.locator("thead th").nth(1)
    cells = "rows => rows.map(row => Number(row.cells[1].dataset.value))"
    for way, reverse in (("descending", True), ("ascending", False)):
        header.locator("button").click()
        assert header.get_attribute("aria-sort") == way
        values = table.locator("tbody tr").evaluate_all(cells)
        assert values == sorted(values, reverse=reverse) and len(set(values)) > 1


def test_browser_steps(visit):
    page = visit.page
    output, text = page.locator(".browser output"), page.locator(".browser .text .done")
    page.get_by_label("Task", exact=True).select_option(index=0)
    assert output.inner_text().startswith("pass 2 of ")
    assert text.inner_text() == ""
    page.get_by_role("button", name="Next pass").click()
    assert output.inner_text().startswith("pass 3 of ") and text.inner_text() != ""
    page.locator("#browser").focus()
    page.keyboard.press("ArrowRight")
    assert output.inner_text().startswith("pass 4 of ")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert output.inner_text().startswith("pass 2 of ")
    assert page.get_by_role("button", name="Previous pass").is_disabled()
    assert page.locator("#browser tbody tr").count() == cli.dumps.K
    assert page.locator("#browser .chip.root").count() == 1 and page.locator("#browser .chip").count() > 2


def test_the_accepted_path_of_the_tree(visit):
    """As many accepted nodes as the pass accepts, each the child of another."""
    page = visit.page
    accepted = 0
    for _ in range(4):
        told = page.locator(".browser .mark.tree b").inner_text()
        assert page.locator("#browser .node.true").count() == int(told)
        if int(told) > 1:
            assert page.locator("#browser " + ".node.true " * int(told)).count() == 1
        accepted += int(told)
        page.get_by_role("button", name="Next pass").click()
    assert accepted > 0


BACKGROUND = "getComputedStyle(document.body).backgroundColor"
LINE = "document.querySelector('.plot .lines path').style.stroke"


def test_dark_and_light(browser, path):
    """The system's scheme, followed by page and plots when it changes."""
    with chromium.Visit(browser, path, dark=True) as dark, chromium.Visit(browser, path) as light:
        assert dark.page.evaluate(BACKGROUND) == "rgb(13, 17, 23)"
        assert light.page.evaluate(BACKGROUND) == "rgb(255, 255, 255)"
        assert dark.page.evaluate(LINE) != light.page.evaluate(LINE)
        dark.page.emulate_media(color_scheme="light")
        assert dark.page.evaluate(BACKGROUND) == "rgb(255, 255, 255)"
        dark.until(f"{LINE} === '{light.page.evaluate(LINE)}'")


def test_print(browser, path):
    """On paper: light, without controls, tables open, plots no wider than the sheet; on the screen again as before."""
    with chromium.Visit(browser, path, dark=True) as visit, chromium.Visit(browser, path) as light:
        page, line = visit.page, light.page.evaluate(LINE)
        screen = page.evaluate(LINE)
        page.emulate_media(media="print")
        assert page.evaluate(BACKGROUND) == "rgb(255, 255, 255)"
        assert not page.locator("header").is_visible() and not page.locator(".browser .controls").is_visible()
        visit.until("[...document.querySelectorAll('.main-svg')].every(one => one.clientWidth === 640)")
        assert page.evaluate(LINE) == line != screen
        assert page.locator("[data-table^=efficiency] tbody tr").first.is_visible()
        page.emulate_media(media="screen")
        visit.until(f"{LINE} === '{screen}'")
        assert not page.locator("[data-table^=efficiency] tbody tr").first.is_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_of_a_model_without_heads(browser, tmp_path, width):
    headless_dumps.write(tmp_path / "dump", [{**one, "task": HOSTILE_TASK} for one in headless_dumps.sequences()])
    assert cli.main(f"report {tmp_path}/dump -o {tmp_path}/r.html".split()) == 0
    with chromium.Visit(browser, tmp_path / "r.html", width=width) as visit:
        figures = visit.page.locator("[data-plot]").count()
        assert figures == 5 and visit.page.locator("[data-plot] .main-svg .trace").count() >= figures
        assert visit.page.locator("img, main b[onmouseover]").count() == 0
        assert visit.page.locator("[data-plot=drafts-2] .lines").count() == 2
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.complaints == [] and visit.requests == [f"file://{tmp_path / 'r.html'}"]
