"""Settings: rules, what None becomes, and TOML."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from embedder import config
from embedder.cli.arguments import VERBS
from embedder.cli.options import options as options_of_verb
from embedder.config import (
    Config,
    different_options,
    from_toml,
    make_config,
    options_of,
    read_toml,
    resolve,
    to_toml,
    with_options,
)
from embedder.config.run_options import DeviceOptions, RunOptions, SaveOptions
from embedder.config.settings import Interval, read_interval, texts
from embedder.config.token_objectives import ADAGRAD_ALPHA
from embedder.config.token_options import (
    default_alpha,
    default_block,
    default_blocks_per_update,
    default_max_pairs_per_row,
)
from embedder.data.vocabulary import Vocabulary


def test_intervals_are_read():
    for text, interval in {
        "100": Interval(updates=100),
        "30s": Interval(seconds=30),
        "10min": Interval(seconds=600),
        "2 h": Interval(seconds=7200),
        "1epoch": Interval(epochs=1),
        "3 epochs": Interval(epochs=3),
        "never": Interval(),
    }.items():
        assert read_interval(text) == interval
        assert with_options(Config(), save_every=text).save.save_every == text


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        ({"window": 5}, 1),
        ({"window": 1}, 1),
        ({"window": 20}, 6 / 21),
        ({"window": 20, "shrink_windows": False}, 6 / 40),
        ({"window": "session"}, 6 / 127),
        ({"window": 20, "walks": 1}, 6 / 21 * 0.025 / 0.05),
        ({"window": 20, "cbow_mean": True}, 4),
        ({"window": 20, "architecture": "skipgram"}, 1),
        ({"window": 20, "optimizer": "adagrad"}, ADAGRAD_ALPHA / 0.05),
    ],
    ids=str,
)
def test_default_alpha_of_sums_falls_with_the_contexts(options, factor):
    given = {"architecture": "cbow", "cbow_mean": False, "blocks_per_update": 1}
    config = with_options(Config(), **given | options)
    alpha = resolve(config, 10**6, row_updates=lambda sample: 260).tables.alpha
    assert alpha == pytest.approx(factor * 0.05)


@pytest.mark.parametrize(
    ("options", "contexts"),
    [
        ({"window": 40}, 6),
        ({"walks": 1, "window": 5}, 6),
        ({"walks": 1, "window": 23}, 24),
        ({"window": "session", "block": 64}, 63),
        ({"window": "session", "walks": 1}, 127),
        ({"window": "session", "architecture": "cbow"}, 6),
        ({"walks": 1, "window": 23, "architecture": "cbow"}, 6),
    ],
)
def test_the_limit_falls_with_the_root_of_the_contexts(options, contexts):
    """And whole sessions have twice as many noise tokens as a block."""
    given = with_options(Config(), alpha=0.1, blocks_per_update=1, **options)
    found = resolve(given, 10**6).tables
    assert found.num_noise == (2 * found.block if "session" in options.values() else 32)
    limit = found.max_pairs_per_row
    assert limit == pytest.approx(16 * math.sqrt(6 / contexts))


def test_resolve_leaves_nothing_open_and_keeps_what_is_given():
    resolved = resolve(with_options(Config(), blocks_per_update=9), 10**6)
    assert resolved.tables.block == 64
    assert resolved.tables.alpha == pytest.approx(0.025 * 9**0.1)
    assert resolved.tables.max_pairs_per_row == pytest.approx(64 / 9**0.1)
    assert None not in options_of(resolved).values()
    given = with_options(
        Config(),
        **{"block": 32, "noise": 32, "blocks_per_update": 7, "alpha": 0.2},
        max_pairs_per_row=math.inf,
        holdout=0.0,
    )
    assert resolve(given, 10**6) == given


@pytest.mark.parametrize("verb", VERBS.values())
def test_every_option_has_a_text(verb):
    for name, option in options_of_verb(verb).items():
        assert texts(option.section or verb)[name].endswith((".", ")")), name


def test_values_of_other_types_are_kept_as_those_of_settings():
    """Also the bounds themselves, and what is checked against what is given with it."""
    assert with_options(Config(), save_every=100).save.save_every == "100"
    made = with_options(Config(), window=np.int64(3), sample=np.float32(0.5)).tables
    assert type(made.window) is int and type(made.sample) is float
    values = dict(window=127, sample=1, epochs=0, seed=2**64 - 1, min_alpha=0)
    values |= dict(block=21, tile=7)
    found = options_of(with_options(Config(), **values))
    assert {name: found[name] for name in values} == values
    after = options_of(with_options(with_options(Config(), **values), epochs=4))
    assert after == found | {"epochs": 4}


def test_the_default_of_alpha_bounds_min_alpha():
    """That of SGD for the largest corpus, 0.025, or of CBOW, 0.1; that of Adagrad."""
    made = with_options(Config(), architecture="cbow", min_alpha=0.1)
    assert made.tables.min_alpha == 0.1
    adagrad = with_options(Config(), optimizer="adagrad", min_alpha=ADAGRAD_ALPHA)
    assert resolve(adagrad, 100).tables.alpha == ADAGRAD_ALPHA
    assert resolve(adagrad, 100).tables.max_pairs_per_row is None
    for given, least in ((Config(), 0.03), (adagrad, 2 * ADAGRAD_ALPHA)):
        with pytest.raises(ValueError, match="`min_alpha` must be .* to `alpha`, got "):
            with_options(given, min_alpha=least)


def test_default_alpha_by_hand():
    """It falls with the updates of a row in all epochs, and with the repeats of a node
    in walks, and rises a little with the size of an update."""
    rates = {0: 0.1, 16: 0.1, 260: 0.05, 1040: 0.035355, 16 * 260: 0.025, 1e9: 0.025}
    for row_updates, rate in rates.items():
        assert default_alpha(row_updates) == pytest.approx(rate, rel=1e-4)
    for epochs in (0, 1, 3, 20):
        assert default_alpha(700, epochs) == default_alpha(700 * (epochs or 5) / 5)
    for num_blocks in (1, 4, 64, 256):
        rate = default_alpha(700, 5, num_blocks)
        assert rate == pytest.approx(default_alpha(700) * num_blocks**0.1)
    for repeats in (1.0, 1.25, 2.5, 5.0):
        rate = default_alpha(700, 5, 64, walk_repeats=repeats)
        assert rate == pytest.approx(0.025 * min(1, 1.25 / repeats))


@pytest.mark.parametrize("epochs", [0, 1, 20])
def test_the_alpha_of_a_run_counts_the_updates_of_all_epochs(epochs):
    config, updates = with_options(Config(), epochs=epochs), lambda sample: 700
    resolved = resolve(config, 4 * 10**6, row_updates=updates).tables
    expected = default_alpha(700, epochs) * resolved.blocks_per_update**0.1
    assert resolved.alpha == pytest.approx(expected)
    again = resolve(with_options(config, epochs=5), 4 * 10**6, epochs or 5, updates)
    assert again.tables.alpha == resolved.alpha


@pytest.mark.parametrize("sample", [0.0, 1e-3, 0.02])
def test_row_updates_are_the_mean_over_kept_tokens(sample):
    counts = np.array([5000, 300, 300, 20, 1])
    ratio = sample / (counts / counts.sum()) if sample else np.full(5, np.inf)
    kept = counts * np.minimum(1, np.sqrt(ratio) + ratio)
    tokens = np.repeat(kept, counts)  # of each token, kept with kept / counts
    mean = np.average(np.log(tokens), weights=np.repeat(kept / counts, counts))
    found = Vocabulary([*"abcde"], counts).row_updates(sample)
    assert found == pytest.approx(np.exp(mean))
    assert Vocabulary([], np.empty(0, np.int64)).row_updates(sample) == 1


def test_default_blocks_and_updates_grow_with_the_corpus():
    """At least 3,000 updates an epoch, where there are as many blocks; whole tiles."""
    for num_tokens, block, num_blocks in (
        *((0, 64, 1), (383_999, 64, 1), (384_000, 64, 2), (10**6, 64, 4)),
        *((4 * 10**6, 64, 16), (17 * 10**6, 64, 64), (10**9, 64, 256)),
        *((17 * 10**6, 128, 32), (10**6, 10**6, 1)),
    ):
        assert default_blocks_per_update(num_tokens, block) == num_blocks
    assert [*map(default_block, (1, 16, 48, 100))] == [64, 64, 96, 100]
    caps = {(0.1, 256): 16, (0.025, 2049): 64, (0.001, 2048): 128, (0.001, 2049): 64}
    for given, cap in caps.items():
        assert default_max_pairs_per_row(*given) == pytest.approx(cap)


FILES = [
    ("\ufeff[tokens]\r\nwindow = 3\r\n", {"window": 3}),
    ('[run]\nmodel = "encoder"\n[encoder]\nbatch_size = 4', {"batch_size": 4}),
    ("[tokens]\ncap = 7.0", {"cap": 7.0}),
    ("[tokens]\nmax_pairs_per_row = inf", {"max_pairs_per_row": math.inf}),
    (f"[run]\nseed = {2**64 - 1}", {"seed": 2**64 - 1}),
]


@pytest.mark.parametrize(("text", "values"), FILES, ids=[x.strip() for x, _ in FILES])
def test_files_of_settings_are_read_and_written(tmp_path, text, values):
    """Also the NumPy trainer's names; a file that is written has those of now."""
    path = tmp_path / "config.toml"
    path.write_text(text, newline="")
    if "encoder" in text:
        values = values | {"model": "encoder"}
    found = read_toml(path)
    assert found == with_options(Config(), **values) == make_config(values)
    path.write_text(to_toml(found))
    assert read_toml(path) == found
    assert "cap" not in to_toml(found)


def test_relative_paths_of_a_file_start_in_its_folder(own_folder):
    """Or in the current folder, where nothing lies beside the file."""
    beside = own_folder / "sub"
    beside.mkdir()
    for name in ("sub/pairs.tsv", "pairs.tsv", "old.txt"):
        Path(name).touch()

    def read(text: str) -> Config:
        (beside / "my.toml").write_text(text)
        assert read_toml(Path("sub/my.toml")) == read_toml(beside / "my.toml")
        return read_toml(Path("sub/my.toml"))

    found = read(
        '[tokens]\nbest_by = "pairs.tsv"\ninit_from = "old.txt"\nfreeze = "no.txt"\n'
        'names = "names.csv"'
    ).tables
    assert found.best_by == str(beside / "pairs.tsv")
    assert found.init_from == str(own_folder / "old.txt")
    assert found.freeze == str(beside / "no.txt")
    assert found.names == str(beside / "names.csv")
    found = read(
        '[tokens]\nbest_by = "held-out"\nholdout = 0.1\nfreeze = "all"\n'
        'init_from = "https://x.org/v.txt"'
    ).tables
    words = found.best_by, found.freeze, found.init_from
    assert words == ("held-out", "all", "https://x.org/v.txt")
    text = '[run]\nmodel = "encoder"\n[encoder]\ninit_network = "pairs.tsv"'
    (beside / "my.toml").write_text(text)
    assert read_toml(Path("sub/my.toml")).encoder.init_network == "sub/pairs.tsv"


def test_differences_are_of_values_not_of_names():
    """What a file lacks has its default."""

    def different(before, now):
        return different_options(options_of(before), options_of(now))

    before = from_toml("[tokens]\ncap = 3.0\nwindow = 5\n")
    assert different(before, with_options(Config(), max_pairs_per_row=3)) == []
    assert different(before, with_options(Config(), max_pairs_per_row=4)) == [
        "`max_pairs_per_row` 3.0 there, 4.0 now"
    ]
    before = from_toml("[run]\nseed = 1\n")
    adagrad = with_options(Config(), optimizer="adagrad")
    assert different(before, adagrad) == ["`optimizer` 'sgd' there, 'adagrad' now"]


def test_a_config_has_the_section_of_its_family_alone():
    sections = [RunOptions, DeviceOptions, SaveOptions, *config.FAMILIES.values()]
    names = [f.name for section in sections for f in dataclasses.fields(section)]
    assert len(names) == len(set(names))
    made = with_options(Config(), model="encoder", batch_size=4)
    assert made.encoder.batch_size == 4
    with pytest.raises(TypeError, match="`model` is 'encoder'"):
        made.tables  # noqa: B018
    with pytest.raises(TypeError, match="`model` is 'encoder'"):
        Config(run=RunOptions(model="encoder"))
