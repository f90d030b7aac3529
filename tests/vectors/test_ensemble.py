"""Ensembles: alignment, intervals by hand, stability, files."""

import numpy as np
import polars as pl
import pytest
from scipy.linalg import orthogonal_procrustes

from embedder.errors import InputError
from embedder.vectors import ensemble as module
from embedder.vectors.ensemble import Ensemble, Neighbor, has_little_data
from embedder.vectors.ensemble_files import (
    read_ensemble,
    write_ensemble,
    write_stability,
)
from embedder.vectors.search import unit_rows

SIZE = 16


def rotation(rng: np.random.Generator, size: int = SIZE) -> np.ndarray:
    """A random orthogonal matrix; half of them are reflections."""
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def rotated(matrices, dtype=np.float64, seed: int = 0) -> Ensemble:
    """Each of the matrices [V, D] by another rotation, the first as it is."""
    rng = np.random.default_rng(seed)
    first, *others = matrices
    turned = [first, *(each @ rotation(rng, each.shape[1]) for each in others)]
    num = len(first)
    tokens = [f"t{i}" for i in range(num)]
    return Ensemble(tokens, np.array(turned, dtype), np.arange(num, 0, -1))


def clusters(rng: np.random.Generator) -> np.ndarray:
    """Eight clusters of 12 vectors, f64[96, 16]."""
    centres = np.repeat(rng.standard_normal((8, SIZE)), 12, axis=0)
    return centres + 0.3 * rng.standard_normal(centres.shape)


def noisy(noise: float, num_replicas: int = 4, seed: int = 0) -> Ensemble:
    """Rotated copies of the clusters, each with noise of its own."""
    rng = np.random.default_rng(seed)
    base = clusters(rng)
    copies = [
        base + noise * rng.standard_normal(base.shape) for _ in range(num_replicas)
    ]
    return rotated(copies)


def hand(dtype=np.float64) -> Ensemble:
    """Three replicas of five tokens; cosines to "east" stand in `COSINES`."""
    vectors = []
    for each in COSINES:
        x = np.array([1.0, *each])
        vectors.append(np.stack([x, np.sqrt(1 - x**2)], axis=1))
    return Ensemble([*TOKENS], np.array(vectors, dtype), np.array([9, 7, 7, 2, 1]))


TOKENS = ("east", "a", "b", "c", "d")
COSINES = [[0.9, 0.6, 0.1, 0.0], [0.9, 0.6, 0.2, 0.0], [0.15, 0.6, 0.3, 0.0]]


@pytest.mark.row("B11", "F39")
def test_every_flipped_byte_is_refused_or_harmless(tmp_path):
    path = tmp_path / "x.safetensors"
    write_ensemble(hand(np.float32), path)
    whole, expected = path.read_bytes(), read_ensemble(path)
    refused = 0
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1
        path.unlink()  # or it would change under an array that is mapped
        path.write_bytes(data)
        try:
            found = read_ensemble(path)
        except InputError as error:
            assert str(error).startswith(f"{path} is not a whole replicas file: ")
            assert len(str(error).splitlines()) == 1
            refused += 1
        else:  # the name of the digest
            assert found.tokens == expected.tokens
            np.testing.assert_array_equal(found.vectors, expected.vectors)
            np.testing.assert_array_equal(found.counts, expected.counts)
    assert refused >= len(whole) - 20


def test_alignment_undoes_rotations_as_scipy_does():
    """Tokens have equal weight, whatever their lengths, which the mean keeps."""
    base = np.random.default_rng(1).standard_normal((50, SIZE))
    ensemble = rotated([base] * 5)
    assert np.abs(ensemble.vectors - base).max() > 0.1
    np.testing.assert_allclose(ensemble.aligned().vectors, [base] * 5, atol=1e-12)
    np.testing.assert_allclose(ensemble.mean().matrix, base, atol=1e-12)
    mean = rotated([base, 3 * base], np.float32).mean()
    assert mean.matrix.dtype == np.float32
    np.testing.assert_allclose(mean.matrix, 2 * base, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(mean.counts, np.arange(50, 0, -1))
    ensemble = noisy(0.5)
    np.testing.assert_array_equal(ensemble.rotations[0], np.eye(SIZE))
    first = unit_rows(ensemble.vectors[0])
    for k in range(1, len(ensemble)):
        expected, _ = orthogonal_procrustes(unit_rows(ensemble.vectors[k]), first)
        np.testing.assert_allclose(ensemble.rotations[k], expected, atol=1e-12)
    lengths = np.logspace(-2, 2, len(ensemble.tokens))[:, None]
    other = Ensemble(ensemble.tokens, ensemble.vectors * lengths, ensemble.counts)
    np.testing.assert_allclose(other.rotations, ensemble.rotations, atol=1e-12)


def test_neighbours_by_hand():
    """Sorted .15, .9, .9: the 5th percentile of three is the first, the 25th is at
    rank 1, the 30th at 1.2."""
    found = hand().neighbors(["east"], topn=4)[0]
    assert found[0] == pytest.approx(Neighbor("a", 0.65, 0.15, 0.9, 3))
    assert [near.token for near in found] == ["a", "b", "c", "d"]
    assert hand().neighbors(["east"], topn=2)[0] == [
        pytest.approx(Neighbor("a", 0.65, 0.15, 0.9, 2)),
        pytest.approx(Neighbor("b", 0.6, 0.6, 0.6, 3)),
    ]
    for percent, lower in ((50.0, 0.15), (40.0, 0.15 + 0.2 * 0.75)):
        (near,) = hand().neighbors(["east"], topn=1, percent=percent)[0]
        assert near[2:4] == pytest.approx((lower, 0.9))
    found = hand().neighbors(["east"], topn=4, order="lower")[0]
    assert [near.token for near in found] == ["b", "a", "c", "d"]
    single = Ensemble(["a"], np.ones((2, 1, 3)), np.array([1]))
    assert single.neighbors(["a"]) == [[]] and single.stability(["a"]).tolist() == [0]
    assert hand().stability(["east", "c"]).tolist() == [1, 1]  # of few tokens
    assert hand().frequent(3).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        hand().vectors[0, 0, 0] = 2
    assert repr(hand()) == "Ensemble(3 replicas, 5 tokens, 2 numbers)"


@pytest.mark.parametrize("percent", [50.0, 100.0])
@pytest.mark.parametrize("order", ["mean", "lower"])
@pytest.mark.parametrize("topn", [1, 8, 99])
def test_neighbours_are_those_of_all_similarities(topn, order, percent, monkeypatch):
    """Also among some tokens, and in batches of one."""
    ensemble = noisy(0.5, num_replicas=7)
    replicas = [ensemble.replica(k) for k in range(7)]
    bounds = [50 - percent / 2, 50 + percent / 2]
    expected = {}
    for token in ensemble.tokens:
        cosines = [each.similarity("t5", token) for each in replicas]
        lower, upper = np.percentile(cosines, bounds, method="weibull")
        expected[token] = np.mean(cosines), lower, upper
    del expected["t5"]
    rank = order == "lower"
    given = {"order": order, "percent": percent}
    whole = ensemble.neighbors(["t5"], topn, **given)
    for among in (None, ["t1", "unsold", *(f"t{i}" for i in range(0, 96, 5))]):
        (found,) = ensemble.neighbors(["t5"], topn, among=among, **given)
        known = [x for x in expected if among is None or x in among]
        best = sorted(known, key=lambda token: -expected[token][rank])[:topn]
        assert [near.token for near in found] == best
        lists = [
            {key for key, _ in each.most_similar("t5", topn=topn, among=among)}
            for each in replicas
        ]
        for near in found:
            assert near[1:4] == pytest.approx(expected[near.token], abs=1e-12)
            assert near.frequency == sum(near.token in each for each in lists)
    stability, mean = ensemble.stability(["t3", "t50"]), ensemble.mean().matrix
    monkeypatch.setattr(module, "CHUNK_VALUES", 1)
    monkeypatch.setattr(module, "_TOKENS", 1)
    again = noisy(0.5, num_replicas=7)
    assert again.neighbors(["t5"], topn, **given) == [
        [pytest.approx(near, abs=1e-12) for near in each] for each in whole
    ]
    np.testing.assert_array_equal(again.stability(["t3", "t50"]), stability)
    np.testing.assert_allclose(again.mean().matrix, mean, atol=1e-12)


@pytest.mark.parametrize("order", ["mean", "lower"])
def test_equal_rows_tie_by_id(order):
    """Also where products round equal rows differently."""
    base = np.random.default_rng(3).standard_normal((7, SIZE)).repeat(31, axis=0)
    words = [f"t{31 * i + 30}" for i in range(7)]
    found = rotated([base] * 3, np.float32).neighbors(words, topn=2, order=order)
    names = [near.token for each in found for near in each]
    assert names == [f"t{31 * i + j}" for i in range(7) for j in (0, 1)]


def test_stability_is_the_mean_overlap_of_pairs_and_falls_with_noise():
    ensemble = noisy(0.6, num_replicas=3)
    near = [{x for x, _ in ensemble.replica(k).most_similar("t7")} for k in range(3)]
    pairs = [near[0] & near[1], near[0] & near[2], near[1] & near[2]]
    expected = sum(len(pair) for pair in pairs) / 30
    assert 0 < expected < 1
    assert ensemble.stability(["t7"]) == pytest.approx([expected])
    levels = [noisy(noise) for noise in (0.0, 0.1, 0.4, 1.0, 5.0)]
    means = [each.stability(each.tokens).mean() for each in levels]
    assert means[0] == 1.0 and means[-1] < 0.2
    assert means == sorted(means, reverse=True) and len({*means}) == len(means)
    rare = {(99, 0.29): True, (100, 0.29): False, (99, 0.3): False, (10**6, 0.0): False}
    assert [has_little_data(*given) for given in rare] == [*rare.values()]


def test_tokens_are_text_or_integers():
    text = hand()
    numbers = [5, -1, np.uint64(2**63), 7, 2**70]
    ensemble = Ensemble(numbers, text.vectors, text.counts)
    assert ensemble.tokens == numbers and {*map(type, ensemble.tokens)} == {int}
    expected = text.neighbors(["a", "d"], among=["east", "c"])
    number_of = dict(zip(TOKENS, numbers, strict=True))
    assert ensemble.neighbors([np.int8(-1), 2**70], among=[5, 7]) == [
        [each._replace(token=number_of[each.token]) for each in near]
        for near in expected
    ]
    assert ensemble.index(np.int32(7)) == ensemble.index("7") == 3
    np.testing.assert_array_equal(ensemble.stability([5]), text.stability(["east"]))
    assert ensemble.aligned().tokens == numbers
    for vectors in (ensemble.mean(), ensemble.replica(1)):
        assert vectors.keys == [*map(str, numbers)] and vectors.key_type == "integer"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_file_comes_back_as_it_was(tmp_path, dtype):
    """Its vectors are memory-mapped; integers are read as such on request."""
    names = ["New York", "ä", "\u2028", "d", "e"]
    ensemble = Ensemble(names, hand(dtype).vectors, hand().counts)
    write_ensemble(ensemble, tmp_path / "replicas.safetensors")
    for path in (tmp_path / "replicas.safetensors", tmp_path):
        again = read_ensemble(path)
        assert again.tokens == names == read_ensemble(path, "integer").tokens
        np.testing.assert_array_equal(again.vectors, ensemble.vectors, strict=True)
        np.testing.assert_array_equal(again.counts, ensemble.counts, strict=True)
    assert [p.name for p in tmp_path.iterdir()] == ["replicas.safetensors"]
    array = again.vectors
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    assert isinstance(array, np.memmap)
    numbers = Ensemble([5, -1, 2**63, 7, 8], hand().vectors, hand().counts)
    write_ensemble(numbers, tmp_path / "x.safetensors")
    assert read_ensemble(tmp_path / "x.safetensors").tokens == numbers.texts
    assert read_ensemble(tmp_path / "x.safetensors", "integer").tokens == numbers.tokens


def test_tables_have_a_row_for_each_token_and_columns_of_names(tmp_path):
    ensemble, path = hand(np.float32), tmp_path / "x.parquet"
    columns = pl.DataFrame({"name": ["E", None, "B", "C", "D"], "size": range(5)})
    write_ensemble(ensemble, path)
    assert pl.read_parquet(path).columns == ["token", "replica", "vector"]
    write_ensemble(ensemble, path, columns=columns)
    frame = pl.read_parquet(path)
    assert frame.columns == ["token", "name", "size", "replica", "vector"]
    assert len(frame) == 15 and frame.filter(token="c")["name"].to_list() == ["C"] * 3
    (row,) = frame.filter(token="c", replica=2).rows()
    np.testing.assert_array_equal(row[-1], ensemble.vectors[2, 3])
    assert write_stability(ensemble, 2, tmp_path / "x.csv", columns=columns) == [
        *TOKENS[:2]
    ]
    frame = pl.read_csv(tmp_path / "x.csv")
    assert frame.columns == ["token", "name", "size", "count", "stability"]
    assert frame["name"].to_list() == ["E", None]
    assert frame["count"].to_list() == [9, 7]
    expected = ensemble.stability(TOKENS[:2])
    np.testing.assert_allclose(frame["stability"], expected, rtol=1e-12)
    for last, dtype in ((6, pl.Int64), (2**63, pl.String)):
        numbers = [5, -1, last, 7, 8]
        each = Ensemble(numbers, ensemble.vectors, ensemble.counts)
        write_ensemble(each, path)
        tokens = pl.read_parquet(path)["token"]
        assert tokens.dtype == dtype and [*map(int, tokens)] == numbers * 3
        assert write_stability(each, 2, path) == ["5", "-1"]
        found = pl.read_parquet(path)["token"]
        assert found.dtype == pl.Int64 and found.to_list() == [5, -1]
