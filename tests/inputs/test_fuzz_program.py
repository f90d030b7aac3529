"""Hostile texts and settings through the whole program: done, or one line says why.

Every text has as many tokens of as many types, so that a run finds its programs
compiled.
"""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embedder.cli import main
from embedder.vectors.export import read_vectors
from tests.commands import OF_A_RUN

TYPES = 12
FAST = ["--loader", "memory", "--epochs", "1", "--vector-size", "4", "--min-count", "1"]
FAST += ["--block", "16", "--noise", "4", "--window", "2", "--backend", "xla"]
BLANKS = "[ \t\n\v\f\r\0]"
HOSTILE = [
    *("\x1b[31mred\x1b[0m", "\x07\x08\x7f", "\x1c\x1d", "\x85", "\u202eabc", "\u200f"),
    *(
        "<script>alert(1)</script>",
        "&amp;",
        '"',
        "'",
        "\\n",
        "`rm`",
        "$(x)",
        "../..",
        "%s",
    ),
    *("\U0001f469\u200d\U0001f469\u200d\U0001f467", "\u00a0", "\u3000", "\u2028"),
    *("\ufeff", "\ufffd", "\uffff", "\U0010ffff", "e\u0301", "\u00e9", "-", "--help"),
    *("nan", "1", "-1", "null", "None", "</s>", "a" * 100_000, "\u00e4" * 5000, ","),
]
TOKENS = st.sampled_from(HOSTILE) | st.text(min_size=1).map(
    lambda text: re.sub(BLANKS, "", text) or "x"
)


def text_of(tokens: list[str], seed: int) -> str:
    """Twenty lines, each of `TYPES` tokens in some order: `tokens` and more."""
    more = (f"w{i}" for i in range(2 * TYPES))
    types = list(dict.fromkeys([*tokens, *more]))[:TYPES]
    rng = np.random.default_rng(seed)
    return "".join(" ".join(rng.permutation(types)) + "\n" for _ in range(20))


def train(corpus: Path, *arguments: str) -> tuple[int, Path]:
    """The exit code, and the folder of the run."""
    run = corpus.parent / "run"
    return main(["train", str(corpus), "--workdir", str(run), *FAST, *arguments]), run


def check_error(code: int, errors: str) -> None:
    """One line says what is wrong, after what the run says of itself."""
    *before, last = errors.splitlines()
    assert code in (2, 3) and last.startswith("embedder: ")
    before = [line for line in before if not OF_A_RUN.match(line)]
    said = ("epoch ", "The loss spikes: ")
    assert [line for line in before if not line.startswith(said)] == []
    assert last.isprintable() and len(last) < 6000


def check_done(run: Path, keys: set[str] | None = None) -> None:
    for name in ("vectors.safetensors", "vectors.txt"):
        vectors = read_vectors(run / name)
        assert keys is None or {*vectors.keys} == keys
        assert np.isfinite(vectors.matrix).all() and vectors.matrix.any()


def check_tokens(tokens: list[str], seed: int, capsys) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "text.txt"
        text = text_of(tokens, seed).removeprefix("\ufeff")
        corpus.write_bytes(b"\xef\xbb\xbf" + text.encode())  # a byte order mark
        code, run = train(corpus)
        assert code == 0, capsys.readouterr().err
        check_done(run, {*re.split(BLANKS, text)} - {""})


def check_run(
    capsys, *arguments: str, name="text.txt", data=b"", config=None, refused=""
) -> None:
    """A run by these arguments and this `config` is done, or one line refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        corpus, toml = Path(folder) / name, Path(folder) / "c.toml"
        corpus.write_bytes(text_of([], 0).encode() + data)
        if config is not None:
            toml.write_text(tomli_w.dumps(config), encoding="utf-8")
            arguments = (*arguments, "--config", str(toml))
        capsys.readouterr()
        code, run = train(corpus, *arguments)
        errors = capsys.readouterr().err
        if code:
            check_error(code, errors)
            assert refused in errors
            assert not (run if refused else run / "vectors.safetensors").exists()
        else:
            check_done(run)


TOKEN_LISTS = st.lists(TOKENS, max_size=TYPES, unique=True)
BYTES = st.one_of(
    st.binary(max_size=20), st.sampled_from([b"\0", b"\xff", b"\xe4\xb8", b"\r\r"])
)
ENDINGS = st.sampled_from([".txt", ".gz"])
NUMBERS = st.sampled_from(
    ["0", "1", "-1", "0.5", "1e30", "1e999", "nan", "inf", "", "x", "1,5", "9" * 5000]
)
FLAGS = st.sampled_from(
    [
        "--sample",
        "--ns-exponent",
        "--alpha",
        "--min-alpha",
        "--max-pairs-per-row",
        "--seed",
        "--keep",
    ]
    + ["--window", "--tile", "--noise", "--negative", "--block", "--vector-size"]
)
SOME = st.sampled_from(["-1", "nan", "", "x", "1,5", "1e999", "9" * 5000])
OPTION = st.one_of(  # of what the shapes of arrays hang on, only what is refused
    st.tuples(
        st.sampled_from(
            ["--sample", "--alpha", "--cap", "--max-pairs-per-row", "--seed"]
        ),
        NUMBERS,
    ),
    st.tuples(FLAGS, SOME),
)
OPTIONS = st.lists(OPTION, min_size=1, max_size=2)
NAMES = st.sampled_from(
    [
        "sample",
        "alpha",
        "cap",
        "max_pairs_per_row",
        "seed",
        "keep",
        "optimizer",
        "smple",
    ]
)
VALUES = st.one_of(
    st.floats(), st.integers(-(2**70), 2**70), st.booleans(), st.text(max_size=3)
)
CONFIGS = st.dictionaries(
    st.sampled_from(["data", "train", "save", "encoder", "trian"]),
    st.dictionaries(NAMES, VALUES, max_size=2),
    max_size=2,
)


def few_or_many(few: int, many: int):
    """How many examples a test draws; many of them are slow."""
    numbers = [few, pytest.param(many, marks=pytest.mark.slow)]
    return pytest.mark.parametrize("number", numbers)


def for_all(number: int, check: Callable[..., None], **strategies) -> None:
    options = {"deadline": None, "derandomize": True, "max_examples": number}
    settings(**options)(given(**strategies)(check))()


@pytest.mark.slow
@pytest.mark.row("B4", "B12")
@few_or_many(3, 30)
def test_any_tokens_get_vectors(number, capsys):
    @example(tokens=HOSTILE[:12], seed=0)
    @example(tokens=HOSTILE[12:24], seed=1)
    @example(tokens=HOSTILE[24:], seed=2)
    @example(tokens=[";0"], seed=0)
    @example(tokens=["a,0"], seed=0)
    @example(tokens=["a,0,b"], seed=1)
    def check(tokens, seed):
        check_tokens(tokens, seed, capsys)

    for_all(number, check, tokens=TOKEN_LISTS, seed=st.integers(0, 2**32))


@pytest.mark.slow
@pytest.mark.row("B2", "B4")
@few_or_many(6, 20)
def test_a_text_that_ends_in_any_bytes_is_read_or_refused(number, capsys):
    @example(data=b"a\0", ending=".txt")
    @example(data=b"\xff", ending=".txt")
    @example(data=b"", ending=".gz")
    def check(data, ending):
        name = f"text{ending}"
        check_run(capsys, name=name, data=data, refused=f"{name} is not")

    for_all(number, check, data=BYTES, ending=ENDINGS)


@pytest.mark.slow
@pytest.mark.row("B8")
@few_or_many(15, 50)
def test_any_options_are_used_or_refused(number, capsys):
    @example(options=[("--alpha", "1e30")])
    @example(options=[("--seed", "9" * 5000)])
    def check(options):
        check_run(capsys, *(part for option in options for part in option))

    for_all(number, check, options=OPTIONS)


@pytest.mark.slow
@pytest.mark.row("B8", "B14")
@few_or_many(10, 50)
def test_any_config_is_used_or_refused(number, capsys):
    @example(tables={"train": {"alpha": 1e30}})
    @example(tables={"train": {"smple": 1}})
    def check(tables):
        check_run(capsys, config=tables)

    for_all(number, check, tables=CONFIGS)


@pytest.mark.row("B1", "B15")
@pytest.mark.parametrize("name", ["a b\u00e4\u4e2d", "\u202e.txt", "-x", "a\nb", "[x]"])
def test_a_text_of_any_name_gets_vectors(tmp_path, capsys, name):
    corpus = tmp_path / name
    corpus.write_text(text_of([], 0))
    code, run = train(corpus)
    assert code == 0, capsys.readouterr().err
    check_done(run)


@pytest.mark.row("B1", "B15")
@pytest.mark.parametrize(
    "name",
    [
        *("missing", "empty.txt", "folder", "loop", "*.none"),
        *("\x1b[31m", "\u202e", "a\nb", "loop/a\nb", "a" * 300, "empty.txt/\x07"),
    ],
)
def test_a_text_that_is_not_there_is_refused(tmp_path, capsys, name):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    code, run = train(tmp_path / name)
    check_error(code, capsys.readouterr().err)
    assert not os.path.lexists(run)
