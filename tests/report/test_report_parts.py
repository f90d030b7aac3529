"""What a report is made of: metrics, settings, charts, neighbours, projections."""

import logging
import os

import numpy as np
import pytest

from embedder.config import Config, with_options
from embedder.metrics.intervals import resamples
from embedder.metrics.scores import measured
from embedder.metrics.uncertainty import Predicted as Scored
from embedder.metrics.uncertainty import reliability
from embedder.report import projection
from embedder.report.chart import HEIGHT, WIDTH, Series, line_chart
from embedder.report.metrics import Metrics
from embedder.report.nearest import all_neighbors, samples
from embedder.report.page import Page
from embedder.report.points import Effort, Source, make_map, name_groups
from embedder.report.predictions import Predicted, predictions
from embedder.report.projection import by_components
from embedder.report.text import LONGEST, duration, number, short
from embedder.report.tokens import NO_EXTRAS, with_tokens
from embedder.report.trained import curves, different, results, settings_of
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.search import unit_rows
from embedder.vectors.vectors import Vectors

RNG = np.random.default_rng(0)
QUICK = Effort(1000, 1e12, "components")
EPOCH = {"epoch": 1, "updates": 10, "loss": 2.0, "alpha": 0.1, "words": 100}
EPOCH |= {"seconds": 3.0, "compile_seconds": 1.0, "words_per_second": 33}


def progress(updates: int, epoch: int, share: float, loss: float, epochs: int) -> dict:
    words = round(100 * epochs * share)
    line = {"epoch": epoch, "updates": updates, "progress": share, "words": words}
    return line | {"loss": loss, "alpha": 0.1, "seconds": updates / 10}


def test_curves_of_few_epochs_are_those_within_them():
    within = [progress(i, 1, i / 10, 3 - i / 10, 1) for i in range(1, 10)]
    found = Metrics([EPOCH], within=within, epochs=1)
    expected = [(i / 10, 3 - i / 10) for i in range(1, 10)]
    np.testing.assert_allclose(found.points("loss"), expected)
    assert found.points("words_per_second") == [(1.0, 33)]  # no line within has it
    assert Metrics([EPOCH], within=within[:1], epochs=1).points("loss") == [(1.0, 2.0)]
    inside = {"epoch": 2, "updates": 15, "hr@10": 0.3, "words": 150, "seconds": 4.0}
    found = Metrics([EPOCH, inside | {"words_per_second": 33}])
    assert found.points("hr@10") == [(1.5, 0.3)]  # between epochs


def test_points_within_epochs_stand_after_those_of_the_run_before():
    """A run that started from one of three epochs, and one that was made longer."""
    steps = (1, 4, 0.25), (2, 4, 0.45), (3, 5, 0.75)
    within = [progress(*step, 3.0, 2) for step in steps]
    based = Metrics([EPOCH | {"epoch": 4}], within=within, epochs=2)
    np.testing.assert_allclose([x for x, _ in based.points("loss")], [3.5, 3.9, 4.5])
    ends = [EPOCH | {"epoch": i, "words": 100 * i} for i in (1, 2)]
    first = [progress(i, 1, i / 20, 3.0, 1) for i in (5, 10, 15)]
    longer = Metrics(ends, within=first, epochs=2)
    np.testing.assert_allclose([x for x, _ in longer.points("loss")], [0.25, 0.5, 0.75])


def test_a_run_within_its_first_epoch_has_curves_and_results():
    more = {"words_per_second": 50.0, "cpu_busy": 0.75}
    within = [progress(i, 1, i / 30, 3 - i / 10, 3) | more for i in range(1, 6)]
    found = Metrics([], within=within, epochs=3)
    titles = [chart.title for chart in curves([("", found)])]
    assert titles == ["loss", "alpha", "words_per_second", "cpu_busy"]
    np.testing.assert_allclose(found.points("loss")[-1], (0.5, 2.5))
    result = dict(results(found, 3, 0, "stopped: by a signal"))
    assert result["end"] == "stopped: by a signal" and result["epochs"] == "0 of 3"
    assert (result["updates"], result["time"]) == ("5", "0.5 s")
    assert result["loss, the last"] == "2.5000"
    assert result["CPU busy"] == "75 % of all cores"
    done = dict(results(Metrics([EPOCH]), 1, 0))
    assert done["time"] == "3.0 s, 1.0 s of it to compile"
    assert (done["words/s"], done["loss at the end"]) == ("33", "2.0000")
    assert "3 evaluations" in dict(results(Metrics([EPOCH]), 5, 3))["end"]
    assert dict(results(Metrics([]), 0, 0))["end"] == "no epochs: the initial vectors"


def test_the_time_of_a_run_that_resumed_is_that_of_all_parts():
    seconds = 3.0, 5.0, 1.0, 2.5, 0.5
    assert Metrics([EPOCH | {"seconds": x} for x in seconds]).seconds == 8.0


def test_a_chart_draws_its_points_where_they_are():
    chart = line_chart("loss", [Series("loss", [(1, 4.0), (2, 2.0), (3, 3.0)])])
    ((_, dots),) = chart.lines
    assert [dot.x for dot in dots] == [chart.left, (chart.left + chart.right) / 2, 470]
    assert (dots[0].y, dots[1].y) == (chart.top, chart.bottom)
    assert [tick.text for tick in chart.x_ticks] == ["1", "2", "3"]
    at = {tick.text: tick.at for tick in chart.y_ticks}
    assert at["4"] == chart.top and at["2"] == chart.bottom and at["3"] == dots[2].y


@pytest.mark.parametrize(
    "points",
    [[(1, 0.0)], [(1, 5.0), (2, 5.0)], [(0, -1e-9), (1, 1e-9)], [(1, 1e12), (2, 2e12)]],
)
def test_a_chart_of_few_or_equal_values_has_ticks_inside(points):
    chart = line_chart("x", [Series("x", points)])
    assert chart.y_ticks and chart.x_ticks
    for _, dots in chart.lines:
        assert all(0 <= dot.x <= WIDTH and 0 <= dot.y <= HEIGHT for dot in dots)
    assert all(chart.top <= tick.at <= chart.bottom for tick in chart.y_ticks)


def test_texts_are_short_and_have_no_invisible_characters():
    assert short("a" * 1000) == "a" * (LONGEST - 1) + "…"
    assert short("a\u202eb\x00\n") == "a\\u202eb\\x00\\n"
    assert len(short("\u202e" * 1_000_000)) <= LONGEST
    values = [number(x) for x in (None, 5, 1234567.0, 0.123456)]
    assert values == ["–", "5", "1,234,567", "0.1235"]
    times = [duration(x) for x in (3.21, 125, 7500)]
    assert times == ["3.2 s", "2 min 05 s", "2 h 05 min"]


def test_neighbors_and_stability_of_replicas_are_those_of_the_ensemble():
    base = RNG.normal(size=(150, 8))
    tables = (base + 0.7 * RNG.normal(size=(4, 150, 8))).astype(np.float32)
    keys = [f"t{i}" for i in range(150)]
    ensemble = Ensemble(keys, tables, np.ones(150, np.int64))
    found = all_neighbors(tables, 10)
    for row, near in enumerate(ensemble.neighbors(keys, 10)):
        assert [keys[i] for i in found.ids[row]] == [each.token for each in near]
        for name in ("similarity", "lower", "upper"):
            expected = [getattr(each, name) for each in near]
            np.testing.assert_allclose(getattr(found, name)[row], expected, rtol=1e-9)
    np.testing.assert_allclose(found.stability, ensemble.stability(keys), rtol=1e-12)


def test_components_are_those_of_scikit_learn():
    from sklearn.decomposition import PCA

    matrix = RNG.normal(size=(50, 6)) * [5, 3, 1, 1, 1, 1]
    pca = PCA(2)
    expected = pca.fit_transform(matrix)
    found = by_components(matrix)
    signs = np.sign((found.positions * expected).sum(axis=0))
    np.testing.assert_allclose(found.positions, expected * signs, rtol=1e-4, atol=1e-4)
    assert f"{100 * pca.explained_variance_ratio_.sum():.0f} %" in found.method
    for flat in (np.zeros((5, 3)), np.ones((5, 1)), np.eye(2)[:1]):
        assert np.isfinite(by_components(flat).positions).all()


@pytest.mark.parametrize(
    ("replicas", "effort", "num"),
    [
        (1, {}, 100),
        (1, {"points": 7}, 7),
        (1, {"products": 4 * 30**2}, 30),
        (2, {"products": 2 * 2 * 4 * 25**2}, 25),
    ],
)
def test_a_map_has_the_first_tokens_that_the_effort_allows(replicas, effort, num):
    texts = [f"t{i}" for i in range(100)]
    source = Source(texts, RNG.normal(size=(replicas, 100, 4)))
    assert make_map(source, QUICK._replace(**effort)).source.texts == texts[:num]
    assert make_map(Source(texts[:2], source.vectors[:, :2]), QUICK) is None


def test_colours_are_by_label_frequency_and_stability():
    counts = np.array([1000, 999, 50, 5] + [1] * 26)
    labels = ["one", "two", ""] + ["one"] * 27
    texts, vectors = [f"t{i}" for i in range(30)], RNG.normal(size=(2, 30, 4))
    source = Source(texts, vectors, counts, labels=labels, label_name="kind")
    kind, frequency, stability = make_map(source, QUICK).colourings
    assert (kind.name, kind.meanings) == ("kind", ["one", "two", "other or none"])
    assert kind.numbers[:4].tolist() == [0, 1, 2, 0]
    assert frequency.meanings == ["1 to 9", "10 to 99", "100 to 999", "1,000 to 9,999"]
    assert frequency.numbers[:5].tolist() == [3, 2, 1, 0, 0]
    assert stability.name == "stability" and stability.numbers.max() < 5


def test_samples_are_of_each_band_of_frequencies():
    """Of large tables, of the most frequent tokens."""
    matrix = RNG.normal(size=(1500, 4)).astype(np.float32)
    counts = np.arange(1, 1501)  # the last is the most frequent
    vectors = Vectors([f"t{i}" for i in range(1500)], matrix, counts)
    found = samples(vectors)
    assert [band.ranks for band in found] == [(1, 100), (101, 1000), (1001, 1500)]
    for band in found:
        assert len(band.samples) == 4
        for sample in band.samples:
            assert sample.occurrences == int(sample.token[1:]) + 1
            assert band.ranks[0] <= 1501 - sample.occurrences <= band.ranks[1]
            assert len(sample.near) == 8
    for given in (None, Ensemble(vectors.keys, np.stack([matrix] * 2), counts)):
        effort = QUICK._replace(values=150 * 4)
        page = with_tokens(Page("", [], []), vectors, given, effort, NO_EXTRAS)
        assert [band.ranks for band in page.bands] == [(1, 100), (101, 150)]
        shown = [n.token for b in page.bands for s in b.samples for n in s.near]
        assert shown and all(int(token[1:]) >= 1350 for token in shown)


class BINS:
    """Two bins, one of them empty."""

    num_examples = np.array([0, 4])
    confidence = np.array([np.nan, 0.8])
    accuracy = np.array([np.nan, 0.5])
    calibration_error = 0.3


def predicted(labels: list[str], said: list[str], **more) -> Predicted:
    num = len(labels)
    return Predicted(
        *("examples", [f"k{i}" for i in range(num)], np.array(labels), np.array(said)),
        *(np.full(num, 0.8), np.log(np.linspace(0.9, 0.1, num)), BINS()),
        **more,
    )


def test_predictions_count_confusions_and_list_the_hardest():
    found = predictions(predicted([*"aabb"], [*"abbb"], pictures={}))
    assert found.confusion.counts == [[1, 1], [0, 2]]
    assert found.confusion.shares == [[0.5, 0.5], [0.0, 1.0]]
    assert (found.scores["accuracy"].value, found.majority) == (0.75, 0.5)
    assert [each.key for each in found.hardest] == ["k3", "k2", "k1", "k0"]
    assert found.hardest[0].likelihood == pytest.approx(0.1)
    assert found.calibration is not None and len(found.calibration.lines[0][1]) == 1
    one_right = predictions(predicted(["a"], ["a"])).scores["accuracy"]
    assert one_right == (1.0, 1.0, 1.0)  # its interval is a point
    many = [f"c{i % 30:02}" for i in range(90)]  # classes: their confusions are listed
    said = ["c01" if each == "c00" else each for each in many]
    found = predictions(predicted(many, said))
    assert found.confusion is None and found.confusions == [("c00", "c01", 3)]


def test_intervals_of_predictions_are_those_of_each_score_on_resamples():
    num = 60
    confidence = RNG.uniform(0.3, 1, num)
    is_correct = RNG.uniform(size=num) < confidence
    logs = np.log(np.where(is_correct, confidence, (1 - confidence) / 2))

    def error(rows) -> float:
        return reliability(confidence[rows], is_correct[rows]).calibration_error

    given = Scored(is_correct, confidence, is_correct, logs)
    found = [*measured("predictions", None, given).values()]
    (counts,) = resamples(num)
    rows = [np.repeat(np.arange(num), each.astype(int)) for each in counts]
    scores = [lambda rows: is_correct[rows].mean(), lambda rows: -logs[rows].mean()]
    for (value, *interval), score in zip(found, [*scores, error], strict=True):
        expected = np.percentile([score(each) for each in rows], [2.5, 97.5])
        np.testing.assert_allclose(interval, expected, rtol=1e-9)
        assert value == pytest.approx(score(np.arange(num)), rel=1e-12)


@pytest.mark.parametrize("given", [None, "active"])
def test_a_map_leaves_the_environment_as_it_was(monkeypatch, caplog, given):
    """While it is made, threads of OpenMP wait asleep, unless the user said how; the
    library logs nothing."""
    pytest.importorskip("openTSNE")
    seen, make = [], projection._tsne

    def counted(*arguments):
        seen.append(os.environ["OMP_WAIT_POLICY"])
        return make(*arguments)

    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr(projection, "_tsne", counted)
    caplog.set_level(logging.INFO)
    units = unit_rows(RNG.normal(size=(120, 5)))
    projection.best_projection(units, all_neighbors(units[np.newaxis], 15))
    assert seen == [given or "passive"] and caplog.messages == []
    assert os.environ.get("OMP_WAIT_POLICY") == given


def test_the_best_projection_keeps_neighbours_together(monkeypatch):
    """Twelve groups of tokens stay apart, which no two components can show; they are
    what there is without the extra."""
    pytest.importorskip("openTSNE")
    group = np.repeat(np.arange(12), 20)
    vectors = 4 * np.eye(12)[group] + 0.3 * RNG.normal(size=(240, 12))
    source = Source([f"t{i}" for i in range(240)], vectors[np.newaxis])
    kept = []
    for method in ("components", "best", "quick", "best without the extra"):
        if "extra" in method:
            monkeypatch.setattr("embedder.report.projection.has_tsne", lambda: False)
        found = make_map(source, QUICK._replace(method=method.split()[0]))
        assert found.neighbors.ids.shape == (240, 10)
        is_plain = method not in ("best", "quick")
        assert ("principal components" in found.projection.method) == is_plain
        at = found.projection.positions
        distances = np.linalg.norm(at[:, None] - at[None], axis=2)
        np.fill_diagonal(distances, np.inf)
        near = np.argsort(distances, axis=1)[:, :10]
        kept.append((group[near] == group[:, None]).mean())
    assert min(kept[1:3]) > 0.95 > kept[0] == kept[3]


def test_a_group_has_the_name_of_its_most_frequent_token_near_its_centre():
    """Or of the first one with its most frequent label; the largest group is first."""
    group = RNG.permutation(np.repeat(np.arange(6), (30, 26, 22, 18, 14, 10)))
    rank = np.array([(group[:i] == group[i]).sum() for i in range(120)])
    angle = RNG.uniform(0, 2 * np.pi, 120)
    radius = np.where(rank % 2 == 0, 0.9, 0.1)  # the most frequent is far out
    places = 10 * np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [0, 2]])[group]
    offsets = np.stack([np.cos(angle), np.sin(angle)], axis=1) * radius[:, np.newaxis]
    positions = (places + offsets).astype(np.float32)
    labels = ["odd" if each == 1 else "usual" for each in rank]
    for given, wanted in ((None, 1), (labels, 3)):
        names = [np.flatnonzero((group == k) & (rank == wanted))[0] for k in range(6)]
        assert name_groups(positions, given) == names
    assert name_groups(positions[:39]) == []
    assert name_groups(np.zeros((100, 2), np.float32))[0] == 0  # of equal points


def test_numbers_have_as_many_digits_as_a_reader_needs():
    one, two = (
        with_options(Config(), alpha=alpha, vector_size=128)
        for alpha in (0.09295785039535885, 0.09295785039535886)
    )
    settings = {each.name: each.value for each in settings_of(one).changed}
    assert settings == {"alpha": "0.0929579", "vector_size": "128"}
    assert [name for name, _ in different([one, two])] == ["alpha"]
    for other, texts in ((0.2, ["0.123457", "0.2"]), (0.1234567, None)):
        pair = [with_options(Config(), alpha=x) for x in (0.123456789, other)]
        assert different(pair) == [("alpha", texts or ["0.123456789", "0.1234567"])]
    found = line_chart("x", [Series("", [(0, 0), (200_000, 50_000)])], "updates")
    ticks = {each.text for each in found.x_ticks + found.y_ticks}
    assert {"50,000", "200,000"} <= ticks
