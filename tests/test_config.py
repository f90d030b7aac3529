"""Settings: rules, what None becomes, and TOML."""

import dataclasses
import inspect
import math
import tomllib

import numpy as np
import pytest

from embedder import config, encoders, options, tables
from embedder.config import (
    Config,
    differences,
    from_toml,
    make_config,
    options_of,
    read_toml,
    resolve,
    to_toml,
    with_options,
)
from embedder.options import DeviceOptions, RunOptions, SaveOptions
from embedder.settings import Interval, read_interval
from embedder.tables.options import (
    ADAGRAD_ALPHA,
    default_alpha,
    default_block,
    default_blocks_per_update,
    default_max_pairs_per_row,
)
from embedder.tables.vocabulary import Vocabulary
from legacy import blocks
from legacy.model import default_alpha as oracle_alpha
from legacy.model import default_blocks_per_update as oracle_blocks
from legacy.model import default_cap as oracle_cap
from legacy.vocabulary import row_updates as oracle_updates


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("100", Interval(updates=100)),
        ("30s", Interval(seconds=30)),
        ("10min", Interval(seconds=600)),
        ("2 h", Interval(seconds=7200)),
        ("1epoch", Interval(epochs=1)),
        ("3 epochs", Interval(epochs=3)),
        ("never", Interval()),
    ],
)
def test_intervals_are_read(text, interval):
    assert read_interval(text) == interval
    assert with_options(Config(), save_every=text).save.save_every == text


def test_a_number_of_updates_may_be_a_number():
    assert with_options(Config(), save_every=100).save.save_every == "100"


def test_numpy_numbers_become_python_numbers():
    made = with_options(Config(), window=np.int64(3), sample=np.float32(0.5))
    assert type(made.tables.window) is int and type(made.tables.sample) is float


def test_bounds_themselves_are_allowed():
    values = dict(window=127, sample=1, epochs=0, seed=2**64 - 1, min_alpha=0)
    made = options_of(with_options(Config(), **values))
    assert {name: made[name] for name in values} == values


def test_min_alpha_may_reach_the_default_alpha_of_cbow():
    made = with_options(Config(), architecture="cbow", min_alpha=0.1)
    assert made.tables.min_alpha == 0.1


def test_block_is_checked_against_the_tile_given_with_it():
    assert with_options(Config(), block=21, tile=7).tables.block == 21


@pytest.mark.row("B14")
def test_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="option `windo`, did you mean `window`?"):
        with_options(Config(), windo=3)
    with pytest.raises(ValueError, match=r"Unknown option `qqq`\.$"):
        with_options(Config(), qqq=3)


def test_with_options_leaves_the_others_as_they_are():
    before = with_options(Config(), window=3, epochs=2)
    after = with_options(before, epochs=4)
    assert options_of(after) == options_of(before) | {"epochs": 4}


@pytest.mark.parametrize(
    ("row_updates", "alpha"),
    [
        (0, 0.1),
        (16, 0.1),
        (260, 0.05),
        (16 * 260, 0.025),
        (1e9, 0.025),
        (1040, 0.035355),
    ],
)
def test_default_alpha_falls_with_the_updates_of_a_row(row_updates, alpha):
    assert default_alpha("skipgram", row_updates) == pytest.approx(alpha, rel=1e-4)
    assert default_alpha("cbow", row_updates) == pytest.approx(4 * alpha, rel=1e-4)


@pytest.mark.parametrize("repeats", [1.0, 1.25, 2.5, 5.0])
def test_default_alpha_of_walks_falls_with_the_repeats_of_a_node(repeats):
    for architecture, factor in (("skipgram", 1), ("cbow", 4)):
        alpha = default_alpha(architecture, 700, 5, 64, walk_repeats=repeats)
        assert alpha == pytest.approx(factor * 0.025 * min(1, 1.25 / repeats))


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


@pytest.mark.parametrize("epochs", [0, 1, 3, 20])
def test_default_alpha_counts_the_updates_of_all_epochs(epochs):
    alpha = default_alpha("skipgram", 700, epochs)
    assert alpha == default_alpha("skipgram", 700 * (epochs or 5) / 5)
    assert alpha == oracle_alpha("skipgram", 700, "sgd", epochs)
    config, updates = with_options(Config(), epochs=epochs), lambda sample: 700
    resolved = resolve(config, 4 * 10**6, row_updates=updates).tables
    assert resolved.alpha == pytest.approx(alpha * resolved.blocks_per_update**0.1)
    again = resolve(with_options(config, epochs=5), 4 * 10**6, epochs or 5, updates)
    assert again.tables.alpha == resolved.alpha


@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize("num_blocks", [1, 4, 64, 256])
def test_default_alpha_rises_a_little_with_the_size_of_an_update(
    num_blocks, architecture
):
    alpha = default_alpha(architecture, 700, 5, num_blocks)
    one = default_alpha(architecture, 700)
    assert alpha == pytest.approx(one * num_blocks**0.1)
    assert alpha == oracle_alpha(architecture, 700, "sgd", 5, num_blocks)


@pytest.mark.parametrize("sample", [0.0, 1e-3, 0.02])
def test_row_updates_are_the_mean_over_kept_tokens(sample):
    counts = np.array([5000, 300, 300, 20, 1])
    ratio = sample / (counts / counts.sum()) if sample else np.full(5, np.inf)
    kept = counts * np.minimum(1, np.sqrt(ratio) + ratio)
    tokens = np.repeat(kept, counts)  # of each token, kept with kept / counts
    mean = np.average(np.log(tokens), weights=np.repeat(kept / counts, counts))
    found = Vocabulary([*"abcde"], counts).row_updates(sample)
    assert found == pytest.approx(np.exp(mean))
    assert found == oracle_updates(counts, sample)
    assert Vocabulary(["a", "b"], np.full(2, 90)).row_updates(0.0) == pytest.approx(90)
    assert Vocabulary([], np.empty(0, np.int64)).row_updates(sample) == 1


@pytest.mark.parametrize(
    ("num_tokens", "block", "num_blocks"),
    [
        *[(0, 64, 1), (383_999, 64, 1), (384_000, 64, 2), (10**6, 64, 4)],
        *[(4 * 10**6, 64, 16), (17 * 10**6, 64, 64), (10**9, 64, 256)],
        *[(17 * 10**6, 128, 32), (10**6, 10**6, 1)],
    ],
)
def test_default_updates_grow_with_the_corpus(num_tokens, block, num_blocks):
    """At least 3,000 updates an epoch, where there are as many blocks."""
    assert default_blocks_per_update(num_tokens, block) == num_blocks
    assert oracle_blocks(num_tokens, block) == num_blocks


@pytest.mark.parametrize(("tile", "block"), [(1, 64), (16, 64), (48, 96), (100, 100)])
def test_default_block_is_64_in_whole_tiles(tile, block):
    assert default_block(tile) == block == blocks.default_block(tile)


@pytest.mark.parametrize(
    ("alpha", "tokens", "cap"),
    [(0.1, 256, 16.0), (0.025, 2049, 64.0), (0.001, 2048, 128.0), (0.001, 2049, 64.0)],
)
def test_default_cap_keeps_cap_times_alpha_small(alpha, tokens, cap):
    assert default_max_pairs_per_row(alpha, tokens) == pytest.approx(cap)
    assert oracle_cap(alpha, tokens) == pytest.approx(cap)


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
    given = with_options(Config(), alpha=0.1, blocks_per_update=1, **options)
    limit = resolve(given, 10**6).tables.max_pairs_per_row
    assert limit == pytest.approx(16 * math.sqrt(6 / contexts))


@pytest.mark.parametrize(
    ("options", "noise"),
    [
        ({}, 32),
        ({"window": "session"}, 256),
        ({"window": "session", "block": 48}, 96),
        ({"window": "session", "noise": 8}, 8),
    ],
)
def test_whole_sessions_have_twice_as_many_noise_tokens_as_a_block(options, noise):
    resolved = resolve(with_options(Config(), **options), 10**6)
    assert resolved.tables.noise == resolved.tables.num_noise == noise


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
    )
    assert resolve(given, 10**6) == given


@pytest.mark.parametrize(
    "values", [{}, {"max_pairs_per_row": math.inf, "seed": 2**64 - 1, "block": 32}]
)
def test_toml_round_trip(tmp_path, values):
    made = with_options(Config(), **values)
    path = tmp_path / "config.toml"
    path.write_text(to_toml(made))
    assert read_toml(path) == made


def test_toml_may_leave_out_tables_and_have_a_byte_order_mark(tmp_path):
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xef\xbb\xbf[data]\r\nwindow = 3\r\n")
    assert read_toml(path) == with_options(Config(), window=3)


@pytest.mark.row("B14")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = [", "is not valid TOML"),
        (b"\xff", "is not valid TOML"),
        ("[tokns]\nwindow = 3", r"unknown table \[tokns\], did you mean `tokens`\?"),
        ("[data]\nwindw = 3", r"key `windw` in \[data\], did you mean `window`\?"),
        ("[data]\nqqq = 3", r"unknown key `qqq` in \[data\]\."),
        ("window = 3", r"unknown table \[window\]: `window` belongs in \[tokens\]"),
        ("[run]\nwindow = 3", r"in \[run\]: `window` belongs in \[tokens\]"),
        ("data = 3", "`data` must be a table, got 3"),
        (
            "[data]\nwindow = 0",
            "`window` must be an integer from 1 to 127 or 'session', got 0",
        ),
        (
            "[data]\nwindow = 'x'",
            "`window` must be an integer from 1 to 127 or 'session'",
        ),
        ("[run]\nseed = 1\n[data]\nseed = 2", r"`seed` is given again in \[data\]"),
        ("[run]\noptimizer = 'adam'", "`optimizer` of tables must be 'sgd' or 'adag"),
        ("[model]\narchitecture = []", r"`architecture` must be .*, got \[\]"),
    ],
)
def test_bad_toml_is_refused_with_the_file(tmp_path, text, message):
    path = tmp_path / "my config.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=f"my config.toml.*{message}"):
        read_toml(path)


def test_every_option_has_a_docstring():
    modules = options, encoders.options, tables.options
    lines = [x for module in modules for x in inspect.getsource(module).splitlines()]
    for model in config.FAMILIES:
        for name in options_of(with_options(Config(), model=model)):
            start = next(
                i for i, x in enumerate(lines) if x.startswith(f"    {name}: ")
            )
            one_line = lines[start].endswith(")")
            end = start if one_line else lines.index("    )", start)
            assert lines[end + 1].startswith('    """'), name


def test_names_are_unique_over_all_sections():
    sections = [RunOptions, DeviceOptions, SaveOptions, *config.FAMILIES.values()]
    names = [f.name for section in sections for f in dataclasses.fields(section)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[data]\nwindow = 3\n[train]\nalpha = 0.1", {"window": 3, "alpha": 0.1}),
        ("[save]\nbest_by = ''\nkeep = 3", {"keep": 3}),
        (
            '[model]\nmodel = "encoder"\n[encoder]\nbatch_size = 4',
            {"model": "encoder", "batch_size": 4},
        ),
        (
            '[run]\nmodel = "encoder"\n[encoder]\noptimizer = "adam"',
            {"model": "encoder", "optimizer": "adam"},
        ),
        (
            '[model]\nmodel = "encoder"\n[train]\noptimizer = "adam"',
            {"model": "encoder", "optimizer": "adam"},
        ),
        (
            "[parallel]\ntables = 'rows'\ndevices = 2",
            {"table_sharding": "rows", "devices": 2},
        ),
    ],
)
def test_files_of_earlier_versions_are_read(tmp_path, text, values):
    """When settings of both families were spread over the same tables."""
    path = tmp_path / "config.toml"
    path.write_text(text)
    assert read_toml(path) == with_options(Config(), **values)


FORMER = [
    ("cap", 7.0, "max_pairs_per_row", 7.0),
    ("tables", "rows", "table_sharding", "rows"),
    ("model", "tables", "model", "tokens"),
]


@pytest.mark.parametrize(("former", "old", "name", "new"), FORMER)
def test_former_names_and_values_are_keywords(former, old, name, new):
    assert options_of(with_options(Config(), **{former: old}))[name] == new
    assert make_config({former: old}) == make_config({name: new})


@pytest.mark.parametrize(("former", "old", "name", "new"), FORMER)
@pytest.mark.parametrize("table", ["tokens", "tables", "train"])
def test_former_names_and_values_are_keys_of_files(
    tmp_path, table, former, old, name, new
):
    path = tmp_path / "config.toml"
    table = "run" if former == "model" else table
    path.write_text(f"[{table}]\n{former} = {old!r}\n")
    assert read_toml(path) == with_options(Config(), **{name: new})


def test_files_have_only_names_of_now():
    written = tomllib.loads(to_toml(with_options(Config(), cap=3.0, tables="rows")))
    assert "tables" not in written and written["run"]["model"] == "tokens"
    assert not {"cap", "tables"} & {*written["tokens"]}


@pytest.mark.parametrize(
    "names", [("cap", "max_pairs_per_row"), ("max_pairs_per_row", "cap")]
)
def test_a_setting_by_both_its_names_is_refused(names):
    expected = "`max_pairs_per_row` and its former name `cap` are both given"
    with pytest.raises(ValueError, match=expected):
        make_config(dict.fromkeys(names, 3.0))
    with pytest.raises(ValueError, match=expected):
        from_toml("[tokens]\ncap = 3\n[train]\nmax_pairs_per_row = 3\n")


def test_a_changed_setting_differs_from_its_former_name():
    before = from_toml("[tables]\ncap = 3.0\n")
    assert differences(before, with_options(Config(), max_pairs_per_row=3)) == []
    assert differences(before, with_options(Config(), max_pairs_per_row=4)) == [
        "`max_pairs_per_row` 3.0 there, 4.0 now"
    ]


def test_the_default_of_alpha_bounds_min_alpha():
    """That of SGD for the largest corpus, 0.025; that of Adagrad."""
    message = "`min_alpha` must be a number from 0 to `alpha`, got 0.03"
    with pytest.raises(ValueError, match=message):
        with_options(Config(), min_alpha=0.03)
    first = ADAGRAD_ALPHA
    adagrad = with_options(Config(), optimizer="adagrad", min_alpha=first)
    assert resolve(adagrad, 100).tables.alpha == first
    assert resolve(adagrad, 100).tables.max_pairs_per_row is None
    with pytest.raises(ValueError, match="`min_alpha` must be"):
        with_options(adagrad, min_alpha=2 * first)


def test_adagrad_has_no_limit_of_pairs():
    message = "`max_pairs_per_row` applies only to `optimizer` = 'sgd', got 64.0."
    with pytest.raises(ValueError, match=message):
        with_options(Config(), optimizer="adagrad", max_pairs_per_row=64)


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_tables_take_these_optimizers(name):
    assert with_options(Config(), optimizer=name).run.optimizer == name


def test_tables_refuse_other_optimizers():
    expected = "`optimizer` of tables must be 'sgd' or 'adagrad', got 'adam'"
    with pytest.raises(ValueError, match=expected):
        with_options(Config(), optimizer="adam")


def test_a_setting_that_a_file_lacks_has_its_default_in_comparisons():
    before = from_toml("[run]\nseed = 1\n[tables]\nwindow = 5\n")
    assert differences(before, Config()) == []
    adagrad = with_options(Config(), optimizer="adagrad")
    assert differences(before, adagrad) == ["`optimizer` 'sgd' there, 'adagrad' now"]


def test_a_config_has_the_section_of_its_family_alone():
    made = with_options(Config(), model="encoder", batch_size=4)
    assert made.encoder.batch_size == 4
    with pytest.raises(TypeError, match="`model` is 'encoder'"):
        made.tables  # noqa: B018
    with pytest.raises(TypeError, match="`model` is 'encoder'"):
        Config(run=RunOptions(model="encoder"))
