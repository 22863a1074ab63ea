"""The report's page in a real browser."""

import pytest
from support import chromium, cli, headless_dumps

pytestmark = pytest.mark.slow
HOSTILE = "</script><img src=x onerror=alert(1)>"
HOSTILE_TASK = "<b onmouseover=alert(2)>a&amp;b"


@pytest.fixture(scope="module")
def browser():
    with chromium.browser() as running:
        yield running


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The page of a small dump whose words and tasks are hostile."""
    folder = tmp_path_factory.mktemp("report")
    made = [
        {**one, "task": HOSTILE_TASK if one["task"] == "first" else one["task"]}
        for one in cli.make_dump(folder / "plain")
    ]
    cli.dumps.write(folder / "dump", "forced", made)
    words = (*cli.WORDS[:1], *(f" {HOSTILE}{i}" for i in range(1, cli.dumps.V)))
    cli.make_model(folder / "lm.ngram", made, words=words)
    assert (
        cli.main(["report", str(folder / "dump"), "--lm", str(folder / "lm.ngram"), "-o", str(folder / "report.html")])
        == 0
    )
    return folder / "report.html"


@pytest.fixture(scope="module")
def opened(browser, path):
    with chromium.Visit(browser, path) as one:
        yield one


@pytest.fixture
def visit(opened, path):
    """One visit for all tests that leave the page usable; it complains of nothing and asks for nothing."""
    yield opened
    assert opened.complaints == []
    assert opened.requests == [f"file://{path}"]


def test_plots_are_drawn(visit):
    figures = visit.page.locator("[data-plot]").count()
    assert figures >= 1
    assert visit.page.locator("[data-plot] .main-svg .trace").count() >= figures


def test_choosing_a_task_draws_it(visit):
    plot = visit.page.locator("[data-plot]").first
    before = plot.locator(".lines").first.inner_html()
    plot.locator("select").select_option(label=HOSTILE_TASK)
    assert plot.locator(".lines").first.inner_html() != before


def test_hostile_texts_stay_text(visit):
    assert visit.page.locator("img, main b[onmouseover]").count() == 0
    assert visit.page.locator(f"th:has-text('{HOSTILE_TASK}')").count() >= 1
    assert "</script>" in visit.page.locator(".browser .text").inner_text()


def test_sorting(visit):
    table = visit.page.locator("table").first
    header = table.locator("thead th").nth(1)
    cells = "rows => rows.map(row => Number(row.cells[1].dataset.value))"
    for way, reverse in (("descending", True), ("ascending", False)):
        header.locator("button").click()
        assert header.get_attribute("aria-sort") == way
        values = table.locator("tbody tr").evaluate_all(cells)
        assert values == sorted(values, reverse=reverse) and len(set(values)) > 1


def test_sorting_by_name_and_by_keyboard(visit):
    table = visit.page.locator("table").first
    table.locator("thead button").first.focus()
    visit.page.keyboard.press("Enter")
    names = table.locator("tbody th").all_inner_texts()
    assert table.locator("thead th").first.get_attribute("aria-sort") == "ascending"
    assert names[0].startswith("base") and names[-1].startswith("tree")


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
    assert page.locator("#browser svg").count() == 2 and page.locator("#browser svg rect").count() > 2


def test_browser_shows_every_sequence(visit):
    page = visit.page
    for task in page.get_by_label("Task", exact=True).locator("option").all_inner_texts():
        page.get_by_label("Task", exact=True).select_option(label=task)
        for number in page.get_by_label("Sequence", exact=True).locator("option").all_inner_texts():
            page.get_by_label("Sequence", exact=True).select_option(label=number)
            assert page.locator(".browser output").inner_text()


def test_themes(browser, path):
    background = "getComputedStyle(document.body).backgroundColor"
    with chromium.Visit(browser, path, dark=True) as dark, chromium.Visit(browser, path) as light:
        shades = dark.page.evaluate(background), light.page.evaluate(background)
        assert shades == ("rgb(13, 17, 23)", "rgb(255, 255, 255)")
        line = "document.querySelector('.plot .lines path').style.stroke"
        before = dark.page.evaluate(line)
        dark.page.locator("#theme").click()
        assert dark.page.locator("#theme").get_attribute("aria-pressed") == "false"
        assert dark.page.evaluate(background) == shades[1]
        assert dark.page.evaluate(line) == light.page.evaluate(line) != before


@pytest.mark.parametrize("width", [360, 768])
def test_nothing_is_wider_than_a_small_screen(browser, path, width):
    with chromium.Visit(browser, path, width=width) as small:
        assert small.page.evaluate("document.documentElement.scrollWidth") <= width
        assert small.complaints == []


def test_print(browser, path):
    """On paper: light, without controls, plots no wider than the sheet."""
    with chromium.Visit(browser, path, dark=True) as visit:
        visit.page.emulate_media(media="print")
        assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert (
            not visit.page.locator("header").is_visible() and not visit.page.locator(".browser .controls").is_visible()
        )
        visit.until("[...document.querySelectorAll('.main-svg')].every(one => one.clientWidth === 640)")


def colour(visit, name):
    return visit.page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()")


def test_contrast(browser, path):
    """Every text colour of both themes on its background, after WCAG 2.1: at least 4.5."""
    for dark in (False, True):
        with chromium.Visit(browser, path, dark=dark) as visit:
            for ground in ("page", "surface"):
                for ink in ("text", "muted", "true", "link"):
                    assert contrast(colour(visit, ink), colour(visit, ground)) >= 4.5, (dark, ink, ground)


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_page_of_a_model_without_heads(browser, tmp_path):
    made = [{**one, "task": HOSTILE_TASK} for one in headless_dumps.sequences()]
    headless_dumps.write(tmp_path / "dump", made)
    assert cli.main(["report", str(tmp_path / "dump"), "-o", str(tmp_path / "r.html")]) == 0
    for width in (1280, 390):
        with chromium.Visit(browser, tmp_path / "r.html", width=width) as visit:
            figures = visit.page.locator("[data-plot]").count()
            assert figures == 6 and visit.page.locator("[data-plot] .main-svg .trace").count() >= figures
            assert visit.page.locator("img, main b[onmouseover]").count() == 0
            assert visit.page.locator("[data-plot=reliability-0] .lines").count() == 2
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
            assert visit.complaints == [] and visit.requests == [f"file://{tmp_path / 'r.html'}"]
