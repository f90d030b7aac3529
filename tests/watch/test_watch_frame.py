"""What `embedder watch` shows in any width and height."""

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from embedder.config import Config
from embedder.report.metrics import Metrics
from embedder.run.workdir import Workdir
from embedder.watch.frame import Space, _label, curves_of, frame
from embedder.watch.probes import Near, Neighbors, Probe
from embedder.watch.state import State

HOSTILE = [
    "\x1b[2J\x1b]0;x\x07",
    "[red]x[/]",
    "a\tb\nc",
    "\u202eabc",
    "漢字" * 30,
    "x" * 90,
]


def state(num_scores: int = 1, phase="training") -> State:
    lines = [
        {"epoch": i, "updates": 10 * i, "loss": 5.0 / i, "alpha": 0.03 - i / 1000}
        | {f"score-{n}": i / 10 + n for n in range(num_scores)}
        | {"words": 1000 * i, "words_per_second": 1000.0 + i}
        for i in range(1, 6)
    ]
    return State(Workdir("run"), phase, Config(), Metrics(lines), is_locked=True)


def neighbors(words: list[str]) -> Neighbors:
    near = tuple(Near(word, 0.5, number == 1) for number, word in enumerate(words))
    return Neighbors(50, 40, tuple(Probe(word, near) for word in words))


def lines(shown, width: int) -> list[str]:
    """The lines that a terminal of `width` shows."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    console.print(shown)
    return file.getvalue().rstrip("\n").split("\n")


def cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


@pytest.mark.row("B70")
@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_nothing_is_cut_and_nothing_controls_the_terminal(width):
    shown = lines(
        frame("r\x1bun", state(), neighbors(HOSTILE), ["A note."], Space(width)), width
    )
    assert max(map(cells, shown)) <= width
    text = "".join(line.strip() for line in shown)
    assert text.isprintable()
    whole = re.sub(r"\s", "", text)
    for part in (
        r"r\x1bun",
        r"\x1b[2J\x1b]0;x\x07",
        "[red]x[/]",
        r"a\tb\nc",
        "A note.",
    ):
        assert part.replace(" ", "") in whole
    assert whole.count("漢字" * 30) == 7 and "\\u202eabc" in whole
    assert "+[red]x[/]" in whole and "newsinceupdate40" in whole


def test_names_and_similarities_stand_beside_keys():
    found = neighbors(["22178", "84978"])
    names = {"22178": "Red\x1b[31m tea"}
    shown = lines(frame("run", state(), found, [], Space(80), names), 80)
    name = "Red\\x1b[31m tea"
    for line in (
        f"22178 ({name}): 22178 ({name}) 0.50, +84978 0.50",
        f"84978: 22178 ({name}) 0.50, +84978 0.50",
    ):
        assert line in shown


@pytest.mark.row("B70")
@settings(max_examples=50)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=6), st.integers(20, 120))
def test_any_tokens_fit_any_width(words, width):
    shown = lines(frame("run", state(), neighbors(words), [], Space(width)), width)
    assert max(map(cells, shown)) <= width
    assert all(
        line.isprintable() or "\u200c" in line or "\u200d" in line for line in shown
    )


@pytest.mark.parametrize("height", [8, 16, 24, 50])
@pytest.mark.parametrize("width", [40, 100])
def test_a_low_window_shows_fewer_curves_and_names_the_others(width, height):
    found = state(num_scores=4)
    shown = lines(frame("run", found, None, [], Space(width, height)), width)
    text = " ".join(shown)
    assert len(shown) <= height
    left = {each.name for each in curves_of(found)} - {*re.findall(r"^(\S+) ", text)}
    named = text.partition("A taller window shows")[2]
    for curve in left:
        assert curve in named or re.search(rf"{curve} [\d.,]+ ", text)
    assert bool(named) == (height < 24 or (width, height) == (40, 24))


def test_stars_where_there_is_no_braille():
    shown = lines(frame("run", state(), None, [], Space(60, dots=False)), 60)
    assert any("***" in line for line in shown) and all(x.isascii() for x in shown)


def test_curves_are_in_order_of_interest():
    names = [curve.name for curve in curves_of(state(num_scores=2))]
    assert names == ["loss", "score-0", "score-1", "alpha", "words/s"]


def test_a_run_without_a_line_is_a_frame():
    for phase, config in (
        ("waiting", None),
        ("training", Config()),
        ("finished", Config()),
    ):
        shown = frame(
            "run", State(Workdir("run"), phase, config), None, [], Space(40, 20)
        )
        assert lines(shown, 40)[0] == "run"


@given(st.floats(-1e300, 1e300))
def test_labels_fit_beside_a_chart(value):
    text = _label(value)
    assert len(text) <= 8
    size = {"M": 1e6, "G": 1e9}.get(text[-1], 1)
    shown = float(text.rstrip("MG").replace(",", "")) * size
    assert shown == pytest.approx(value, rel=0.06 if 1e-99 < abs(value) < 1e99 else 0.5)
