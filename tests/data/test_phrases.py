"""Phrases: scores by hand, counts by a loop, gensim's; targets that are refused."""

import gzip
import itertools
import logging
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import polars as pl
import pytest

from embedder.cli.main import main
from embedder.data import phrases as module
from embedder.data import shards
from embedder.data.phrases import Phrases, find_phrases
from embedder.gensim import ENGLISH_CONNECTOR_WORDS

TEXT = "new york is big\nold new york new york city\n\na b c\n"
EVERY_PAIR = {"score": "npmi", "threshold": -0.9999999, "min_count": 1}


def by_phrase(phrases: Phrases) -> dict:
    """The phrases with their scores, approximately, and their counts."""
    rows = phrases.found.iter_rows()
    return {phrase: (pytest.approx(score, rel=1e-12), n) for phrase, score, n in rows}


CONNECTED = "b of a|x b of a of|of the b|a|b of the a|b of a"
BY_HAND = {
    # 13 tokens; new 3, york 3, new york 3; (3 - 1) / (3 * 3) * 13 = 26 / 9.
    ("new york is big|old new york new york city|a b c", "word2vec", 1.0, 1): (
        {"new_york": (26 / 9, 3)},
        "new_york is big|old new_york new_york city|a b c",
    ),
    # 8 tokens; a b always together, twice: log(1/4 / (1/4)^2) / -log(1/4) = 1.
    ("a b c d|d a b e", "npmi", 0.9, 2): ({"a_b": (1.0, 2)}, "a_b c d|d a_b e"),
    # From the left.
    ("a a a a a|b a a|a", "npmi", -0.9999999, 1): (
        {"a_a": (ANY, 5), "b_a": (ANY, 1)},
        "a_a a_a a|b_a a|a",
    ),
    # By descending count.
    ("a b c|c d e|c d e", "npmi", -0.9999999, 1): (
        {"c_d": (ANY, 2), "d_e": (ANY, 2), "a_b": (ANY, 1), "b_c": (ANY, 1)},
        "a_b c|c_d e|c_d e",
    ),
    # Not across sequences.
    ("x a|b x|x a|b x", "word2vec", 0.1, 1): (
        {"x_a": (ANY, 2), "b_x": (ANY, 2)},
        "x_a|b_x|x_a|b_x",
    ),
    # b of a is three times, of 19 tokens: (3 - 1) / (5 * 5) * 19. A connector begins
    # and ends no phrase, and joins no words of two lines.
    (CONNECTED, "word2vec", 1.0, 1, ("of", "the", "no")): (
        {"b_of_a": (2 / (5 * 5) * 19, 3)},
        "b_of_a|x b_of_a of|of the b|a|b of the a|b_of_a",
    ),
}


@pytest.mark.parametrize(("given", "expected"), BY_HAND.items(), ids=itertools.count())
def test_phrases_by_hand(given, expected):
    text, score, threshold, min_count, *connectors = given
    options = {"score": score, "threshold": threshold, "min_count": min_count}
    options |= {"connectors": connectors[0]} if connectors else {}
    phrases = find_phrases([line.split() for line in text.split("|")], **options)
    assert by_phrase(phrases) == expected[0]
    counts = phrases.found["count"].to_list()
    assert counts == sorted(counts, reverse=True)
    assert "|".join(" ".join(line) for line in phrases) == expected[1]


def test_phrases_longer_than_a_token_of_a_text_are_not_joined(monkeypatch):
    """Training would leave them out."""
    monkeypatch.setattr(module, "MAX_TOKEN_BYTES", 4)
    phrases = find_phrases([["é", "b", "c", "dd", "e"]], **EVERY_PAIR)
    assert {*by_phrase(phrases)} == {"é_b", "b_c", "c_dd", "dd_e"}
    phrases = find_phrases([["éé", "b"], ["c", "d"]], **EVERY_PAIR)
    assert [*phrases] == [["éé", "b"], ["c_d"]]


@pytest.mark.parametrize(("score", "threshold"), [("word2vec", 0.5), ("npmi", -0.5)])
def test_each_pass_is_a_call_with_the_text_of_the_pass_before(
    sequences, monkeypatch, score, threshold
):
    monkeypatch.setattr(shards, "SHARD_TOKENS", 50)
    options = {"score": score, "threshold": threshold, "min_count": 2}
    expected, joined = {}, sequences
    for _ in range(3):
        found = find_phrases(joined, **options)
        expected = {k: (x, n) for k, x, n in found.found.iter_rows()} | expected
        joined = [*found]
    phrases = find_phrases(sequences, **options, passes=3)
    assert len(expected) > 10 and any(k.count("_") > 1 for k in expected)
    assert by_phrase(phrases) == expected
    assert [*phrases] == joined


def test_a_phrase_that_is_a_token_of_the_text_counts_as_that_token():
    """Pass 1 joins `a b` alone. In pass 2 `a_b x` scores (4 - 1) / (4 * 4) * 28, with
    the two `a_b` of the text; without them it would be (2 - 1) / (2 * 4) * 28 < 5."""
    sequences = [["a", "b", "x"], ["a_b", "x"]] * 2 + [["q"]] * 20
    phrases = find_phrases(sequences, min_count=1, threshold=5.0, passes=2)
    assert by_phrase(phrases) == {"a_b": (7.5, 2), "a_b_x": (5.25, 4)}
    assert [*phrases][:4] == [["a_b_x"]] * 4


def test_too_many_pairs_drop_the_rarest(sequences, monkeypatch, caplog):
    monkeypatch.setattr(shards, "SHARD_TOKENS", 500)
    options = {"score": "npmi", "threshold": -0.9, "min_count": 1}
    whole = by_phrase(find_phrases(sequences, **options))
    with caplog.at_level(logging.WARNING):
        kept = by_phrase(find_phrases(sequences, **options, max_pairs=100))
    assert "`max_pairs` = 100" in caplog.text
    assert len(kept) <= 100 < len(whole)
    assert all(count <= whole[phrase][1] for phrase, (_, count) in kept.items())
    most = sorted(whole, key=lambda phrase: -whole[phrase][1])[:10]
    assert {*most} <= {*kept}


CONNECTORS = sorted(ENGLISH_CONNECTOR_WORDS)


@pytest.mark.parametrize("connectors", [[], CONNECTORS], ids=["none", "some"])
@pytest.mark.parametrize("shard_tokens", [60, 2_000_000])
@pytest.mark.parametrize("score", ["default", "npmi"])
def test_phrases_are_those_of_gensim(monkeypatch, score, shard_tokens, connectors):
    """gensim multiplies by the number of its counted tokens and pairs, where
    word2phrase.c has the number of words: its threshold differs by that ratio."""
    gensim = pytest.importorskip("gensim.models.phrases")
    assert {*CONNECTORS} == gensim.ENGLISH_CONNECTOR_WORDS
    monkeypatch.setattr(shards, "SHARD_TOKENS", shard_tokens)
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(6)] + CONNECTORS[3:6]
    lengths = rng.integers(1, 30, size=1000)
    lines = [[words[i] for i in rng.integers(len(words), size=n)] for n in lengths]
    threshold = 0.0005 if score == "default" else -0.5
    settings = {"min_count": 3, "threshold": threshold, "scoring": score}
    theirs = gensim.Phrases(lines, **settings, connector_words=frozenset(connectors))
    ratio = theirs.corpus_word_count / len(theirs.vocab) if score == "default" else 1.0
    ours = find_phrases(
        lines,
        score="word2vec" if score == "default" else "npmi",
        threshold=threshold * ratio,
        min_count=3,
        connectors=connectors,
    )
    expected = {k: x * ratio for k, x in theirs.export_phrases().items()}
    between = {"_".join(phrase.split("_")[1:-1]) for phrase in expected}
    assert len(expected) > 30 and (len(between) > 5) == bool(connectors)
    assert dict(ours.found["phrase", "score"].iter_rows()) == pytest.approx(expected)
    assert [*ours] == [theirs[line] for line in lines]


def test_more_connectors_than_a_number_holds_are_no_phrase():
    """62 of 63 bits: with one connector up to 63 of them between two words."""
    line = ["x", *["of"] * 63, "y"]
    found = find_phrases([line] * 3, min_count=1, threshold=0.1, connectors=["of"])
    assert [*found] == [["_".join(line)]] * 3
    line.insert(1, "of")
    found = find_phrases([line] * 3, min_count=1, threshold=0.1, connectors=["of"])
    assert [*found] == [line] * 3


def test_sequences_without_tokens_stay_in_their_places():
    line = ["new", "york"]
    found = find_phrases([[], line, [], [], line, []], min_count=1, threshold=0.1)
    joined = ["new_york"]
    assert [*found] == [*found] == [[], joined, [], [], joined, []]


def test_endings_of_targets_and_files_are_of_any_case(own_folder, capsys):
    Path("IN.TXT.GZ").write_bytes(gzip.compress(b"new\xc2\xa0york city\n" * 9))
    flags = ["--threshold", "0.1", "--connectors", "of\u00a0the"]
    to = ["--to", "OUT.TXT.GZ", "--list", "LIST.TSV"]
    assert main(["phrases", "IN.TXT.GZ", *flags, *to]) == 0
    joined = gzip.decompress(Path("OUT.TXT.GZ").read_bytes()).decode()
    assert joined == "new\u00a0york_city\n" * 9
    assert "\tcount\n" in Path("LIST.TSV").read_text()
    assert capsys.readouterr().out.endswith("the joined text is in OUT.TXT.GZ\n")


def test_the_verb_writes_what_the_function_finds(own_folder, capsys):
    Path("text.txt").write_text(TEXT + "bank of spain\n" * 3)
    flags = "--min-count 1 --threshold 1 --connectors of the --to".split()
    names = ["out.txt", "out.txt.gz", "out.txt"]  # the last one replaces
    for name, ending in zip(names, ["parquet", "csv", "tsv"], strict=True):
        options = [name, "--list", f"found.{ending}", "--overwrite"]
        assert main(["phrases", "text.txt", *flags, *options]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "        3         4.889  bank_of_spain",
            "        3         4.889  new_york",
            f"2 phrases; the joined text is in {name}",
        ]
        data = Path(name).read_bytes()
        text = gzip.decompress(data) if name.endswith(".gz") else data
        joined = b"new_york is big\nold new_york new_york city\na b c\n"
        assert text == joined + b"bank_of_spain\n" * 3
        read = pl.read_parquet if ending == "parquet" else pl.read_csv
        found = read(
            f"found.{ending}", **{"separator": "\t"} if ending == "tsv" else {}
        )
        assert found.columns == ["phrase", "score", "count"]
        assert found["phrase"].to_list() == ["bank_of_spain", "new_york"]
        assert found["count"].to_list() == [3, 3]
        np.testing.assert_allclose(found["score"], 44 / 9)
    same = find_phrases("text.txt", min_count=1, threshold=1, connectors=("of", "the"))
    assert "".join(" ".join(line) + "\n" for line in same).encode() == text
    assert main(["phrases", name, *flags, "more.txt"]) == 0  # is read again
    assert main(["phrases", name, "--to", "same.txt", "--list", "none.parquet"]) == 0
    assert capsys.readouterr().out.startswith("0 phrases; ")
    assert Path("same.txt").read_bytes() == text
    types = {"phrase": pl.String, "score": pl.Float64, "count": pl.Int64}
    assert pl.read_parquet("none.parquet").schema == types
