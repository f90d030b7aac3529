"""Phrases: scores by hand, counts by a loop, gensim's; targets that are refused."""

import gzip
import logging
import math
import os
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.errors import InputError
from embedder.tables import phrases as module
from embedder.tables import shards
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.phrases import PhraseOptions, Phrases, find_phrases
from tests.commands import error_line

TEXT = "new york is big\nold new york new york city\n\na b c\n"
EVERY_PAIR = {"score": "npmi", "threshold": -0.9999999, "min_count": 1}


def phrases_of(sequences: list[list[str]], **options) -> Phrases:
    return Phrases(encode(sequences_corpus(sequences), 1), PhraseOptions(**options))


def lines_of(phrases: Phrases) -> list[list[str]]:
    """The sequences with phrases joined."""
    found = []
    for ids, lengths in phrases.shards():
        texts = iter(phrases.tokens[id] for id in ids)
        found += [[next(texts) for _ in range(length)] for length in lengths]
    return found


def joined_by_loop(sequence: list[str], pairs: set[tuple[str, str]]) -> list[str]:
    """`sequence` with `pairs` joined, as word2phrase.c does it: left to right."""
    found, position = [], 0
    while position < len(sequence):
        pair = tuple(sequence[position : position + 2])
        found.append("_".join(pair if pair in pairs else pair[:1]))
        position += 2 if pair in pairs else 1
    return found


def pass_by_loop(
    sequences: list[list[str]], score: str, threshold: float, min_count: int
) -> tuple[dict[str, tuple[float, int]], list[list[str]]]:
    """Phrase -> (score, count), and the joined sequences, of one pass in Python."""
    tokens = Counter(token for sequence in sequences for token in sequence)
    pairs = Counter(pair for s in sequences for pair in zip(s, s[1:], strict=False))
    total, found = sum(tokens.values()), {}
    for (a, b), count in pairs.items():
        value = (count - min_count) / (tokens[a] * tokens[b]) * total
        if score == "npmi":
            p, p_a, p_b = count / total, tokens[a] / total, tokens[b] / total
            value = math.log(p / (p_a * p_b)) / -math.log(p)
        if value > threshold and count >= min_count:
            found[a, b] = value, count
    joined = [joined_by_loop(sequence, {*found}) for sequence in sequences]
    return {"_".join(pair): facts for pair, facts in found.items()}, joined


def by_phrase(phrases: Phrases) -> dict[str, tuple[float, int]]:
    return {phrase: (score, n) for phrase, score, n in phrases.found.iter_rows()}


def assert_equal(found: dict, expected: dict) -> None:
    assert {k: n for k, (_, n) in found.items()} == {
        k: n for k, (_, n) in expected.items()
    }
    for phrase, (score, _) in expected.items():
        assert found[phrase][0] == pytest.approx(score, rel=1e-12), phrase


def test_score_of_word2vec_by_hand():
    """13 tokens; new 3, york 3, new york 3; (3 - 1) / (3 * 3) * 13 = 26 / 9."""
    sequences = [line.split() for line in TEXT.splitlines() if line]
    phrases = phrases_of(sequences, min_count=1, threshold=1.0)
    assert by_phrase(phrases) == {"new_york": (pytest.approx(26 / 9), 3)}
    joined = ["new_york is big", "old new_york new_york city", "a b c"]
    assert [" ".join(line) for line in lines_of(phrases)] == joined


def test_npmi_by_hand():
    """8 tokens; a b always together, twice: log(1/4 / (1/4)^2) / -log(1/4) = 1."""
    sequences = [["a", "b", "c", "d"], ["d", "a", "b", "e"]]
    phrases = phrases_of(sequences, score="npmi", threshold=0.9, min_count=2)
    assert by_phrase(phrases) == {"a_b": (pytest.approx(1.0), 2)}


def test_overlapping_phrases_are_joined_from_the_left():
    phrases = phrases_of([["a"] * 5, ["b", "a", "a"], ["a"]], **EVERY_PAIR)
    assert lines_of(phrases) == [["a_a", "a_a", "a"], ["b_a", "a"], ["a"]]


def test_phrases_are_found_by_descending_count():
    sequences = [["a", "b", "c"]] * 2 + [["c", "d", "e"]] * 4
    counts = phrases_of(sequences, **EVERY_PAIR).found["count"].to_list()
    assert counts == [4, 4, 2, 2]


def test_phrases_longer_than_a_token_of_a_text_are_not_joined(monkeypatch):
    """Training would leave them out."""
    monkeypatch.setattr(module, "MAX_TOKEN_BYTES", 4)
    phrases = phrases_of([["é", "b", "c", "dd", "e"]], **EVERY_PAIR)
    assert {*by_phrase(phrases)} == {"é_b", "b_c", "c_dd", "dd_e"}
    phrases = phrases_of([["éé", "b"], ["c", "d"]], **EVERY_PAIR)
    assert lines_of(phrases) == [["éé", "b"], ["c_d"]]


def test_pairs_do_not_cross_sequences():
    phrases = phrases_of([["x", "a"], ["b", "x"]] * 10, min_count=1, threshold=0.1)
    assert {*by_phrase(phrases)} == {"x_a", "b_x"}


@pytest.mark.parametrize("shard_tokens", [50, 2_000_000])
@pytest.mark.parametrize(
    ("score", "threshold", "min_count"),
    [("word2vec", 0.5, 3), ("word2vec", 2.0, 1), ("npmi", 0.05, 2), ("npmi", -0.5, 1)],
)
def test_passes_are_those_of_a_loop(
    sequences, monkeypatch, score, threshold, min_count, shard_tokens
):
    monkeypatch.setattr(shards, "SHARD_TOKENS", shard_tokens)
    expected, joined = {}, [sequence for sequence in sequences if sequence]
    for _ in range(3):
        found, joined = pass_by_loop(joined, score, threshold, min_count)
        expected = found | expected
    phrases = phrases_of(
        sequences, score=score, threshold=threshold, min_count=min_count, passes=3
    )
    assert len(expected) > 10 and any(k.count("_") > 1 for k in expected)
    assert_equal(by_phrase(phrases), expected)
    assert lines_of(phrases) == joined


def test_a_phrase_that_is_a_token_of_the_text_counts_as_that_token():
    """Pass 1 joins `a b` alone. In pass 2 `a_b x` scores (4 - 1) / (4 * 4) * 28, with
    the two `a_b` of the text; without them it would be (2 - 1) / (2 * 4) * 28 < 5."""
    sequences = [["a", "b", "x"], ["a_b", "x"]] * 2 + [["q"]] * 20
    phrases = phrases_of(sequences, min_count=1, threshold=5.0, passes=2)
    assert by_phrase(phrases) == {"a_b": (7.5, 2), "a_b_x": (5.25, 4)}
    assert lines_of(phrases)[:4] == [["a_b_x"]] * 4


def test_too_many_pairs_drop_the_rarest(sequences, monkeypatch, caplog):
    monkeypatch.setattr(shards, "SHARD_TOKENS", 500)
    options = {"score": "npmi", "threshold": -0.9, "min_count": 1}
    whole = by_phrase(phrases_of(sequences, **options))
    with caplog.at_level(logging.WARNING):
        kept = by_phrase(phrases_of(sequences, **options, max_pairs=100))
    assert "`max_pairs` = 100" in caplog.text
    assert len(kept) <= 100 < len(whole)
    assert all(count <= whole[phrase][1] for phrase, (_, count) in kept.items())
    most = sorted(whole, key=lambda phrase: -whole[phrase][1])[:10]
    assert {*most} <= {*kept}


def test_pairs_are_merged_as_they_are_counted(sequences, monkeypatch):
    """Shards of any number give the counts of one."""
    expected = by_phrase(phrases_of(sequences, **EVERY_PAIR))
    monkeypatch.setattr(shards, "SHARD_TOKENS", 45)
    assert_equal(by_phrase(phrases_of(sequences, **EVERY_PAIR)), expected)


@pytest.mark.parametrize("score", ["default", "npmi"])
def test_phrases_are_those_of_gensim(score):
    """gensim multiplies by the number of its counted tokens and pairs, where
    word2phrase.c has the number of words: its threshold differs by that ratio."""
    gensim = pytest.importorskip("gensim.models.phrases")
    text = (Path(module.__file__).parents[1] / "ALGORITHM.md").read_text("utf-8")
    lines = [line.lower().replace("_", "-").split() for line in text.splitlines()]
    lines = [line for line in lines if line]
    threshold = 2.0 if score == "default" else 0.3
    theirs = gensim.Phrases(lines, min_count=3, threshold=threshold, scoring=score)
    ratio = theirs.corpus_word_count / len(theirs.vocab) if score == "default" else 1.0
    ours = phrases_of(
        lines,
        score="word2vec" if score == "default" else "npmi",
        threshold=threshold * ratio,
        min_count=3,
    )
    expected = {k: x * ratio for k, x in theirs.export_phrases().items()}
    assert len(expected) > 50
    assert {k: x for k, (x, _) in by_phrase(ours).items()} == pytest.approx(expected)
    assert lines_of(ours) == [theirs[line] for line in lines]


CONNECTORS = "a an the for of with without at from to in on by and or".split()
"""gensim's ENGLISH_CONNECTOR_WORDS."""


def test_phrases_with_connectors_by_hand():
    """b of a is three times, of 16 tokens: (3 - 1) / (4 * 3) * 16; b of the a is once.
    A connector begins and ends no phrase, and joins no words of two lines."""
    lines = ["b of a", "x b of a of", "of the b", "a", "b of the a", "b of a"]
    text = [line.split() for line in lines]
    found = phrases_of(text, min_count=1, threshold=1.0, connectors=("of", "the", "no"))
    count = sum(map(len, text))
    assert by_phrase(found) == {"b_of_a": (pytest.approx(2 / (5 * 5) * count), 3)}
    joined = ["b_of_a", "x b_of_a of", "of the b", "a", "b of the a", "b_of_a"]
    assert [" ".join(line) for line in found] == joined


@pytest.mark.parametrize("shard_tokens", [60, 2_000_000])
@pytest.mark.parametrize("score", ["default", "npmi"])
def test_phrases_with_connectors_are_those_of_gensim(monkeypatch, score, shard_tokens):
    gensim = pytest.importorskip("gensim.models.phrases")
    assert {*CONNECTORS} == gensim.ENGLISH_CONNECTOR_WORDS
    monkeypatch.setattr(shards, "SHARD_TOKENS", shard_tokens)
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(6)] + CONNECTORS[3:6]
    lengths = rng.integers(1, 30, size=1000)
    lines = [[words[i] for i in rng.integers(len(words), size=n)] for n in lengths]
    threshold = 0.0005 if score == "default" else -0.5
    settings = {"min_count": 3, "threshold": threshold, "scoring": score}
    theirs = gensim.Phrases(lines, **settings, connector_words=frozenset(CONNECTORS))
    ratio = theirs.corpus_word_count / len(theirs.vocab) if score == "default" else 1.0
    ours = find_phrases(
        lines,
        score="word2vec" if score == "default" else "npmi",
        threshold=threshold * ratio,
        min_count=3,
        connectors=CONNECTORS,
    )
    expected = {k: x * ratio for k, x in theirs.export_phrases().items()}
    between = {"_".join(phrase.split("_")[1:-1]) for phrase in expected}
    assert len(expected) > 50 and len(between) > 5
    assert {k: x for k, (x, _) in by_phrase(ours).items()} == pytest.approx(expected)
    assert [*ours] == [theirs[line] for line in lines]


def test_more_connectors_than_a_number_holds_are_no_phrase():
    """62 of 63 bits: with one connector up to 63 of them between two words."""
    line = ["x", *["of"] * 63, "y"]
    found = find_phrases([line] * 3, min_count=1, threshold=0.1, connectors=["of"])
    assert [*found] == [["_".join(line)]] * 3
    line.insert(1, "of")
    found = find_phrases([line] * 3, min_count=1, threshold=0.1, connectors=["of"])
    assert [*found] == [line] * 3


@pytest.mark.row("B42")
def test_connectors_in_one_text_are_refused():
    with pytest.raises(TypeError, match="`connectors` must be several tokens, got 'of"):
        find_phrases([["a"]], connectors="of the")


def test_the_function_finds_what_the_verb_does(folder):
    Path("text.txt").write_text("bank of spain\n" * 3 + "new bank\nold spain\n")
    flags = ["--connectors", "of", "the", "--list", "found.tsv"]
    assert main(["phrases", "text.txt", "--to", "out.txt", *FLAGS, *flags]) == 0
    found = find_phrases("text.txt", min_count=1, threshold=1, connectors=("of", "the"))
    assert found.found["phrase"].to_list() == ["bank_of_spain"]
    assert pl.read_csv("found.tsv", separator="\t")["phrase"].to_list() == [
        "bank_of_spain"
    ]
    text = "".join(" ".join(line) + "\n" for line in found)
    assert Path("out.txt").read_text() == text
    assert text.startswith("bank_of_spain\n") and "new bank" in text


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with text.txt, old.txt and what looks like a run, the current one."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)
    Path("old.txt").write_text("old")
    Path("run").mkdir()
    for name in ("config.toml", "corpus.json", "SHA256SUMS"):
        Path("run", name).touch()
    return tmp_path


FLAGS = ["--min-count", "1", "--threshold", "1"]


@pytest.mark.parametrize("name", ["out.txt", "out.txt.gz"])
def test_the_verb_writes_text_that_is_read_again(folder, capsys, name):
    listed = ["--list", "found.tsv"]
    assert main(["phrases", "text.txt", "--to", name, *FLAGS, *listed]) == 0
    data = Path(name).read_bytes()
    text = gzip.decompress(data) if name.endswith(".gz") else data
    assert text == b"new_york is big\nold new_york new_york city\na b c\n"
    assert capsys.readouterr().out.splitlines() == [
        "        3         2.889  new_york",
        f"1 phrases; the joined text is in {name}",
    ]
    assert main(["phrases", name, "--to", "more.txt", *FLAGS]) == 0


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv"])
def test_list_has_phrase_score_and_count(folder, ending):
    path = f"found.{ending}"
    assert main(["phrases", "text.txt", "--to", "o.txt", *FLAGS, "--list", path]) == 0
    if ending == "parquet":
        found = pl.read_parquet(path)
    else:
        found = pl.read_csv(path, separator="\t" if ending == "tsv" else ",")
    assert found.columns == ["phrase", "score", "count"]
    np.testing.assert_allclose(found["score"], [26 / 9])
    assert found["phrase"].to_list() == ["new_york"] and found["count"].to_list() == [3]


def test_nothing_is_found(folder, capsys):
    assert main(["phrases", "text.txt", "--to", "o.txt", "--list", "l.parquet"]) == 0
    assert Path("o.txt").read_text() == TEXT.replace("\n\n", "\n")
    assert pl.read_parquet("l.parquet").schema == {
        "phrase": pl.String,
        "score": pl.Float64,
        "count": pl.Int64,
    }
    assert capsys.readouterr().out.startswith("0 phrases; ")


def test_overwrite_replaces(folder):
    command = ["phrases", "text.txt", "--to", "old.txt", *FLAGS, "--overwrite"]
    assert main(command) == 0
    assert Path("old.txt").read_text().startswith("new_york is big\n")


@pytest.mark.row("B42")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "old.txt"], "`to` old.txt exists: give --overwrite"),
        (["--to", "o.csv"], "`to` must end in .txt or .gz, got 'o.csv'."),
        (["--to", "none/o.txt"], "`to`: folder none does not exist."),
        (["--to", "text.txt", "--overwrite"], "`to` text.txt is a file of the corpus"),
        (["--to", "o.txt", "--list", "o.json"], "`list` must end in .parquet or .csv"),
        (["--to", "o.txt", "--min-count", "0"], "`min_count` must be an integer >= 1"),
        (["--to", "o.txt", "--passes", "0"], "`passes` must be an integer >= 1"),
        (["--to", "o.txt", "--max-pairs", "0"], "`max_pairs` must be an integer >= 1"),
        (["--to", "o.txt", "--topn", "0"], "`topn` must be an integer >= 1"),
        (["--to", "o.txt", "--threshold", "0"], "`threshold` must be a number > 0 for"),
        (["--to", "o.txt", "--threshold", "nan"], "`threshold` must be a number > 0"),
        (
            ["--to", "o.txt", "--score", "npmi", "--threshold", "1"],
            "`threshold` must be between -1 and 1 for `score` = 'npmi', got 1.0.",
        ),
        (["--to", "o.txt", "--delimiter", ""], "`delimiter` must be text without"),
        (["--to", "o.txt", "--delimiter", "a b"], "`delimiter` must be text without"),
        (["--to", "o.txt", "--connectors", "of the"], "`connectors` must be tokens"),
        (["--to", "o.txt", "--score", "pmi"], "pmi"),
        (["--to", "run/vectors.txt"], "`to` must not be a file of a run, got"),
        (["--to", "o.txt", "--list", "run/vocab.parquet"], "`list` must not be a file"),
        ([], "Missing from embedder phrases: --to PATH"),
    ],
)
def test_wrong_options_are_refused_in_one_line(folder, capsys, arguments, message):
    assert main(["phrases", "text.txt", *arguments]) == 2
    assert message in error_line(capsys)
    assert sorted(os.listdir()) == ["old.txt", "run", "text.txt"]
    assert Path("old.txt").read_text() == "old"


@pytest.mark.row("B42", "B1", "B4", "B20")
@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("none.txt", None, "Corpus none.txt does not exist."),
        ("empty.txt", b"", "The corpus has no tokens."),
        ("bad.txt", b"a \xff b\n", "bad.txt is not UTF-8 text: byte 0xff"),
        ("", None, "`corpus` must be a file, a glob or a folder, got ''."),
        ("-", None, "Corpus - must be a file on disk, not a stream"),
        ("t.csv", b"session,item\n1,a\n1,b\n", "`corpus` must be text, got the table"),
    ],
)
def test_wrong_corpora_are_refused_in_one_line(folder, capsys, name, data, message):
    if data is not None:
        Path(name).write_bytes(data)
    assert main(["phrases", name, "--to", "o.txt"]) == 2
    assert message in error_line(capsys)
    assert not Path("o.txt").exists()


@pytest.mark.row("B42")
def test_a_new_file_in_the_folder_of_the_corpus_is_refused(folder, capsys):
    """The next reader of the folder would read both texts."""
    Path("books").mkdir()
    Path("books/a.txt").write_text(TEXT)
    assert main(["phrases", "books", "--to", "books/joined.txt"]) == 2
    assert "`to` books/joined.txt is in the folder of the corpus" in error_line(capsys)
    assert main(["phrases", "books", "--to", "joined.txt"]) == 0


def test_a_delimiter_that_utf8_cannot_hold_is_refused():
    with pytest.raises(InputError, match="`delimiter` must be"):
        PhraseOptions(delimiter="\udcff")
