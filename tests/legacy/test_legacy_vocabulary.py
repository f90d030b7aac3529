import gzip

import numpy as np
import pytest

from legacy.vocabulary import build_vocabulary, encode, read_text

SEQUENCES = [["b", "a", "b"], [], ["c", "a", "d"], ["e"]]


@pytest.fixture
def write(tmp_path):
    """Writes bytes to a file of a name, and returns its path."""

    def write(content: bytes, name: str = "corpus.txt"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def tokens_of(text) -> list[list[str]]:
    flat = iter(text.types[i] for i in text.ids)
    return [[next(flat) for _ in range(length)] for length in text.lengths]


def test_read_text_numbers_by_first_appearance():
    text = read_text(SEQUENCES)
    assert text.types == ["b", "a", "c", "d", "e"]
    assert text.ids.tolist() == [0, 1, 0, 2, 1, 3, 4]
    assert text.lengths.tolist() == [3, 3, 1]
    assert text.ids.dtype == np.int32 and text.lengths.dtype == np.int64


def test_read_text_reads_generators_once():
    text = read_text((token for token in sequence) for sequence in SEQUENCES)
    assert tokens_of(text) == [s for s in SEQUENCES if s]


def test_read_text_takes_tokens_as_they_are():
    sequences = [["New York", " x", "é", "a\nb", "\u2028"]]
    assert tokens_of(read_text(sequences)) == sequences


@pytest.mark.parametrize("name", ["corpus.txt", "corpus.txt.gz", "a b ü.gz"])
def test_read_text_cuts_lines_at_ascii_white_space(write, name):
    content = "\ufeffa\tb  c\r\n\n  \nd\x0be\xa0f\u2028g\x85\nh".encode()
    path = write(gzip.compress(content) if name.endswith(".gz") else content, name)
    expected = [["a", "b", "c"], ["d", "e\xa0f\u2028g\x85"], ["h"]]
    assert tokens_of(read_text(path)) == expected
    assert tokens_of(read_text(str(path))) == expected


def test_read_text_drops_a_byte_order_mark_only_at_the_start(write):
    path = write(b"a\n\xef\xbb\xbfb\n")
    assert tokens_of(read_text(path)) == [["a"], ["\ufeffb"]]


def test_read_text_missing_file_or_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Corpus .*no\.txt does not exist\."):
        read_text(tmp_path / "no.txt")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read_text(str(tmp_path))


PACKED = gzip.compress(b"a b c " * 1000 + bytes(range(1, 200)))
FLIPPED = PACKED[:-6] + bytes([PACKED[-6] ^ 1]) + PACKED[-5:]  # in the checksum


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.txt", b"a b\nc\0d\n", r"c\.txt is not text: line 2 has a NUL"),
        ("c.txt", b"a b\nc \xff\n", r"not UTF-8 text: line 2 has b'\\xff'"),
        ("c.txt", b"", r"^The corpus has no tokens\.$"),
        ("c.txt", b"\n \n\t\n", r"^The corpus has no tokens\.$"),
        ("c.txt", b"\xef\xbb\xbf", r"^The corpus has no tokens\.$"),
        ("c.gz", PACKED[:-1], r"c\.gz is not a whole .gz file"),
        ("c.gz", PACKED[:-8], "is not a whole .gz file"),
        ("c.gz", PACKED[:-100], "is not a whole .gz file"),
        ("c.gz", FLIPPED, "is not a whole .gz file"),
        ("c.gz", b"a b c\n", "is not a whole .gz file"),
    ],
)
def test_read_text_damaged_file(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_text(write(content, name))


@pytest.mark.parametrize("corpus", [[], [[]], [[], []], iter([])])
def test_read_text_empty(corpus):
    with pytest.raises(ValueError, match=r"^The corpus has no tokens\.$"):
        read_text(corpus)


def test_read_text_leaves_errors_of_the_source_alone():
    def broken():
        yield ["a"]
        raise TypeError("from the source")

    with pytest.raises(TypeError, match=r"^from the source$"):
        read_text(broken())


def test_vocabulary_order_is_count_then_first_appearance():
    text = read_text([["z", "y", "x", "x", "w", "w", "y", "v"]])
    vocabulary = build_vocabulary(text, 1)
    assert vocabulary.tokens == ["y", "x", "w", "z", "v"]
    assert vocabulary.counts.tolist() == [2, 2, 2, 1, 1]
    assert vocabulary.counts.dtype == np.int64
    assert build_vocabulary(text, 2).tokens == ["y", "x", "w"]


def test_vocabulary_order_of_many_ties():
    tokens = [f"w{i}" for i in np.random.default_rng(0).permutation(500)]
    vocabulary = build_vocabulary(read_text([tokens, tokens[::3]]), 1)
    once = [token for i, token in enumerate(tokens) if i % 3]
    assert vocabulary.tokens == tokens[::3] + once


def test_vocabulary_with_nothing_left():
    message = (
        "No token occurs `min_count` = 5 times or more: "
        "the most frequent, 'x', occurs 3 times."
    )
    with pytest.raises(ValueError) as error:
        build_vocabulary(read_text([["y", "x", "x", "x"]]), 5)
    assert str(error.value) == message


def test_encode_drops_unknown_tokens_and_empty_sequences():
    text = read_text([["a", "q", "b"], ["q"], ["b"], ["q", "q", "a"]])
    ids, lengths = encode(text, ["b", "a"])
    assert ids.tolist() == [1, 0, 0, 1] and ids.dtype == np.int32
    assert lengths.tolist() == [2, 1, 1] and lengths.dtype == np.int64


def test_encode_without_a_known_token():
    ids, lengths = encode(read_text([["a"], ["b", "c"]]), ["z"])
    assert ids.size == 0 and lengths.size == 0
