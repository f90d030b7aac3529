"""What a report is made of: metrics, settings, charts, neighbours, projections."""

import json
import logging
import math
import os

import numpy as np
import pytest

from embedder.config import Config, with_options
from embedder.encoders.uncertainty import reliability
from embedder.evaluation.intervals import resamples
from embedder.report import layout
from embedder.report import predictions as module
from embedder.report.chart import HEIGHT, WIDTH, Series, line_chart
from embedder.report.intervals import scores_of
from embedder.report.metrics import Metrics, read_metrics
from embedder.report.nearest import all_neighbors, nearest_ids
from embedder.report.page import Page, curves, results
from embedder.report.points import Effort, Source, make_map
from embedder.report.predictions import Predicted, predictions, thumbnail
from embedder.report.projection import by_components
from embedder.report.samples import samples
from embedder.report.settings import different, settings_of
from embedder.report.text import LONGEST, duration, number, short
from embedder.report.tokens import NO_EXTRAS, with_tokens
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.search import unit_rows
from embedder.vectors.vectors import Vectors

RNG = np.random.default_rng(0)
QUICK = Effort(1000, 1e12, "components")
EPOCH = {"epoch": 1, "updates": 10, "loss": 2.0, "alpha": 0.1, "words": 100}
EPOCH |= {"seconds": 3.0, "compile_seconds": 1.0, "words_per_second": 33}


def lines(*values: dict) -> str:
    return "".join(json.dumps(each) + "\n" for each in values)


def test_metrics_are_read_by_name(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines(EPOCH, EPOCH | {"epoch": 2, "loss": 1.5, "words": 200}))
    found = read_metrics(path)
    assert found.num_damaged == 0
    assert (found.unit, found.scores) == ("words", ["loss"])
    assert found.others == ["alpha", "words_per_second"]
    assert found.points("loss") == [(1.0, 2.0), (2.0, 1.5)]


@pytest.mark.row("B64")
@pytest.mark.parametrize(
    "bad",
    [
        *('{"epoch": 2, "lo', "[1, 2]", "null", '{"loss": 1.0}', '{"epoch": "2"}'),
        *('{"epoch": 2, "loss": [1]}', '{"epoch": 2, "loss": true}', "\x00\x00"),
        *('{"epoch": 1e999, "loss": 1}', "[" * 100_000),
    ],
)
def test_a_damaged_line_is_left_out_and_counted(tmp_path, bad):
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines(EPOCH) + bad + "\n" + lines(EPOCH | {"epoch": 3}))
    found = read_metrics(path)
    assert (len(found.lines), found.num_damaged) == (2, 1)


@pytest.mark.row("B64")
def test_bytes_that_are_no_text_are_a_damaged_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\xff\xfe\n" + lines(EPOCH).encode())
    assert read_metrics(path).num_damaged == 1


@pytest.mark.row("B64")
def test_values_that_are_not_finite_are_not_measured(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines(EPOCH | {"held_out": math.nan}, EPOCH | {"held_out": None}))
    found = read_metrics(path)
    assert found.num_damaged == 0 and found.points("held_out") == []


@pytest.mark.row("B64")
def test_no_metrics_are_no_lines(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == Metrics([])


def test_an_evaluation_within_an_epoch_stands_between_epochs():
    inside = {"epoch": 2, "updates": 15, "hr@10": 0.3, "words": 150, "seconds": 4.0}
    found = Metrics([EPOCH, inside | {"words_per_second": 33}])
    assert found.points("hr@10") == [(1.5, 0.3)]


def progress(updates: int, epoch: int, share: float, loss: float, epochs: int) -> dict:
    words = round(100 * epochs * share)
    line = {"epoch": epoch, "updates": updates, "progress": share, "words": words}
    return line | {"loss": loss, "alpha": 0.1, "seconds": updates / 10}


def test_curves_of_few_epochs_are_those_within_them():
    within = [progress(i, 1, i / 10, 3 - i / 10, 1) for i in range(1, 10)]
    found = Metrics([EPOCH], within=within, epochs=1)
    expected = [(i / 10, 3 - i / 10) for i in range(1, 10)]
    np.testing.assert_allclose(found.points("loss"), expected)
    np.testing.assert_allclose(
        [x for x, _ in found.points("alpha")], np.arange(1, 10) / 10
    )
    assert found.points("words_per_second") == [(1.0, 33)]  # no line within has it
    assert Metrics([EPOCH], within=within[:1], epochs=1).points("loss") == [(1.0, 2.0)]
    (loss, *_) = curves([("", found)])
    assert (loss.title, len(loss.lines[0][1])) == ("loss", 9)


def test_points_within_epochs_stand_after_those_of_the_run_before():
    """A run that started from one of three epochs, and one that was made longer."""
    within = [
        progress(1, 4, 0.25, 3.0, 2),
        progress(2, 4, 0.45, 2.9, 2),
        progress(3, 5, 0.75, 2.8, 2),
    ]
    based = Metrics([EPOCH | {"epoch": 4}], within=within, epochs=2)
    np.testing.assert_allclose([x for x, _ in based.points("loss")], [3.5, 3.9, 4.5])
    ends = [EPOCH | {"epoch": i, "words": 100 * i} for i in (1, 2)]
    first = [progress(i, 1, i / 20, 3.0, 1) for i in (5, 10, 15)]
    longer = Metrics(ends, within=first, epochs=2)
    np.testing.assert_allclose([x for x, _ in longer.points("loss")], [0.25, 0.5, 0.75])


def test_a_run_within_its_first_epoch_has_curves_and_results():
    within = [progress(i, 1, i / 30, 3 - i / 10, 3) for i in range(1, 6)]
    more = {"words_per_second": 50.0, "cpu_busy": 0.75}
    within = [line | more for line in within]
    found = Metrics([], within=within, epochs=3)
    titles = [chart.title for chart in curves([("", found)])]
    assert titles == ["loss", "alpha", "words_per_second", "cpu_busy"]
    np.testing.assert_allclose(found.points("loss")[-1], (0.5, 2.5))
    result = dict(results(found, 3, 0, "stopped: by a signal"))
    assert result["end"] == "stopped: by a signal" and result["epochs"] == "0 of 3"
    assert (result["updates"], result["time"]) == ("5", "0.5 s")
    assert result["loss, the last"] == "2.5000"
    assert result["CPU busy"] == "75 % of all cores"


def test_the_time_of_a_run_that_resumed_is_that_of_all_parts():
    seconds = 3.0, 5.0, 1.0, 2.5
    assert Metrics([EPOCH | {"seconds": x} for x in seconds]).seconds == 7.5


def test_results_say_how_a_training_ended():
    metrics = Metrics([EPOCH])
    found = dict(results(metrics, 1, 0))
    assert found["end"] == "all epochs are done"
    assert found["time"] == "3.0 s, 1.0 s of it to compile"
    assert (found["words/s"], found["loss at the end"]) == ("33", "2.0000")
    assert "3 evaluations" in dict(results(metrics, 5, 3))["end"]
    assert dict(results(Metrics([]), 0, 0))["end"] == "no epochs: the initial vectors"


def test_settings_are_told_apart():
    config = with_options(Config(), window=9, alpha=0.04)
    found = settings_of(config, {"alpha": None})
    assert [tuple(each) for each in found.given] == [("window", "9", "5")]
    assert [each.name for each in found.chosen] == ["alpha"]
    names = {each.name for each in found.defaults}
    assert "negative" in names and not names & {"window", "alpha"}


def test_settings_that_differ_are_side_by_side():
    one, two = with_options(Config(), window=9), with_options(Config(), seed=7)
    assert different([one, two]) == [("seed", ["1", "7"]), ("window", ["9", "5"])]
    assert different([one, one]) == []
    one, two = (with_options(Config(), alpha=x) for x in (0.123456789, 0.2))
    assert different([one, two]) == [("alpha", ["0.123457", "0.2"])]
    two = with_options(Config(), alpha=0.12345678)
    assert different([one, two]) == [("alpha", ["0.123456789", "0.12345678"])]


def test_validation_shares_the_chart_of_its_metric():
    line = {"epoch": 1, "train_loss": 1.0, "train_accuracy": 0.5, "val_loss": 1.2}
    found = curves([("", Metrics([line, line | {"epoch": 2}]))])
    assert [chart.title for chart in found] == ["loss", "accuracy"]
    assert [name for name, _ in found[0].lines] == ["train_loss", "val_loss"]


def test_a_chart_draws_its_points_where_they_are():
    chart = line_chart("loss", [Series("loss", [(1, 4.0), (2, 2.0), (3, 3.0)])])
    assert chart is not None
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
    assert chart is not None and chart.y_ticks and chart.x_ticks
    for _, dots in chart.lines:
        assert all(0 <= dot.x <= WIDTH and 0 <= dot.y <= HEIGHT for dot in dots)
    assert all(chart.top <= tick.at <= chart.bottom for tick in chart.y_ticks)


def test_a_chart_without_points_is_none():
    assert line_chart("x", [Series("x", [])]) is None


def test_texts_are_short_and_have_no_invisible_characters():
    assert short("a" * 1000) == "a" * (LONGEST - 1) + "…"
    assert short("a\u202eb\x00\n") == "a\\u202eb\\x00\\n"
    assert len(short("\u202e" * 1_000_000)) <= LONGEST
    assert [number(x) for x in (None, 5, 1234567.0, 0.123456)] == [
        *("–", "5", "1,234,567", "0.1235")
    ]
    assert [duration(x) for x in (3.21, 125, 7500)] == [
        "3.2 s",
        "2 min 05 s",
        "2 h 05 min",
    ]


@pytest.mark.parametrize("num", [2, 5, 63, 64, 65, 300])
def test_nearest_ids_are_those_of_all_similarities(num):
    rows, topn = RNG.normal(size=(num, 6)).astype(np.float32), min(10, num - 1)
    scores = rows @ rows.T
    np.fill_diagonal(scores, -np.inf)
    expected = np.sort(np.argsort(-scores, axis=1)[:, :topn], axis=1)
    np.testing.assert_array_equal(np.sort(nearest_ids(rows, topn), axis=1), expected)


def test_neighbors_of_a_map_are_those_of_the_vectors():
    matrix = RNG.normal(size=(200, 8)).astype(np.float32)
    keys = [f"t{i}" for i in range(200)]
    ids, cosines = Vectors(keys, matrix).neighbors(keys, 10)
    found = all_neighbors(matrix[np.newaxis], 10)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_allclose(found.similarity, cosines, rtol=1e-12)
    assert found.lower is None and found.stability is None


def test_neighbors_and_stability_of_replicas_are_those_of_the_ensemble():
    base = RNG.normal(size=(150, 8))
    tables = (base + 0.7 * RNG.normal(size=(4, 150, 8))).astype(np.float32)
    keys = [f"t{i}" for i in range(150)]
    ensemble = Ensemble(keys, tables, np.ones(150, np.int64))
    found = all_neighbors(tables, 10)
    for row, near in enumerate(ensemble.neighbors(keys, 10)):
        assert [keys[i] for i in found.ids[row]] == [each.token for each in near]
        for name, values in (
            ("similarity", found.similarity),
            ("lower", found.lower),
            ("upper", found.upper),
        ):
            expected = [getattr(each, name) for each in near]
            np.testing.assert_allclose(values[row], expected, rtol=1e-9)
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


@pytest.mark.parametrize("matrix", [np.zeros((5, 3)), np.ones((5, 1)), np.eye(2)[:1]])
def test_components_of_vectors_without_two_directions_are_finite(matrix):
    assert np.isfinite(by_components(matrix).positions).all()


def test_a_map_has_the_first_tokens_that_the_effort_allows():
    source = Source([f"t{i}" for i in range(100)], RNG.normal(size=(1, 100, 4)))
    for effort, num in (
        (QUICK, 100),
        (QUICK._replace(points=7), 7),
        (QUICK._replace(products=4 * 30**2), 30),
    ):
        found = make_map(source, effort)
        assert found is not None and found.source.texts == source.texts[:num]
    replicas = source._replace(vectors=RNG.normal(size=(2, 100, 4)))
    found = make_map(replicas, QUICK._replace(products=2 * 2 * 4 * 25**2))
    assert found is not None and len(found.source.texts) == 25


def test_a_map_of_long_tokens_has_fewer_of_them(monkeypatch):
    monkeypatch.setattr("embedder.report.points._TEXT_BYTES", 10 * LONGEST)
    source = Source(
        ["x" * 1000 + str(i) for i in range(50)], RNG.normal(size=(1, 50, 4))
    )
    found = make_map(source, QUICK)
    assert found is not None and len(found.source.texts) == 9  # "…" has three bytes


def test_there_is_no_map_of_two_tokens():
    assert make_map(Source(["a", "b"], RNG.normal(size=(1, 2, 4))), QUICK) is None


def test_colours_are_by_label_frequency_and_stability():
    source = Source(
        [f"t{i}" for i in range(30)],
        RNG.normal(size=(2, 30, 4)),
        np.array([1000, 999, 50, 5] + [1] * 26),
        labels=["one", "two", ""] + ["one"] * 27,
        label_name="kind",
    )
    found = make_map(source, QUICK)
    assert found is not None
    kind, frequency, stability = found.colourings
    assert (kind.name, kind.meanings) == ("kind", ["one", "two", "other or none"])
    assert kind.numbers[:4].tolist() == [0, 1, 2, 0]
    assert frequency.meanings == ["1 to 9", "10 to 99", "100 to 999", "1,000 to 9,999"]
    assert frequency.numbers[:5].tolist() == [3, 2, 1, 0, 0]
    assert stability.name == "stability" and stability.numbers.max() < 5


def test_samples_are_of_each_band_of_frequencies():
    matrix = RNG.normal(size=(1500, 4)).astype(np.float32)
    counts = np.arange(1, 1501)  # the last is the most frequent
    found = samples(Vectors([f"t{i}" for i in range(1500)], matrix, counts))
    assert [band.ranks for band in found] == [(1, 100), (101, 1000), (1001, 1500)]
    for band in found:
        assert len(band.samples) == 4
        for sample in band.samples:
            assert sample.occurrences == int(sample.token[1:]) + 1
            assert band.ranks[0] <= 1501 - sample.occurrences <= band.ranks[1]
            assert len(sample.near) == 8


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
    assert found.confusion is not None
    assert found.confusion.counts == [[1, 1], [0, 2]]
    assert found.confusion.shares == [[0.5, 0.5], [0.0, 1.0]]
    assert (found.scores.accuracy.value, found.majority) == (0.75, 0.5)
    assert [each.key for each in found.hardest] == ["k3", "k2", "k1", "k0"]
    assert found.hardest[0].likelihood == pytest.approx(0.1)
    assert found.calibration is not None and len(found.calibration.lines[0][1]) == 1


def test_intervals_of_predictions_are_those_of_each_score_on_resamples():
    num, bins = 60, 5
    confidence = RNG.uniform(0.3, 1, num)
    is_correct = RNG.uniform(size=num) < confidence
    logs = np.log(np.where(is_correct, confidence, (1 - confidence) / 2))
    error = reliability(confidence, is_correct, bins).calibration_error
    found = scores_of(is_correct, logs, confidence, error, bins)
    (counts,) = resamples(num)
    rows = [np.repeat(np.arange(num), each.astype(int)) for each in counts]
    of_rows = {
        "accuracy": lambda rows: is_correct[rows].mean(),
        "negative_log_likelihood": lambda rows: -logs[rows].mean(),
        "calibration_error": lambda rows: (
            reliability(confidence[rows], is_correct[rows], bins).calibration_error
        ),
    }
    for name, score in of_rows.items():
        expected = np.percentile([score(each) for each in rows], [2.5, 97.5])
        value, *interval = getattr(found, name)
        np.testing.assert_allclose(interval, expected, rtol=1e-9)
        assert value == pytest.approx(score(np.arange(num)), rel=1e-12)


def test_an_interval_of_one_right_example_is_a_point():
    found = predictions(predicted(["a"], ["a"])).scores.accuracy
    assert found == (1.0, 1.0, 1.0)


def test_confusions_of_many_classes_are_listed():
    labels = [f"c{i % 30:02}" for i in range(90)]
    said = ["c01" if each == "c00" else each for each in labels]
    found = predictions(predicted(labels, said))
    assert found.confusion is None and found.confusions == [("c00", "c01", 3)]


def test_a_thumbnail_is_a_small_png():
    image = thumbnail(RNG.integers(256, size=(300, 500, 3)).astype(np.uint8))
    assert image.startswith("data:image/png;base64,")
    assert len(image) < 60_000 and module._IMAGE == 112


def test_samples_of_large_tables_are_of_the_most_frequent_tokens():
    num = 300
    tables = RNG.normal(size=(2, num, 4)).astype(np.float32)
    counts = np.arange(num) + 1
    tokens = [f"t{i}" for i in range(num)]
    ensemble, vectors = (
        Ensemble(tokens, tables, counts),
        Vectors(tokens, tables[0], counts),
    )
    for given in (None, ensemble):
        effort = QUICK._replace(values=150 * 4)
        page = with_tokens(Page("", [], []), vectors, given, effort, NO_EXTRAS)
        assert [band.ranks for band in page.bands] == [(1, 100), (101, 150)]
        shown = [n.token for b in page.bands for s in b.samples for n in s.near]
        assert shown and all(int(token[1:]) >= 150 for token in shown)


def test_few_tokens_of_a_map_have_one_thread(monkeypatch):
    cores = {0, 1, 2}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores, raising=False)
    assert [layout.num_jobs(n) for n in (100, 4999, 5000)] == [1, 1, 3]


@pytest.mark.parametrize("given", [None, "active"])
def test_a_map_leaves_the_environment_and_the_log_as_they_were(
    monkeypatch, caplog, given
):
    """While it is made, threads of OpenMP wait asleep, unless the user said how."""
    seen = []

    def tsne(start, neighbors):
        seen.append(os.environ["OMP_WAIT_POLICY"])
        logging.getLogger("openTSNE.tsne").info("a line of the library")
        return start.astype(np.float32)

    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    monkeypatch.setattr(layout, "_tsne", tsne)
    monkeypatch.setattr(layout, "has_tsne", lambda: True)
    caplog.set_level(logging.INFO)
    units = unit_rows(np.random.default_rng(0).normal(size=(120, 5)))
    layout.best_projection(units, all_neighbors(units[np.newaxis], 15))
    assert seen == [given or "passive"]
    assert os.environ.get("OMP_WAIT_POLICY") == given
    assert caplog.messages == []
    assert logging.getLogger("openTSNE").level == logging.NOTSET


def test_the_best_projection_keeps_neighbours_together():
    """Twelve groups of tokens stay apart, which no two components can show."""
    pytest.importorskip("openTSNE")
    corners = np.eye(12)
    group = np.repeat(np.arange(12), 20)
    vectors = 4 * corners[group] + 0.3 * RNG.normal(size=(240, 12))
    source = Source([f"t{i}" for i in range(240)], vectors[np.newaxis])
    kept = []
    for method in ("components", "best"):
        found = make_map(source, QUICK._replace(method=method))
        assert found is not None and found.neighbors.ids.shape == (240, 10)
        near = nearest_ids_in_plane(found.projection.positions)
        kept.append((group[near] == group[:, None]).mean())
    assert kept[1] > 0.95 > kept[0]


def nearest_ids_in_plane(positions: np.ndarray) -> np.ndarray:
    distances = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1)[:, :10]


def test_without_the_extra_a_map_is_by_components(monkeypatch):
    monkeypatch.setattr("embedder.report.layout.has_tsne", lambda: False)
    source = Source([f"t{i}" for i in range(120)], RNG.normal(size=(1, 120, 4)))
    found = make_map(source, QUICK._replace(method="best"))
    assert found is not None and "principal components" in found.projection.method
    assert found.neighbors.ids.shape == (120, 10)


def test_numbers_have_as_many_digits_as_a_reader_needs():
    configs = [
        with_options(Config(), alpha=alpha, vector_size=128)
        for alpha in (0.09295785039535885, 0.09295785039535886)
    ]
    settings = {each.name: each.value for each in settings_of(configs[0]).given}
    assert settings == {"alpha": "0.0929579", "vector_size": "128"}
    assert [name for name, _ in different(configs)] == ["alpha"]
    found = line_chart("x", [Series("", [(0, 0), (200_000, 50_000)])], "updates")
    assert {"50,000", "200,000"} <= {
        each.text for each in found.x_ticks + found.y_ticks
    }
