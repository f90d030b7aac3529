"""A small run of tables and one with replicas, for lookups."""

import numpy as np
import polars as pl
import pytest

from embedder.cli.main import main

ITEMS = [f"{group}{i}" for group in "ab" for i in range(1, 6)]
NUMBERS = {item: 100 + i for i, item in enumerate(ITEMS)}
KINDS = dict(zip(ITEMS, "xyzxyzxyzx", strict=True))
TRAIN = ["--loader", "memory", "--vector-size", "4", "--min-count", "1"]
TRAIN += ["--sample", "0", "--epochs", "2", "--no-report"]


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder with the runs `run`, `two` (2 replicas), `numbered` and `two-numbered`
    (integer keys), and tables of names; a1 is the rarest item."""
    folder = tmp_path_factory.mktemp("lookup")
    rng = np.random.default_rng(0)
    share = np.arange(1, 11) / 55
    frame = pl.DataFrame(
        {"session": np.arange(600) // 6, "item": rng.choice(ITEMS, 600, p=share)}
    )
    frame.write_csv(folder / "baskets.csv")
    numbered = frame.with_columns(pl.col("item").replace_strict(NUMBERS))
    numbered.write_parquet(folder / "numbers.parquet")
    names = {
        "key": ITEMS,
        "name": [f"the {x}" for x in ITEMS],
        "kind": [*KINDS.values()],
    }
    pl.DataFrame(names).write_csv(folder / "names.csv")
    names = pl.DataFrame(names | {"key": [*NUMBERS.values()]})
    names.write_parquet(folder / "kinds.parquet")
    for run, corpus, options in (
        ("run", "baskets.csv", ()),
        ("two", "baskets.csv", ("--replicas", "2")),
        ("numbered", "numbers.parquet", ()),
        ("two-numbered", "numbers.parquet", ("--replicas", "2")),
    ):
        command = ["train", f"{folder}/{corpus}", "--workdir", f"{folder}/{run}"]
        assert main([*command, *TRAIN, *options]) == 0
    return folder


@pytest.fixture
def here(runs, monkeypatch, capsys):
    """The folder of the runs, which is the current one."""
    monkeypatch.chdir(runs)
    capsys.readouterr()
    return runs
