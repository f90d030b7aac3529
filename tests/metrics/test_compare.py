"""Comparison of two spaces: by hand, beside scipy, and with replicas."""

import json

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.stats import ortho_group

from embedder import compare_spaces, read_vectors
from embedder.cli.main import main
from embedder.metrics.compare import cosines_after_alignment
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.export import write_vectors
from embedder.vectors.search import unit_rows
from embedder.vectors.vectors import Vectors
from tests.commands import record_stages


def of(matrix, names="", counts=None) -> Vectors:
    keys = [*names] or [f"k{i}" for i in range(len(matrix))]
    return Vectors(keys, np.asarray(matrix, float), counts)


def test_five_tokens_by_hand():
    """B is A turned by 90 degrees, but for d, which points the other way. With unit
    rows A^T B = [[0, 2], [-1, 0]], so the best rotation is that by 90 degrees."""
    a = of(
        [[1, 0], [2, 0], [0, 1], [0, 3], [0, 2]], "abcde", [1000, 200, 150, 120, 110]
    )
    b = of(
        [[0, 5], [0, 1], [-1, 0], [4, 0], [-2, 0]], "abcde", [900, 100, 100, 130, 99]
    )
    found = compare_spaces(a, b, topn=1, num_moved=5)
    near = [1, 1, 1, -1, 1]
    assert found.error.value == pytest.approx(2 * (1 - 3 / 5))
    assert cosines_after_alignment(a.matrix, b.matrix) == pytest.approx(near)
    assert found.moved[0].token == "d"
    assert found.moved[0].cosine.value == pytest.approx(-1)
    assert (found.moved[0].count_a, found.moved[0].count_b) == (120, 130)
    # Nearest in A: b a d c c, ties by row. In B: b a e a c.
    everything, thousands, hundreds = found.bands
    assert everything.overlap.value == everything.jaccard.value == pytest.approx(3 / 5)
    assert (thousands.name, thousands.num_tokens) == ("count 1,000 to 9,999", 1)
    assert (hundreds.name, hundreds.num_tokens) == ("count 100 to 999", 4)
    assert hundreds.overlap.value == pytest.approx(2 / 4)
    assert hundreds.cosine.value == pytest.approx(2 / 4)
    assert (found.num_a, found.num_b, found.num_shared) == (5, 5, 5)
    assert found.chance == pytest.approx(1 / 4)
    assert found.within is None and found.num_pairs == 1


@pytest.mark.parametrize("size", [3, 12])
def test_the_rotation_is_that_of_scipy(size):
    rng = np.random.default_rng(size)
    a, b = rng.normal(size=(2, 40, size))
    x, y = unit_rows(a), unit_rows(b)
    rotation, _ = orthogonal_procrustes(x, y)
    expected = np.linalg.norm(x @ rotation - y) ** 2 / 40
    found = compare_spaces(of(a), of(b), num_moved=40)
    assert found.error.value == pytest.approx(expected, rel=1e-12)
    near = ((x @ rotation) * y).sum(axis=1)
    np.testing.assert_allclose(cosines_after_alignment(a, b), near, atol=1e-12)
    moved = [each.token for each in found.moved]
    assert moved == [f"k{i}" for i in np.argsort(near)]


def test_a_rotated_space_is_the_same():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(60, 7))
    lengths = rng.uniform(0.5, 9, (60, 1))
    b = a @ ortho_group.rvs(7, random_state=1) * lengths
    found = compare_spaces(of(a), of(b[::-1], [f"k{i}" for i in range(60)][::-1]))
    assert found.error.value == pytest.approx(0, abs=1e-12)
    assert found.bands[0].overlap.value == found.bands[0].jaccard.value == 1
    assert found.error.lower == pytest.approx(0, abs=1e-12)

    b = np.pad(a, ((0, 0), (0, 3))) @ ortho_group.rvs(10, random_state=1)
    for first, second in ((a, b), (b, a)):
        assert compare_spaces(of(first), of(second)).error.value == pytest.approx(0)


def test_only_shared_tokens_count_and_bands_without_counts_are_by_order():
    a, b = np.random.default_rng(3).normal(size=(2, 1210, 4))
    shared = compare_spaces(of(a[:1200]), of(b[:1200]), topn=3, num_moved=2)
    assert shared.chance == pytest.approx(3 / 1199)
    names = [(band.name, band.num_tokens) for band in shared.bands[1:]]
    assert names == [("rank 1 to 999", 999), ("rank 1,000 to 9,999", 201)]
    keys = [f"k{i}" for i in range(1200)]
    first, second = (
        of(matrix, keys + [f"{name}{i}" for i in range(10)])
        for name, matrix in {"a": a, "b": b}.items()
    )
    found = compare_spaces(first, second, topn=3, num_moved=2)
    assert (found.num_a, found.num_shared) == (1210, 1200)
    assert found.bands == shared.bands and found.error == shared.error
    near = [(each.token, each.cosine.value) for each in found.moved]
    assert near == [(each.token, each.cosine.value) for each in shared.moved]


def ensemble(matrix, num, noise, rng) -> Ensemble:
    size = matrix.shape[1]
    turned = [
        (matrix + noise * rng.normal(size=matrix.shape))
        @ ortho_group.rvs(size, random_state=rng)
        for _ in range(num)
    ]
    counts = np.full(len(matrix), 500)
    return Ensemble([f"k{i}" for i in range(len(matrix))], np.array(turned), counts)


def test_replicas_of_one_space_differ_as_those_of_the_same_run():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(300, 6))
    a, b = (ensemble(matrix, num, 0.3, rng) for num in (7, 5))
    found = compare_spaces(a, b, num_moved=3)
    assert found.num_pairs == 5
    _, lower, upper = found.error
    assert lower < found.within[0].error < upper
    assert lower < found.within[1].error < upper
    overlap = found.bands[0].overlap
    assert overlap.lower < found.within[0].overlap < overlap.upper
    pairs = [
        cosines_after_alignment(a.vectors[k], b.vectors[k]).mean() for k in range(5)
    ]
    assert found.error.value == pytest.approx(2 - 2 * np.mean(pairs))
    assert found.error.lower == pytest.approx(2 - 2 * max(pairs))
    beside = compare_spaces(a, a.mean())
    assert beside.error.value == pytest.approx(0, abs=1e-12) and beside.num_pairs == 1


def test_a_moved_token_stands_out_of_the_replicas():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(300, 6))
    other = matrix.copy()
    other[17] = -other[17]
    found = compare_spaces(
        ensemble(matrix, 6, 0.2, rng), ensemble(other, 6, 0.2, rng), num_moved=2
    )
    first, second = found.moved
    assert first.token == "k17" and first.cosine.upper < second.cosine.lower
    assert first.count_a == first.count_b == 500
    assert not {*first.nearest_a} & {*first.nearest_b}


def test_rare_tokens_do_not_count_as_moved():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 40, 4))
    counts = np.repeat([150, 50], 20)
    first, second = of(a, counts=counts), of(b, counts=counts[::-1])
    moved = compare_spaces(of(a, counts=counts), of(b, counts=counts), num_moved=40)
    assert len(moved.moved) == 40  # there are fewer than 40 frequent ones
    moved = compare_spaces(of(a, counts=counts), of(b, counts=counts), num_moved=5)
    assert all(each.count_a == 150 for each in moved.moved)
    found = compare_spaces(first, second, num_moved=5, min_count=100)
    assert found.moved == []
    assert compare_spaces(first, second, num_moved=0).moved == []


def test_the_command_prints_what_the_function_finds(own_folder, capsys, monkeypatch):
    seen, rng = record_stages(monkeypatch), np.random.default_rng(0)
    a, noise = rng.normal(size=(2, 30, 4))
    for name, matrix in (("a", a), ("b", a + 0.3 * noise)):
        write_vectors(of(matrix, counts=np.arange(230, 200, -1)), f"{name}.npz")
    found = compare_spaces(read_vectors("a.npz"), read_vectors("b.npz"), 5, num_moved=2)
    command = ["compare", "a.npz", "b.npz", "--topn", "5", "--moved", "2"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert seen[:2] == ["reading vectors", "comparing 30 shared tokens"]
    assert lines[0] == "tokens: 30 in A, 30 in B, 30 shared; intervals over tokens"
    value, lower, upper = found.error
    start = f"Procrustes error {value:.3f} [{lower:.3f}, {upper:.3f}]; 0: "
    assert lines[1].startswith(start)
    overlap = found.bands[1].overlap
    (band,) = [line for line in lines if line.startswith("count 100 to 999")]
    assert f"  {overlap[0]:.3f} [{overlap[1]:.3f}, {overlap[2]:.3f}]" in band
    for line, each in zip(lines[-2:], found.moved, strict=True):
        counts = f"({each.count_a}, {each.count_b})"
        assert line.startswith(f"  {each.cosine.value:.3f}  {each.token} {counts}: ")
        assert line.endswith(" | " + " ".join(each.nearest_b))
    assert main([*command, "--json"]) == 0
    parsed = json.loads(capsys.readouterr().out)
    assert parsed["error"] == found.error._asdict()
    assert parsed["bands"][1]["overlap"] == overlap._asdict()
    assert parsed["moved"][0]["token"] == found.moved[0].token
    assert parsed["moved"][0]["cosine"]["lower"] is None
