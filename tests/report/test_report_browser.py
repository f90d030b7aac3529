"""Reports in a browser: headless Chromium, driven by Selenium."""

import base64
import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embedder.report.page import Comparison, Page, make_report
from embedder.report.points import Effort, Source, make_map
from embedder.report.predictions import predictions
from tests.commands import SECONDS
from tests.report import parsed
from tests.report.test_report_page import HOSTILE, RNG, make_token_map, whole_page
from tests.report.test_report_parts import predicted

pytestmark = pytest.mark.slow

NAMES = [f"token{i}" for i in range(300)]
CONTRAST = """
const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = (colour) => {
  const [r, g, b] = parts(colour).slice(0, 3).map((x) => x / 255).map(
    (x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const over = (top, below) => {
  const [r, g, b, a = 1] = parts(top), [R, G, B] = parts(below);
  return `rgb(${r * a + R * (1 - a)},${g * a + G * (1 - a)},${b * a + B * (1 - a)})`;
};
const ground = (element) => {
  const own = getComputedStyle(element).backgroundColor;
  const parent = element.parentElement;
  return over(own, parent ? ground(parent) : "rgb(255,255,255)");
};
let least = 99, where = "";
for (const element of document.querySelectorAll("main *")) {
  const texts = [...element.childNodes].filter(
    (node) => node.nodeType === 3 && node.textContent.trim());
  if (!texts.length || !element.getClientRects().length) continue;
  const style = getComputedStyle(element);
  const ink = element instanceof SVGElement ? style.fill : style.color;
  const [a, b] = [light(ink), light(ground(element))].sort((x, y) => y - x);
  const contrast = (a + 0.05) / (b + 0.05);
  if (contrast < least) [least, where] = [contrast, element.outerHTML.slice(0, 200)];
}
return [least, where];
"""
COLOURS = "const s = getComputedStyle(document.body); "
COLOURS += "return [s.color, s.backgroundColor]"
IS_READY = "return document.getElementById('map-plot').dataset.ready === 'yes'"
PLACE = """
const view = Bokeh.index.roots ? Bokeh.index.roots[0] : [...Bokeh.index][0];
const data = Bokeh.documents[0].get_model_by_name("points").data;
const x = view.frame.x_scale.compute(data.x[arguments[0]]);
const y = view.frame.y_scale.compute(data.y[arguments[0]]);
const box = view.canvas_view.el.getBoundingClientRect();
return [box.left + x, box.top + y];
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs the packages chromium and chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    arguments = "headless=new no-sandbox enable-unsafe-swiftshader"
    arguments += " disable-dev-shm-usage window-size=1280,1000"
    for argument in arguments.split():
        options.add_argument(f"--{argument}")
    logs = {"browser": "ALL", "performance": "ALL"}
    options.set_capability("goog:loggingPrefs", logs)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options, service)
    yield driver
    driver.quit()


@pytest.fixture(autouse=True)
def fresh(browser):
    """Each test has a light page of 1280 pixels, and logs of its own."""
    look(browser, 1280, "light")
    browser.get_log("browser")
    browser.get_log("performance")


def look(browser, width: int, theme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def wait_for(browser, script: str, *arguments: Any) -> None:
    """Waits until the script returns something true."""
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(browser, SECONDS, 0.05)
    wait.until(lambda each: each.execute_script(script, *arguments))


def show(browser, page: Page, folder: Path) -> None:
    """Opens a page, and waits until its map is drawn."""
    path = folder / "report.html"
    make_report(page).save(path)
    browser.get(path.as_uri())
    if page.map is not None:
        wait_for(browser, IS_READY)


def element(browser, css: str) -> Any:
    return browser.find_element("css selector", css)


def neighbours_shown(browser) -> list[str]:
    found = browser.find_elements("css selector", "#map-selected td:first-child .token")
    return [each.text for each in found]


def expected_neighbours(page: Page, token: str) -> list[str]:
    assert page.map is not None
    texts = page.map.source.texts
    row = page.map.neighbors.ids[list(texts).index(token)]
    return [texts[i] for i in row]


@pytest.mark.parametrize("texts", [NAMES[:5], HOSTILE], ids=["plain", "hostile"])
def test_the_console_has_no_message_and_no_request_goes_out(browser, tmp_path, texts):
    show(browser, whole_page(texts), tmp_path)
    search(browser, texts[0][:6])
    assert neighbours_shown(browser)
    messages = browser.get_log("browser")
    assert [x for x in messages if x["level"] in ("SEVERE", "WARNING")] == []
    logged = browser.get_log("performance")
    events = [json.loads(x["message"])["message"] for x in logged]
    sent = [x for x in events if x["method"] == "Network.requestWillBeSent"]
    urls = [event["params"]["request"]["url"] for event in sent]
    outside = [url for url in urls if not url.startswith(("file:", "data:", "blob:"))]
    assert outside == [] and sum(url.startswith("file:") for url in urls) == 1
    assert browser.execute_script("return document.querySelectorAll('svg').length") > 3
    for width in (400, 1280):  # nothing is wider than the window
        look(browser, width, "light")
        fits = "return document.documentElement.scrollWidth <= arguments[0]"
        wait_for(browser, fits, width)  # the map follows a little later


def search(browser, text: str) -> None:
    element(browser, "#map-query").clear()
    element(browser, "#map-query").send_keys(text + "\n")


def test_the_search_finds_tokens_and_names(browser, tmp_path):
    names = [f"Name {i}" for i in range(300)]
    page = Page("map", [], [], map=make_token_map(NAMES, names=names))
    show(browser, page, tmp_path)
    element(browser, "#map-query").send_keys("TOKEN29")
    found = browser.find_elements("css selector", "#map-found .token bdi:first-child")
    tokens = ["token29", *(f"token29{i}" for i in range(10))]
    assert [each.text for each in found] == tokens
    search(browser, "name 42")
    assert element(browser, "#map-selected h3").text == "token42 Name 42"
    search(browser, "nothing like it")
    assert element(browser, "#map-found").text == "none"
    show(browser, Page("map", [], [], map=make_token_map(NAMES)), tmp_path)
    search(browser, "token7")
    first = element(browser, "#map-selected .token")  # a button, that goes on
    name = first.text
    first.send_keys("\n")
    assert element(browser, "#map-selected h3").text == name


def test_a_click_on_a_point_lists_its_neighbours(browser, tmp_path):
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    page = Page("map", [], [], map=make_token_map(NAMES))
    show(browser, page, tmp_path)
    browser.execute_script("document.getElementById('map-plot').scrollIntoView()")
    positions = page.map.projection.positions
    distances = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    lonely = int(distances.min(axis=1).argmax())  # no other point is under the pointer
    x, y = browser.execute_script(PLACE, lonely)
    builder = ActionBuilder(browser)
    builder.pointer_action.move_to_location(round(x), round(y)).click()
    builder.perform()
    wait_for(browser, "return document.querySelector('#map-selected h3')")
    assert element(browser, "#map-selected h3").text == NAMES[lonely]
    assert neighbours_shown(browser) == expected_neighbours(page, NAMES[lonely])


def test_zoom_and_colours_change_the_map(browser, tmp_path):
    page = Page("map", [], [], map=make_token_map(NAMES, labels=["a", "b", "c"] * 100))
    show(browser, page, tmp_path)
    width = "const r = Bokeh.documents[0].get_model_by_name('plot').x_range;"
    width += "return r.end - r.start"
    before = browser.execute_script(width)
    element(browser, "#map-in").click()
    assert browser.execute_script(width) == pytest.approx(0.6 * before)
    element(browser, "#map-all").click()
    assert browser.execute_script(width) == pytest.approx(before)
    assert element(browser, "#map-legend").text.split() == ["a", "b", "c"]
    element(browser, "#map-colours option[value='1']").click()
    assert element(browser, "#map-legend").text.splitlines()[0] == "1 to 9"


CUT = """
const document_ = Bokeh.documents[0], {x, text, size, align, offset} =
  document_.get_model_by_name("labels").data;
const plot = document_.roots()[0], pen = document.createElement("canvas")
  .getContext("2d"), {start, end} = plot.x_range;
return text.filter((label, i) => {
  pen.font = `${size[i]} Helvetica`;
  const long = pen.measureText(label).width;
  const place = (x[i] - start) / (end - start) * plot.inner_width + offset[i];
  const left = align[i] == "right" ? place - long : place;
  return left < -1 || left + long > plot.inner_width + 1;
});
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_groups_have_names_in_large_letters(browser, tmp_path, width):
    """And no name is cut at the map's edge, also on a phone."""
    look(browser, width, "light")
    page = Page("map", [], [], map=make_token_map(NAMES))
    show(browser, page, tmp_path)
    labels = "return Bokeh.documents[0].get_model_by_name('labels').data"
    found = browser.execute_script(labels)
    pairs = zip(found["text"], found["size"], strict=True)
    large = [text for text, size in pairs if size == "17px"]
    names = [NAMES[token][:24] for token in page.map.groups]
    assert large and large == [name for name in names if name in large]
    assert "12px" in found["size"]  # of other tokens, where there is room
    assert browser.execute_script(CUT) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_have_contrast_in_both_themes(browser, tmp_path, theme):
    """And print is black on white."""
    look(browser, 1280, theme)
    show(browser, whole_page(NAMES[:5]), tmp_path)
    red = int(re.findall(r"\d+", browser.execute_script(COLOURS)[1])[0])
    assert red > 240 if theme == "light" else red < 40
    least, where = browser.execute_script(CONTRAST)
    assert least >= 4.5, where  # WCAG 2.2, 1.4.3
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    features = [{"name": "prefers-color-scheme", "value": theme}]
    media = {"media": "print", "features": features}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    assert browser.execute_script(COLOURS) == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]


LINES = """
return [...document.querySelectorAll(".num, .count")].map((cell) => {
  const text = document.createRange();
  text.selectNodeContents(cell);
  const boxes = [...text.getClientRects()].filter((box) => box.width > 0);
  return [cell.textContent, new Set(boxes.map((box) => Math.round(box.top))).size];
});
"""


@pytest.mark.parametrize("width", [400, 1280])
def test_numbers_are_one_line_high(browser, tmp_path, width):
    look(browser, width, "light")
    classes = [f"class{i % 20}" for i in range(400)]
    said = [f"class{(i * i) % 20}" for i in range(400)]
    found = predictions(predicted(classes, said))
    assert found.confusion is not None
    large = [[10_000 + i for i in range(20)]] * 20
    numbers = ["10,000", "2 of 2", "0.8712 [0.8644, 0.8779]", "-4.2"]
    page = whole_page(NAMES[:5])._replace(
        results=[("a rather long name of a result " * 2, each) for each in numbers],
        predictions=found._replace(confusion=found.confusion._replace(counts=large)),
        comparison=Comparison(
            NAMES[:6], [("alpha", ["0.025"] * 6)], [("words", ["1,234,567"] * 6)], []
        ),
    )
    show(browser, page, tmp_path)
    search(browser, NAMES[0])
    lines = browser.execute_script(LINES)
    assert {*numbers, "10019", "1,234,567"} <= {text for text, _ in lines}
    assert [each for each in lines if each[1] > 1] == []
    assert browser.execute_script("return document.body.scrollWidth") <= width


def test_the_keyboard_reaches_all_and_the_focus_is_seen(browser, tmp_path):
    show(browser, whole_page(NAMES[:5]), tmp_path)
    script = """
    const style = getComputedStyle(document.activeElement);
    return [document.activeElement.tagName, document.activeElement.id,
            style.outlineStyle, parseFloat(style.outlineWidth)]"""
    ids, body = [], element(browser, "body")
    for _ in range(60):
        body.send_keys("\ue004")  # Tab
        tag, id, outline, width = browser.execute_script(script)
        if tag == "BODY":
            break
        ids.append(id)
        body = browser.switch_to.active_element
        if not id.startswith("map-plot") and tag != "DIV":
            assert outline != "none" and width >= 2, tag
    expected = {"map-query", "map-colours", "map-in", "map-out", "map-all"}
    assert expected <= {*ids}


def test_twenty_thousand_points_are_drawn(browser, tmp_path):
    texts, counts = [f"t{i}" for i in range(20_000)], np.arange(20_000, 0, -1)
    source = Source(texts, RNG.normal(size=(1, 20_000, 4)), counts)
    drawn = make_map(source, Effort(20_000, 1e12, "components"))
    page = Page("large", [], [], map=drawn)
    began = time.perf_counter()
    show(browser, page, tmp_path)
    print(f"opened in {time.perf_counter() - began:.1f} s")
    search(browser, "t19999")
    assert neighbours_shown(browser) == expected_neighbours(page, "t19999")


def test_a_page_in_a_frame_works(browser, tmp_path):
    """As Jupyter shows it."""
    page = Page("map", [], [], map=make_token_map(NAMES))
    path = tmp_path / "notebook.html"
    frame = make_report(page)._repr_html_()
    path.write_text(f'<!doctype html><meta charset="utf-8">{frame}', "utf-8")
    browser.get(path.as_uri())
    browser.switch_to.frame(0)
    wait_for(browser, IS_READY)
    search(browser, "token7")
    assert neighbours_shown(browser) == expected_neighbours(page, "token7")
    browser.switch_to.default_content()
    assert [x for x in browser.get_log("browser") if x["level"] == "SEVERE"] == []
    assert parsed.parse(path.read_text("utf-8")).one("iframe")
