"""Hostile texts and settings through the whole program: done, or one line says why.

Every text has as many tokens of as many types, so that a run finds its programs
compiled.
"""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embedder import read_vectors
from embedder.cli.main import main
from tests.commands import OF_A_RUN

pytestmark = pytest.mark.slow
TYPES = 12
FAST = ["--loader", "memory", "--epochs", "1", "--vector-size", "4", "--min-count", "1"]
FAST += ["--block", "16", "--noise", "4", "--window", "2", "--backend", "xla"]
BLANKS = "[ \t\n\v\f\r\0]"
HOSTILE = [
    *("\x1b[31mred\x1b[0m", "\x07\x08\x7f", "\x1c\x1d", "\x85", "\u202eabc", "\u200f"),
    *("<script>alert(1)</script>", "&amp;", '"', "'", "\\n", "`rm`", "$(x)", "../.."),
    *("\U0001f469\u200d\U0001f469\u200d\U0001f467", "\u00a0", "\u3000", "\u2028"),
    *("\ufeff", "\ufffd", "\uffff", "\U0010ffff", "e\u0301", "\u00e9", "-", "--help"),
    *("nan", "1", "-1", "null", "None", "</s>", "a" * 100_000, "\u00e4" * 5000, ","),
    "%s",
]


def text_of(tokens: list[str], seed: int = 0) -> str:
    """Twenty lines, each of `TYPES` tokens in some order: `tokens` and more."""
    more = (f"w{i}" for i in range(2 * TYPES))
    types = list(dict.fromkeys([*tokens, *more]))[:TYPES]
    rng = np.random.default_rng(seed)
    return "".join(" ".join(rng.permutation(types)) + "\n" for _ in range(20))


def check(capsys, text: bytes, *options: str, config=None):
    """A run is done, of which this gives the keys, or one line refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        corpus, toml, run = (Path(folder, each) for each in ("a.txt", "c.toml", "run"))
        corpus.write_bytes(text)
        if config is not None:
            toml.write_text(tomli_w.dumps(config), encoding="utf-8")
            options = (*options, "--config", str(toml))
        capsys.readouterr()
        code = main(["train", str(corpus), "--workdir", str(run), *FAST, *options])
        errors = capsys.readouterr().err
        if code == 0:
            for name in ("vectors.safetensors", "vectors.txt"):
                vectors = read_vectors(run / name)
                assert np.isfinite(vectors.matrix).all() and vectors.matrix.any()
            return {*vectors.keys}
        *before, last = errors.splitlines()
        assert code in (2, 3) and last.startswith("embedder: ")
        assert last.isprintable() and len(last) < 6000
        said = ("epoch ", "The loss spikes: ")
        assert all(x.startswith(said) or OF_A_RUN.match(x) for x in before)
        assert not (run / "vectors.safetensors").exists()
        return None


def for_all(number: int, check: Callable[..., None], **strategies) -> None:
    settings(max_examples=number)(given(**strategies)(check))()


@pytest.mark.row("B4", "B12")
def test_any_tokens_get_vectors(capsys):
    some = st.text(min_size=1).map(lambda text: re.sub(BLANKS, "", text) or "x")
    tokens = st.lists(st.sampled_from(HOSTILE) | some, max_size=TYPES, unique=True)

    @example(tokens=HOSTILE[:12], seed=0)
    @example(tokens=HOSTILE[12:24], seed=1)
    @example(tokens=HOSTILE[24:], seed=2)
    @example(tokens=[";0"], seed=0)
    @example(tokens=["a,0"], seed=0)
    @example(tokens=["a,0,b"], seed=1)
    def run(tokens, seed):
        text = text_of(tokens, seed).removeprefix("\ufeff")
        with_mark = b"\xef\xbb\xbf" + text.encode()
        assert check(capsys, with_mark) == {*re.split(BLANKS, text)} - {""}

    for_all(30, run, tokens=tokens, seed=st.integers(0, 2**32))


@pytest.mark.row("B8")
def test_any_options_are_used_or_refused(capsys):
    wrong = ["-1", "nan", "", "x", "1,5", "1e999", "9" * 5000]
    numbers = [*wrong, "0", "1", "0.5", "1e30", "inf"]
    free = ["--sample", "--alpha", "--cap", "--max-pairs-per-row", "--seed"]
    others = ["--ns-exponent", "--min-alpha", "--keep", "--window", "--tile", "--noise"]
    others += ["--negative", "--block", "--vector-size"]  # of the shapes of arrays
    option = st.one_of(
        st.tuples(st.sampled_from(free), st.sampled_from(numbers)),
        st.tuples(st.sampled_from(free + others), st.sampled_from(wrong)),
    )

    @example(options=[("--alpha", "1e30")])
    @example(options=[("--seed", "9" * 5000)])
    def run(options):
        parts = (part for option in options for part in option)
        check(capsys, text_of([]).encode(), *parts)

    for_all(50, run, options=st.lists(option, min_size=1, max_size=2))


@pytest.mark.row("B8", "B14")
def test_any_config_is_used_or_refused(capsys):
    names = ["sample", "alpha", "cap", "max_pairs_per_row", "seed", "keep"]
    names = st.sampled_from([*names, "optimizer", "smple"])
    values = st.floats() | st.integers(-(2**70), 2**70) | st.booleans()
    tables = st.dictionaries(names, values | st.text(max_size=3), max_size=2)
    sections = st.sampled_from(["data", "train", "save", "encoder", "trian"])

    @example(tables={"train": {"alpha": 1e30}})
    @example(tables={"train": {"smple": 1}})
    def run(tables):
        check(capsys, text_of([]).encode(), config=tables)

    for_all(50, run, tables=st.dictionaries(sections, tables, max_size=2))
