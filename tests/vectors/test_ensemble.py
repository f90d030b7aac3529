"""Ensembles: planted agreement is found, alignment, intervals by hand, files."""

import json
import struct

import numpy as np
import polars as pl
import pytest
from scipy.linalg import orthogonal_procrustes

from embedder.errors import InputError, InputKeyError, InputTypeError
from embedder.vectors import ensemble as module
from embedder.vectors.ensemble import Ensemble, Neighbor, has_little_data
from embedder.vectors.ensemble_files import (
    read_ensemble,
    write_ensemble,
    write_stability,
)
from embedder.vectors.export import write_vectors
from embedder.vectors.vectors import Vectors, unit_rows

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


# --- alignment


def test_alignment_undoes_a_rotation():
    base = np.random.default_rng(1).standard_normal((50, SIZE))
    ensemble = rotated([base] * 5)
    assert np.abs(ensemble.vectors - base).max() > 0.1
    np.testing.assert_allclose(
        ensemble.aligned().vectors, [base] * 5, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(ensemble.mean().matrix, base, rtol=0, atol=1e-12)


def test_rotations_are_those_of_scipy():
    ensemble = noisy(0.5)
    np.testing.assert_array_equal(ensemble.rotations[0], np.eye(SIZE))
    first = unit_rows(ensemble.vectors[0])
    for k in range(1, len(ensemble)):
        expected, _ = orthogonal_procrustes(unit_rows(ensemble.vectors[k]), first)
        np.testing.assert_allclose(ensemble.rotations[k], expected, rtol=0, atol=1e-12)


def test_alignment_keeps_similarities_and_lengths():
    ensemble = noisy(0.5)
    aligned = ensemble.aligned()
    for before, after in zip(ensemble.vectors, aligned.vectors, strict=True):
        np.testing.assert_allclose(after @ after.T, before @ before.T, atol=1e-12)
    assert aligned.tokens == ensemble.tokens
    np.testing.assert_array_equal(aligned.counts, ensemble.counts)


def test_tokens_have_equal_weight_whatever_their_length():
    ensemble = noisy(0.5)
    lengths = np.logspace(-2, 2, len(ensemble.tokens))[:, None]
    other = Ensemble(ensemble.tokens, ensemble.vectors * lengths, ensemble.counts)
    np.testing.assert_allclose(other.rotations, ensemble.rotations, atol=1e-12)


def test_mean_is_of_vectors_at_their_own_length():
    base = np.random.default_rng(1).standard_normal((50, SIZE))
    mean = rotated([base, 3 * base], np.float32).mean()
    assert mean.matrix.dtype == np.float32
    np.testing.assert_allclose(mean.matrix, 2 * base, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(mean.counts, np.arange(50, 0, -1))


# --- neighbours


def test_neighbours_by_hand():
    """Sorted .15, .9, .9: the 5th percentile of three is the first."""
    first, second = hand().neighbors(["east"], topn=2)[0]
    assert first == pytest.approx(Neighbor("a", 0.65, 0.15, 0.9, 2))
    assert second == pytest.approx(Neighbor("b", 0.6, 0.6, 0.6, 3))


def test_percentiles_are_at_ranks_of_one_more_replica():
    """The 25th of three is at rank 1, the 30th at 1.2."""
    (near, *_) = hand().neighbors(["east"], topn=1, percent=50.0)[0]
    assert near[2:4] == pytest.approx((0.15, 0.9))
    (near, *_) = hand().neighbors(["east"], topn=1, percent=40.0)[0]
    assert near[2:4] == pytest.approx((0.15 + 0.2 * 0.75, 0.9))


@pytest.mark.parametrize("num_replicas", [19, 20, 60])
def test_one_more_replica_is_in_nine_of_ten_intervals(num_replicas):
    """For any number of replicas; at the ranks of NumPy's default in .81 of 19."""
    rng, num = np.random.default_rng(0), 20_000
    *scores, other = rng.standard_normal((num_replicas + 1, num))
    lower, upper = module.interval(np.array(scores), 90.0)
    inside = np.mean((lower <= other) & (other <= upper))
    assert abs(inside - 0.9) < 4 * (0.09 / num) ** 0.5


def test_stable_order_is_by_the_lower_end():
    found = hand().neighbors(["east"], topn=4, order="lower")[0]
    assert [near.token for near in found] == ["b", "a", "c", "d"]
    assert [near.lower for near in found] == sorted(n.lower for n in found)[::-1]
    found = hand().neighbors(["east"], topn=4)[0]
    assert [near.token for near in found] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("percent", [50.0, 90.0, 100.0])
@pytest.mark.parametrize("order", ["mean", "lower"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_neighbours_are_those_of_all_similarities(dtype, order, percent):
    ensemble = noisy(0.5, num_replicas=7)
    ensemble = Ensemble(
        ensemble.tokens, ensemble.vectors.astype(dtype), ensemble.counts
    )
    replicas = [ensemble.replica(k) for k in range(7)]
    (found,) = ensemble.neighbors(["t5"], 8, order=order, percent=percent)
    bounds = [50 - percent / 2, 50 + percent / 2]
    expected = {}
    for token in ensemble.tokens:
        cosines = [each.similarity("t5", token) for each in replicas]
        lower, upper = np.percentile(cosines, bounds, method="weibull")
        expected[token] = np.mean(cosines), lower, upper
    del expected["t5"]
    rank = order == "lower"
    best = sorted(expected, key=lambda token: -expected[token][rank])[:8]
    assert [near.token for near in found] == best
    for near in found:
        assert near[1:4] == pytest.approx(expected[near.token], abs=1e-12)


def test_frequency_counts_replicas_that_have_the_token_among_their_nearest():
    ensemble = noisy(0.7, num_replicas=5)
    lists = [
        {token for token, _ in ensemble.replica(k).most_similar("t0", topn=6)}
        for k in range(5)
    ]
    found = ensemble.neighbors(["t0"], topn=6)[0]
    frequencies = [near.frequency for near in found]
    assert frequencies == [sum(n.token in each for each in lists) for n in found]
    assert 0 < min(frequencies) < max(frequencies)


@pytest.mark.parametrize("order", ["mean", "lower"])
def test_equal_rows_tie_by_id(order, monkeypatch):
    """Also where products round equal rows differently, by more than here."""
    rng, before = np.random.default_rng(3), Ensemble._scores

    def noisy_scores(*arguments):
        scores, nearest = before(*arguments)
        return scores * rng.uniform(1 - 1e-6, 1 + 1e-6, scores.shape), nearest

    monkeypatch.setattr(Ensemble, "_scores", noisy_scores)
    base = np.repeat(rng.standard_normal((7, SIZE)), 31, axis=0)
    words = [f"t{31 * i + 30}" for i in range(7)]
    found = rotated([base] * 3, np.float32).neighbors(words, topn=2, order=order)
    names = [near.token for each in found for near in each]
    assert names == [f"t{31 * i + j}" for i in range(7) for j in (0, 1)]


def test_batches_change_nothing(monkeypatch):
    ensemble = noisy(0.5)
    words = ["t3", "t50", "t90"]
    before = ensemble.neighbors(words), ensemble.stability(words)
    mean = ensemble.mean().matrix
    monkeypatch.setattr(module, "CHUNK_VALUES", 1)
    monkeypatch.setattr(module, "_TOKENS", 1)
    again = noisy(0.5)
    for one, other in zip(again.neighbors(words), before[0], strict=True):
        assert [near.token for near in one] == [near.token for near in other]
        for each, same in zip(one, other, strict=True):
            assert each[1:] == pytest.approx(same[1:], abs=1e-12)
    np.testing.assert_array_equal(again.stability(words), before[1])
    np.testing.assert_allclose(again.mean().matrix, mean, atol=1e-12)


def test_a_single_token_has_no_neighbours():
    ensemble = Ensemble(["a"], np.ones((2, 1, 3)), np.array([1]))
    assert ensemble.neighbors(["a"]) == [[]]
    np.testing.assert_array_equal(ensemble.stability(["a"]), [0.0])


@pytest.mark.parametrize("order", ["mean", "lower"])
@pytest.mark.parametrize("topn", [1, 4, 99])
def test_neighbors_among_tokens_are_the_best_of_these(order, topn):
    ensemble = noisy(0.6)
    among = ["t1", "unsold", *(f"t{i}" for i in range(0, 96, 5))]
    replicas = [ensemble.replica(k) for k in range(len(ensemble))]
    tokens = ["t0", "t1", "t2"]
    whole = ensemble.neighbors(tokens, 95, order=order)
    found = ensemble.neighbors(tokens, topn, order=order, among=among)
    for token, those, all_others in zip(tokens, found, whole, strict=True):
        nearest = [
            {key for key, _ in each.most_similar(token, topn=topn, among=among)}
            for each in replicas
        ]
        expected = [
            near._replace(frequency=sum(near.token in each for each in nearest))
            for near in all_others
            if near.token in among
        ]
        assert those == expected[:topn]


@pytest.mark.row("B33")
def test_unknown_tokens_alone_are_refused():
    with pytest.raises(InputError, match="`among` must have a key of the vocabulary"):
        hand().neighbors(["a"], among=["x"])
    with pytest.raises(InputTypeError, match="`among` must be keys, got 'bc'"):
        hand().neighbors(["a"], among="bc")


def test_tokens_are_text_or_integers():
    text = hand()
    numbers = [5, -1, np.uint64(2**63), 7, 2**70]
    ensemble = Ensemble(numbers, text.vectors, text.counts)
    assert ensemble.tokens == numbers
    assert {type(token) for token in ensemble.tokens} == {int}
    expected = text.neighbors(["a", "d"], among=["east", "c"])
    found = ensemble.neighbors([np.int8(-1), 2**70], among=[5, 7])
    number_of = dict(zip(TOKENS, numbers, strict=True))
    assert found == [
        [each._replace(token=number_of[each.token]) for each in near]
        for near in expected
    ]
    assert ensemble.index(np.int32(7)) == ensemble.index("7") == 3
    np.testing.assert_array_equal(ensemble.stability([5]), text.stability(["east"]))
    assert ensemble.aligned().tokens == numbers
    for vectors in (ensemble.mean(), ensemble.replica(1)):
        assert vectors.keys == [*map(str, numbers)]
        assert vectors.key_type == "integer"
    with pytest.raises(InputKeyError, match="Token 8 is not in the vocabulary"):
        text.index(8)
    with pytest.raises(InputTypeError, match="must be a list of strings"):
        Ensemble(["a", 1, "b", "c", "d"], text.vectors, text.counts)


# --- stability


def test_planted_tokens_are_stable_and_others_are_at_chance():
    rng = np.random.default_rng(5)
    base, copies = clusters(rng), []
    for _ in range(5):
        random = rng.standard_normal((200, SIZE))
        copies.append(np.concatenate([base, random]))
        copies[-1][:96] += 1e-3 * rng.standard_normal(base.shape)
    ensemble = rotated(copies, np.float32)
    stability = ensemble.stability(ensemble.tokens)
    assert stability.shape == (296,)
    assert stability[:96].mean() > 0.95
    assert abs(stability[96:].mean() - 10 / 295) < 0.02


def test_stability_falls_with_noise():
    levels = [noisy(noise) for noise in (0.0, 0.1, 0.4, 1.0, 5.0)]
    means = [each.stability(each.tokens).mean() for each in levels]
    assert means[0] == 1.0
    assert means == sorted(means, reverse=True) and len({*means}) == len(means)
    assert means[-1] < 0.2


def test_stability_is_the_mean_overlap_of_pairs():
    ensemble = noisy(0.6, num_replicas=3)
    near = [
        {token for token, _ in ensemble.replica(k).most_similar("t7")} for k in range(3)
    ]
    pairs = [near[0] & near[1], near[0] & near[2], near[1] & near[2]]
    expected = sum(len(pair) for pair in pairs) / 30
    assert 0 < expected < 1
    assert ensemble.stability(["t7"]) == pytest.approx([expected])


def test_of_few_tokens_all_are_neighbours():
    np.testing.assert_array_equal(hand().stability(["east", "c"]), [1.0, 1.0])


@pytest.mark.parametrize(
    ("count", "stability", "expected"),
    [(99, 0.29, True), (100, 0.29, False), (99, 0.3, False), (10**6, 0.0, False)],
)
def test_a_rare_and_unstable_token_has_little_data(count, stability, expected):
    assert has_little_data(count, stability) is expected


def test_frequent_tokens_tie_by_id():
    assert hand().frequent(3).tolist() == [0, 1, 2]
    assert hand().frequent(99).tolist() == [0, 1, 2, 3, 4]


# --- wrong arguments


@pytest.mark.parametrize(
    ("vectors", "error", "message"),
    [
        (np.ones((2, 5)), InputError, r"`vectors` must have shape .*, got \(2, 5\)"),
        (np.ones((1, 5, 2)), InputError, r"K >= 2 replicas, got \(1, 5, 2\)"),
        (np.ones((2, 4, 2)), InputError, r"V = 5 .*, got \(4, 2\)"),
        (np.full((2, 5, 2), np.nan), InputError, "must be finite, got nan at row 0"),
        (np.ones((2, 5, 2), int), InputTypeError, "float32 or float64, got int64"),
        (np.ones((2, 5, 2), np.float16), InputTypeError, "float64, got float16"),
    ],
)
def test_wrong_vectors_are_refused(vectors, error, message):
    with pytest.raises(error, match=message):
        Ensemble([*TOKENS], vectors, np.ones(5, int))


def test_wrong_queries_are_refused():
    for percent in (0, 101, np.nan):
        with pytest.raises(InputError, match=r"`percent` must be in \(0, 100\], got "):
            hand().neighbors(["a"], percent=percent)
    with pytest.raises(InputError, match="`topn` must be an integer >= 1, got 0"):
        hand().neighbors(["a"], topn=0)
    for query in (hand().neighbors, hand().stability):
        with pytest.raises(InputKeyError, match="Token 'x' is not in the vocabulary"):
            query(["x"])


def test_vectors_cannot_be_changed_by_mistake():
    with pytest.raises(ValueError, match="read-only"):
        hand().vectors[0, 0, 0] = 2
    assert repr(hand()) == "Ensemble(3 replicas, 5 tokens, 2 numbers)"


# --- files


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_file_comes_back_as_it_was(tmp_path, dtype):
    ensemble = Ensemble(
        ["New York", "ä", "\u2028", "d", "e"], hand(dtype).vectors, hand().counts
    )
    write_ensemble(ensemble, tmp_path / "replicas.safetensors")
    for path in (tmp_path / "replicas.safetensors", tmp_path):
        again = read_ensemble(path)
        assert again.tokens == ensemble.tokens
        np.testing.assert_array_equal(again.vectors, ensemble.vectors, strict=True)
        np.testing.assert_array_equal(again.counts, ensemble.counts, strict=True)
        assert again.stability(["d"]) == ensemble.stability(["d"])
    assert [p.name for p in tmp_path.iterdir()] == ["replicas.safetensors"]


def test_vectors_of_a_file_are_memory_mapped(tmp_path):
    write_ensemble(hand(), tmp_path / "x.safetensors")
    array = read_ensemble(tmp_path / "x.safetensors").vectors
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    assert isinstance(array, np.memmap)


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


@pytest.mark.row("B1", "B12", "B17")
def test_other_files_are_refused_in_a_line(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(FileNotFoundError, match="x.safetensors does not exist: `emb"):
        read_ensemble(path)
    with pytest.raises(FileNotFoundError, match="replicas.safetensors does not exist"):
        read_ensemble(tmp_path)
    write_vectors(Vectors(["a", "b"], np.ones((2, 3)), np.array([1, 2])), path)
    with pytest.raises(InputError, match=r"x.safetensors is not .*K, V, D.*\(2, 3\)"):
        read_ensemble(path)
    write_vectors(Vectors(["a", "b"], np.ones((2, 3))), path)
    with pytest.raises(InputError, match="not a whole replicas file: it has no `count"):
        read_ensemble(path)


@pytest.mark.row("B11")
@pytest.mark.parametrize("kind", ["BF16", "I32"])
def test_another_dtype_is_refused(tmp_path, kind):
    path = tmp_path / "x.safetensors"
    write_ensemble(hand(np.float32), path)
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header["vectors"]["dtype"] = kind
    if kind == "BF16":
        header["vectors"]["shape"][0] *= 2
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
    with pytest.raises(InputError, match=f"`vectors` must be F32 or F64, got {kind}"):
        read_ensemble(path)


def test_an_unfinished_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    write_ensemble(hand(), path)
    before = path.read_bytes()

    def full(arrays, path, metadata):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(OSError, match="No space"):
        write_ensemble(noisy(0.0), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


def test_parquet_has_a_row_for_each_token_of_each_replica(tmp_path):
    ensemble = hand(np.float32)
    write_ensemble(ensemble, tmp_path / "x.parquet")
    frame = pl.read_parquet(tmp_path / "x.parquet")
    assert frame.columns == ["token", "replica", "vector"] and len(frame) == 15
    (row,) = frame.filter(token="c", replica=2).rows()
    np.testing.assert_array_equal(row[2], ensemble.vectors[2, 3])


def test_integers_are_integers_in_parquet_and_on_request(tmp_path):
    given = hand()
    ensemble = Ensemble([5, -1, 2**63, 7, 8], given.vectors, given.counts)
    write_ensemble(ensemble, tmp_path / "x.safetensors")
    assert read_ensemble(tmp_path / "x.safetensors").tokens == ensemble.texts
    again = read_ensemble(tmp_path / "x.safetensors", "integer")
    assert again.tokens == ensemble.tokens
    write_ensemble(given, tmp_path / "x.safetensors")
    assert read_ensemble(tmp_path / "x.safetensors", "integer").tokens == [*TOKENS]
    small = Ensemble([5, -1, 6, 7, 8], given.vectors, given.counts)
    for each, dtype in ((small, pl.Int64), (ensemble, pl.String)):  # -1 and 2**63
        write_ensemble(each, tmp_path / "x.parquet")
        tokens = pl.read_parquet(tmp_path / "x.parquet")["token"]
        assert tokens.dtype == dtype
        assert [*map(int, tokens)] == each.tokens * 3
    assert write_stability(small, 2, tmp_path / "s.parquet") == ["5", "-1"]
    found = pl.read_parquet(tmp_path / "s.parquet")["token"]
    assert found.dtype == pl.Int64 and found.to_list() == [5, -1]


def test_more_columns_are_written_beside_tokens(tmp_path):
    columns = pl.DataFrame({"name": ["E", None, "B", "C", "D"], "size": range(5)})
    ensemble = hand()
    write_ensemble(ensemble, tmp_path / "x.parquet", columns=columns)
    frame = pl.read_parquet(tmp_path / "x.parquet")
    assert frame.columns == ["token", "name", "size", "replica", "vector"]
    assert frame.filter(token="c")["name"].to_list() == ["C"] * 3
    write_stability(ensemble, 2, tmp_path / "x.csv", columns=columns)
    frame = pl.read_csv(tmp_path / "x.csv")
    assert frame["name"].to_list() == ["E", None]
    assert frame["size"].to_list() == [0, 1]
    with pytest.raises(InputError, match=r"only to \.parquet, got '.*x.safetensors'"):
        write_ensemble(ensemble, tmp_path / "x.safetensors", columns=columns)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_stability_of_the_most_frequent_tokens(tmp_path, ending):
    ensemble = noisy(0.6)
    counts = np.arange(len(ensemble.tokens)) + 1
    ensemble = Ensemble(ensemble.tokens, ensemble.vectors, counts)
    path = tmp_path / f"x{ending}"
    assert write_stability(ensemble, 3, path) == ["t95", "t94", "t93"]
    frame = pl.read_csv(path) if ending == ".csv" else pl.read_parquet(path)
    assert frame.columns == ["token", "count", "stability"]
    assert frame["token"].to_list() == ["t95", "t94", "t93"]
    assert frame["count"].to_list() == [96, 95, 94]
    expected = ensemble.stability(["t95", "t94", "t93"])
    np.testing.assert_allclose(frame["stability"], expected, rtol=1e-12)


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(InputError, match="must end in .safetensors or .parquet, got"):
        write_ensemble(hand(), tmp_path / "x.npz")
    with pytest.raises(InputError, match="must end in .parquet or .csv, got"):
        write_stability(hand(), 3, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())
