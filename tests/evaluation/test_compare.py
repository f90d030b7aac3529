"""Comparison of two spaces: by hand, beside scipy, and with replicas."""

import json

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.stats import ortho_group

from embedder import compare_spaces
from embedder.cli import main
from embedder.errors import InputError, InputTypeError
from embedder.evaluation.compare import cosines_after_alignment
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.export import write_vectors
from embedder.vectors.search import unit_rows
from embedder.vectors.vectors import Vectors
from tests.commands import error_line, record_stages


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


def test_spaces_of_other_dimensions_are_compared():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(60, 4))
    b = np.pad(a, ((0, 0), (0, 3))) @ ortho_group.rvs(7, random_state=1)
    assert compare_spaces(of(a), of(b)).error.value == pytest.approx(0, abs=1e-12)
    assert compare_spaces(of(b), of(a)).error.value == pytest.approx(0, abs=1e-12)


def test_unrelated_spaces_share_neighbours_by_chance():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3000, 10))
    found = compare_spaces(of(a), of(b), topn=30)
    chance = found.bands[0].overlap
    assert found.chance == pytest.approx(30 / 2999)
    assert chance.lower < 30 / 2999 < chance.upper
    assert found.error.value > 1.8


def test_only_shared_tokens_count():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(20, 4)), rng.normal(size=(20, 4))
    shared = compare_spaces(of(a[:10]), of(b[:10]), topn=3, num_moved=2)
    keys = [f"k{i}" for i in range(10)]
    others = ([f"{name}{i}" for i in range(10)] for name in "ab")
    first, second = (of(m, keys + more) for m, more in zip((a, b), others, strict=True))
    found = compare_spaces(first, second, topn=3, num_moved=2)
    assert (found.num_a, found.num_shared) == (20, 10)
    assert found.bands == shared.bands and found.error == shared.error
    near = [(each.token, each.cosine.value) for each in found.moved]
    assert near == [(each.token, each.cosine.value) for each in shared.moved]


def test_bands_without_counts_are_by_order():
    rng = np.random.default_rng(3)
    a = rng.normal(size=(1200, 3))
    bands = compare_spaces(of(a), of(a)).bands
    names = [(band.name, band.num_tokens) for band in bands[1:]]
    assert names == [("rank 1 to 999", 999), ("rank 1,000 to 9,999", 201)]


def test_large_bands_are_sampled_and_weighted(monkeypatch):
    """Half of the tokens, those in front, agree; they are a tenth of those compared."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 900, 6))
    b[:450] = a[:450]
    counts = np.repeat([5000, 50], 450)
    whole = compare_spaces(of(a, counts=counts), of(b, counts=counts), topn=5)
    monkeypatch.setattr("embedder.evaluation.compare._TOKENS", 200)
    some = compare_spaces(of(a, counts=counts), of(b, counts=counts), topn=5)
    assert some.error.value == whole.error.value
    assert some.bands[0].overlap.value == pytest.approx(
        np.mean([band.overlap.value for band in some.bands[1:]])
    )
    for sampled, exact in zip(some.bands, whole.bands, strict=True):
        assert sampled.cosine.value == exact.cosine.value
        ends = sampled.overlap.lower, sampled.overlap.upper
        assert ends[0] <= exact.overlap.value <= ends[1]
        assert sampled.num_tokens == exact.num_tokens


def test_intervals_over_tokens_cover_the_mean():
    """95 % of them, of 60 pairs of spaces: 50 or fewer have a chance of 1e-5."""
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(20_000, 5))
    other = whole + 0.6 * rng.normal(size=whole.shape)
    near = cosines_after_alignment(whole, other)
    covered = 0
    for _ in range(60):
        rows = rng.permutation(len(whole))[:150]
        found = compare_spaces(of(whole[rows]), of(other[rows]), num_moved=0)
        _, lower, upper = found.bands[0].cosine
        covered += lower <= near.mean() <= upper
    assert covered > 50


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


def test_an_ensemble_beside_vectors_is_its_mean():
    rng = np.random.default_rng(0)
    a = ensemble(rng.normal(size=(50, 4)), 3, 0.1, rng)
    found = compare_spaces(a, a.mean())
    assert found.error.value == pytest.approx(0, abs=1e-12) and found.num_pairs == 1


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


@pytest.mark.row("B62")
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"topn": 0}, InputError, "`topn` must be an integer >= 1, got 0"),
        ({"topn": 1.5}, InputTypeError, "`topn` must be an integer"),
        ({"num_moved": -1}, InputError, "`moved` must be >= 0, got -1"),
        ({"min_count": -1}, InputError, "`min_count` must be >= 0, got -1"),
    ],
)
def test_numbers_out_of_bounds(options, error, message):
    with pytest.raises(error, match=message):
        compare_spaces(of(np.eye(3)), of(np.eye(3)), **options)


@pytest.mark.row("B62")
@pytest.mark.parametrize("names", ["xyz", "azz"[:1] + "yz"])
def test_spaces_without_two_shared_tokens_are_refused(names):
    shared = "a" in names
    with pytest.raises(
        InputError, match=f"must share 2 tokens or more, got {shared:d}"
    ):
        compare_spaces(of(np.eye(3), "abc"), of(np.eye(3), names))


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    a = rng.normal(size=(30, 4))
    counts = np.arange(230, 200, -1)
    for name, matrix in (("a", a), ("b", a + 0.3 * rng.normal(size=a.shape))):
        write_vectors(of(matrix, counts=counts), f"{name}.npz")
    write_vectors(
        of(a[:, :2], "\x1bbcd" + "efghijklmnopqrstuvwxyzABCDEF"[:26]), "x.npz"
    )


def test_the_command_prints_what_the_function_finds(files, capsys, monkeypatch):
    from embedder import read_vectors

    seen = record_stages(monkeypatch)

    found = compare_spaces(read_vectors("a.npz"), read_vectors("b.npz"), 5, num_moved=2)
    assert main(["compare", "a.npz", "b.npz", "--topn", "5", "--moved", "2"]) == 0
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
    arguments = ["--topn", "5", "--moved", "2", "--json"]
    assert main(["compare", "a.npz", "b.npz", *arguments]) == 0
    parsed = json.loads(capsys.readouterr().out)
    assert parsed["error"] == found.error._asdict()
    assert parsed["bands"][1]["overlap"] == overlap._asdict()
    assert parsed["moved"][0]["token"] == found.moved[0].token
    assert parsed["moved"][0]["cosine"]["lower"] is None


@pytest.mark.row("B62")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.npz", "none.npz"], "RUN none.npz does not exist."),
        (
            ["a.npz", "x.npz"],
            "A and B must share 2 tokens or more, got 0 of 30",
        ),
        (["a.npz", "b.npz", "--topn", "0"], "`topn` must be an integer >= 1, got 0."),
        (["a.npz", "b.npz", "--moved", "-1"], "`moved` must be >= 0, got -1."),
        (["a.npz"], "B"),
    ],
)
def test_wrong_arguments_of_compare_are_refused(files, capsys, arguments, message):
    assert main(["compare", *arguments]) == 2
    assert message in error_line(capsys)
