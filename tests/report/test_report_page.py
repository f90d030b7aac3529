"""The page of a report: its content, and that texts of the data stay texts."""

import base64
import hashlib
import re

import numpy as np
import pytest

from embedder.report.chart import Series, line_chart
from embedder.report.metrics import Metrics
from embedder.report.nearest import samples
from embedder.report.page import (
    INSTALL,
    Comparison,
    Page,
    Setting,
    Settings,
    make_report,
)
from embedder.report.points import Effort, Map, Source, make_map
from embedder.report.predictions import predictions
from embedder.report.trained import curves
from embedder.vectors.vectors import Vectors
from tests.report import parsed
from tests.report.test_report_parts import predicted

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "</title></style><!--",
    "]]>&lt;&amp;{{ 7 * 7 }}{% raw %}",
    "\"'><svg onload=alert(1)>",
    "\u202eevil\u2066\u200f",
    "שלום",
    "a\u2028b\x00c",
    "@text @@x{safe} $index",
    "long" * 500,
]
RNG = np.random.default_rng(0)


def make_token_map(texts: list[str], **more) -> Map:
    vectors = RNG.normal(size=(1, len(texts), 4))
    counts = np.arange(len(texts), 0, -1)
    source = Source(texts, vectors, counts, **more)
    found = make_map(source, Effort(1000, 1e12, "components"))
    assert found is not None
    return found


def whole_page(texts: list[str]) -> Page:
    """A page with all parts, whose texts are all from `texts`."""
    first = texts[0]
    lines = [{"epoch": 1, "loss": 1.0, first: 0.5}, {"epoch": 2, "loss": 0.5}]
    chart = line_chart(first, [Series(text, [(1, 1.0), (2, 2.0)]) for text in texts])
    assert chart is not None
    setting = Setting("window", first, "5")
    pictures = {texts[1]: np.zeros((2, 2, 3), np.uint8)}
    found = predicted(texts, texts[::-1], pictures=pictures)
    vectors = Vectors(texts, RNG.normal(size=(len(texts), 4)), np.ones(len(texts), int))
    return Page(
        title=first,
        facts=[(text, text) for text in texts],
        results=[(text, text) for text in texts],
        settings=Settings([setting], [setting], [setting]),
        curves=(*curves([(first, Metrics(lines))]), chart),
        map=make_token_map(texts, names=texts, labels=texts, label_name=first),
        bands=tuple(samples(vectors)),
        predictions=predictions(found._replace(keys=texts)),
        comparison=Comparison(
            texts, [(t, texts) for t in texts], [(first, texts)], [chart]
        ),
        notes=tuple(texts),
        timings=tuple((text, text) for text in texts),
        names=dict(zip(texts, texts, strict=True)),
    )


def test_every_part_has_its_heading_and_tables_their_captions():
    page = parsed.parse(make_report(whole_page(["cat", "dog", "owl", "d"])).html)
    assert page.one("html").attributes["lang"] == "en"
    assert len(page.every("h1")) == len(page.every("main")) == 1
    sections = {each.attributes["id"]: each for each in page.every("section")}
    names = "result comparison map samples predictions curves settings time"
    assert [*sections] == names.split()
    for name, section in sections.items():
        label = section.attributes["aria-labelledby"]
        assert section.one("h2").attributes["id"] == label
        page.one("a", href=f"#{name}")
    for table in page.every("table"):
        assert table.every("caption") and table.every("th")
        assert all("scope" in cell.attributes for cell in table.every("th"))
    assert page.one("img").attributes["alt"] == "dog, an image of label dog"
    for svg in page.every("svg"):
        assert "aria-hidden" in svg.attributes or svg.attributes["aria-label"]
    assert "Search" in page.one("label", **{"for": "map-query"}).text
    confusion = parsed.table(page, "Confusion matrix")
    assert confusion["label"] == ["cat", "d", "dog", "owl"]
    assert confusion["cat"] == ["0", "1", "0", "0"]


@pytest.mark.parametrize("has_bokeh", [True, False])
def test_texts_of_the_data_are_text(monkeypatch, has_bokeh):
    """The elements are those of a page with harmless texts, and nothing is lost or
    loaded from elsewhere."""
    monkeypatch.setattr("embedder.report.page.has_bokeh", lambda: has_bokeh)
    report = make_report(whole_page(HOSTILE))
    page = parsed.parse(report.html)
    harmless = [f"text{i}" for i in range(len(HOSTILE))]
    expected = parsed.parse(make_report(whole_page(harmless)).html)
    elements, others = [*page._inside()], [*expected._inside()]
    assert [each.tag for each in elements] == [each.tag for each in others]
    assert [[*x.attributes] for x in elements] == [[*x.attributes] for x in others]
    assert HOSTILE[0] in page.one("head").one("title").text
    assert HOSTILE[0] in page.one("h1").text
    found = parsed.data(page, "map-data")
    assert found["texts"][:5] == HOSTILE[:5] and found["names"] == found["texts"]
    assert found["texts"][5] == "\\u202eevil\\u2066\\u200f"
    assert all(len(text) <= 80 for text in found["texts"])
    cells = [each for each in page.every("td") if each.text == "שלום"]
    assert len(cells) > 5 and all(cell.every("bdi") for cell in cells)  # isolated
    for element in elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            value = element.attributes.get(name) or "#"
            assert value.startswith(("#", "data:image/png;base64,"))
    style = page.one("style").text
    assert "url(" not in style and "@import" not in style
    page.one("input", id="map-query")
    if not has_bokeh:
        assert INSTALL in page.one("section", id="map").text
        assert not page.every("script", id="map-figure") and len(report.html) < 100_000


def test_the_policy_lets_only_the_scripts_of_the_page_run():
    page = parsed.parse(make_report(whole_page(["a", "b", "c"])).html)
    meta = page.one("meta", **{"http-equiv": "Content-Security-Policy"})
    policy = meta.attributes["content"]
    assert policy.startswith("default-src 'none'; ")
    scripts = [s for s in page.every("script") if "type" not in s.attributes]
    hashes = re.findall(r"'sha256-([^']+)'", policy)
    digests = [hashlib.sha256("".join(s.pieces).encode()).digest() for s in scripts]
    assert [base64.b64encode(each).decode() for each in digests] == hashes
    assert len(hashes) == 3 and "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2]


def test_a_page_of_nothing_but_facts_is_whole():
    page = parsed.parse(make_report(Page("empty", [("types", "0")], [])).html)
    assert [each.attributes["id"] for each in page.every("section")] == ["result"]
    assert parsed.table(page, "Data") == {"types": ["0"]}
    assert "script-src 'none'" in page.every("meta")[1].attributes["content"]


@pytest.mark.slow
def test_a_map_of_twenty_thousand_is_at_most_8_megabytes():
    """Of replicas, with long tokens and names: the largest that there is."""
    num = 20_000
    vectors = RNG.normal(size=(2, num, 2)).astype(np.float32)
    texts = [f"{i:05}" + "ü" * 70 for i in range(num)]
    source = Source(texts, vectors, np.arange(num, 0, -1), names=texts, labels=texts)
    found = make_map(source, Effort(num, 1e12, "components"))
    assert found is not None
    page = Page("large", [], [], map=found)
    assert len(make_report(page).html.encode()) < 8_000_000


def test_commands_and_flags_of_notes_are_marked():
    note = "`embedder evaluate <b>` with --pairs or --edges has `them."
    page = Page("x", [], [], notes=(note,))
    item = parsed.parse(make_report(page).html).one("ul", **{"class": "notes"})
    assert item.text == "embedder evaluate <b> with --pairs or --edges has `them."
    assert item.one("code").text == "embedder evaluate <b>"
    assert [each.text for each in item.every("span")] == ["--pairs", "--edges"]
