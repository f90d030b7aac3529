import itertools
import math
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedder.config import Config, with_options
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from embedder.tokens.trainer import TokensTrainer
from migration.parity.ladder import subject
from migration.parity.training import epoch_stage
from tests.parity.cases import UPDATES, assert_pass

SMALL = with_options(
    Config(), loader="memory", vector_size=8, min_count=2, block=32, alpha=0.02
)
ARCHITECTURES = ["skipgram", "cbow"]
FORMS = {"tiled": {"tile": 16, "noise": 8}, "classic": {"tile": 1, "noise": 5}}
RULES = {
    "cap": {"max_pairs_per_row": 4.0},
    "no_cap": {"max_pairs_per_row": math.inf},
    "adagrad": {"optimizer": "adagrad"},
}
CAPS = ["cap", "no_cap"]


def half(*values: Iterable) -> list[tuple]:
    """Every other cell of a product of pairs: any four of five are in all ways."""
    numbered = itertools.product(*map(enumerate, values))
    return [
        tuple(value for _, value in cell)
        for cell in numbered
        if sum(number for number, _ in cell) % 2 == 0
    ]


WAYS = [
    *half(ARCHITECTURES, FORMS, CAPS, [0, 1e-3], ["rows", "kernel"], ["float64"]),
    *itertools.product(*(ARCHITECTURES, FORMS, CAPS, [1e-3], ["dense"], ["float64"])),
    *itertools.product(
        *(ARCHITECTURES, ["tiled"], ["cap"], [1e-3], UPDATES, ["float32"])
    ),
    *itertools.product(
        *(ARCHITECTURES, FORMS, ["adagrad"], [1e-3], UPDATES, ["float64"])
    ),
    *itertools.product(
        *(ARCHITECTURES, ["tiled"], ["adagrad"], [1e-3], UPDATES, ["float32"])
    ),
]


def assert_same_epoch(config, sequences):
    encoded = encode(sequences_corpus(sequences), config.tables.min_count)
    assert_pass(epoch_stage(config, encoded, sequences))


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("architecture", "form", "rule", "sample", "update", "dtype"),
    [
        pytest.param(
            *way,
            id="-".join(map(str, way)),
            marks=[pytest.mark.slow] if number % 5 else [],
        )
        for number, way in enumerate(WAYS)
    ],
)
def test_an_epoch_is_that_of_the_oracle(
    sequences, architecture, form, rule, sample, update, dtype
):
    config = with_options(
        SMALL,
        **FORMS[form],
        architecture=architecture,
        **RULES[rule],
        sample=sample,
        **UPDATES[update],
        dtype=dtype,
    )
    assert_same_epoch(config, sequences)


@pytest.mark.slow
@settings(max_examples=8)
@given(
    sequences=st.lists(
        st.lists(st.sampled_from("abcdefghij"), min_size=2, max_size=40),
        min_size=1,
        max_size=30,
    ),
    options=st.fixed_dictionaries(
        {
            "architecture": st.sampled_from(ARCHITECTURES),
            "window": st.integers(1, 9),
            "negative": st.integers(1, 8),
            "ns_exponent": st.floats(-1, 1),
            "sample": st.sampled_from([0, 0.01, 0.5]),
            "tile": st.sampled_from([1, 4, 16]),
            "noise": st.integers(1, 9),
            "blocks_per_update": st.integers(1, 3),
            "vector_size": st.integers(1, 12),
            "seed": st.integers(0, 2**64 - 1),
            "backend": st.sampled_from(["xla", "numba"]),
        }
    ),
    rule=st.sampled_from(
        [{"max_pairs_per_row": 1.0}, {"max_pairs_per_row": 8.0}, RULES["adagrad"]]
    ),
)
def test_any_epoch_is_that_of_the_oracle(sequences, options, rule):
    config = with_options(SMALL, **options, **rule, min_count=1, dtype="float64")
    assert_same_epoch(config, sequences)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "backend", "dtype", "loader"),
    [
        ("skipgram", "xla", "float32", "tfdata"),
        ("skipgram", "numba", "float64", "auto"),
        ("cbow", "xla", "float64", "tfdata"),
    ],
)
def test_an_epoch_of_a_million_words_with_the_defaults(
    wiki, backend, architecture, dtype, loader
):
    """What users run: on a CPU the memory loader, else tf.data; scan, donation."""
    config = with_options(
        Config(), architecture=architecture, dtype=dtype, backend=backend, loader=loader
    )
    compared = subject(config, str(wiki), words=0, seeds=())
    assert compared.encoded.num_tokens > 1_000_000
    assert_pass(epoch_stage(config, compared.encoded, compared.sequences))


@pytest.mark.parametrize("backend", ["xla", "numba"])
def test_evaluations_within_the_epoch_change_nothing(
    sequences, tmp_path, monkeypatch, backend
):
    scored = []
    measure = TokensTrainer.evaluate

    def evaluate(self, state):
        scored.append(measure(self, state))
        return scored[-1]

    monkeypatch.setattr(TokensTrainer, "evaluate", evaluate)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("w0\tw1\t3\nw2\tw3\t1\nw4\tw5\t2\n")
    options = {"eval_every": 16, "best_by": str(pairs), "backend": backend}
    assert_same_epoch(with_options(SMALL, dtype="float64", **options), sequences)
    assert len(scored) > 2
