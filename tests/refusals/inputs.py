"""Odd paths, files of a run as targets, and files that are not what they claim."""

import io
import json

import numpy as np
import polars as pl

from tests.refusals.rows import Content, rows_of

WORD = "caf\udce9"  # not UTF-8


def packed(frame: pl.DataFrame) -> bytes:
    made = io.BytesIO()
    frame.write_parquet(made)
    return made.getvalue()


def safetensors(dtype: str, shape: list[int], size: int) -> bytes:
    """Vectors whose header claims these."""
    header, start = {}, 0
    keys = ("tokens", "U8", [2], 2), ("token_ends", "I64", [2], 16)
    whole = ("vectors", dtype, shape, size), *keys, ("counts", "I64", [2], 16)
    for name, kind, claim, length in whole:
        place = [start, start := start + length]
        header[name] = {"dtype": kind, "shape": claim, "data_offsets": place}
    text, numbers = json.dumps(header).encode(), np.array([1, 2]).tobytes()
    data = bytes(min(size, 1000)) + b"ab" + 2 * numbers
    return len(text).to_bytes(8, "little") + text + data


def labels(point: int, order: str) -> dict[str, np.ndarray]:
    y = np.array([65, point], f"{order}u4").view(f"{order}U1")
    return {"X": np.ones((2, 2)), "y": y}


WIDE = pl.Series([1, 2**100], dtype=pl.Int128)
FACTS = {"damaged": '{"source": 5}', "deep": "[" * 9999, "list": "[]"}
ENCODER = '[run]\nmodel = "encoder"\n[encoder]\n'
FILES: dict[str, Content] = {
    "a[b]/text.txt": "a b c\n" * 9,
    "deep.toml": "a = " + "[" * 5000,
    "long.toml": "[tokens]\nwindow = " + "1" * 5000,
    "label.toml": f"{ENCODER}label = 5\n",
    "optimizer.toml": "[run]\nmodel = 'encoder'\noptimizer = 5\n",
    "surrogate.npz": labels(0xD800, "<"),
    "large.npz": labels(0x110000, ">"),
    "x.parquet": pl.DataFrame({"x": WIDE, "label": [1, 2]}),
    "label.parquet": pl.DataFrame({"x": [1.0, 2.0], "label": WIDE}),
    "f8.safetensors": safetensors("F8_E4M3", [2, 4], 8),
    "i32.safetensors": safetensors("I32", [2, 4], 32),
    f"{WORD}.parquet": packed(pl.DataFrame({"x": [1.0, 2.0], "label": [0, 1]})),
    f"{WORD}.npy": b"",
    f"{WORD}/text.txt": "a b c\n" * 9,
    **{f"{name}/config.toml": "" for name in FACTS},
    **{f"{name}/corpus.json": text for name, text in FACTS.items()},
}
WORDS = {
    "NEW": "train text.txt --workdir new",
    "ENCODER": "--model encoder",
    "CAFE": WORD,
    "VEC": "safetensors a",
}
TEXT = r"""
[B15]
train 'a[b]/text.txt' --workdir 'a[b]/run'
    `workdir` must be without *, ?, [ and \ in its name and those of the folders
    above it, which Orbax takes for wildcards, got …/a[b]/run.
[B18]
train text.txt --workdir CAFE/new
    `workdir` must be a path in UTF-8, got '…/caf\udce9/new': rename it, or give
    another.
train CAFE.parquet ENCODER
    A file of a table must be a path in UTF-8, got 'caf\udce9.parquet': rename it, or
    give another.
export run --to CAFE.parquet
    A parquet file must be a path in UTF-8, got 'caf\udce9.parquet': rename it, or
    give another.
neighbors CAFE.parquet a
    A parquet file must be a path in UTF-8, got 'caf\udce9.parquet': rename it, or
    give another.
embed encoder CAFE.npy
    FILE must be a path in UTF-8, got 'caf\udce9.npy': rename it, or give another.
[B22]
export run --to run/checkpoints/new.npz
    `to` must not be a file of a run, got run/checkpoints/new.npz in the run …/run:
    give another name.
export run --to run/../run/./model.npz
    `to` must not be a file of a run, got run/../run/model.npz in the run …/run:
    give another name.
export run --to run/Model.npz
    `to` must not be a file of a run, got run/Model.npz in the run …/run: give
    another name.
convert run/model.npz run/checkpoints --overwrite
    TARGET must not be a file of a run, got run/checkpoints in the run …/run: give
    another name.
[B8 B14]
NEW --config deep.toml
    deep.toml is not valid TOML: maximum recursion depth exceeded.
NEW --config long.toml
    long.toml is not valid TOML: Exceeds the limit (4300 digits) for integer string
    conversion: value has 5000 digits; use sys.set_int_max_str_digits() to increase
    the limit.
train examples.npz --config label.toml
    label.toml: `label` must be text, got 5.
train examples.npz --config optimizer.toml
    optimizer.toml: `optimizer` must be text, got 5.
[B12]
train surrogate.npz ENCODER
    surrogate.npz: labels must be valid Unicode, got code point in surrogate code
    point range(0xd800, 0xe000) in row 1.
train large.npz ENCODER
    large.npz: labels must be valid Unicode, got code point not in range(0x110000)
    in row 1.
[B11]
train x.parquet ENCODER
    x.parquet: columns must be numbers, or one of bytes, got x; name that of the
    labels by --label and that of names by --key.
train label.parquet ENCODER
    label.parquet: column `label` must be numbers or text, got Int128.
neighbors f8.VEC
    f8.safetensors is not a whole vectors file: `vectors` is of F8_E4M3: write
    float32.
neighbors i32.VEC
    i32.safetensors is not a whole vectors file: `matrix` must hold float16, float32
    or float64, got int32.
[B16]
train --workdir damaged
    damaged/corpus.json is damaged (`source` is 5): give another --workdir, or the
    corpus and --overwrite to start anew.
train --workdir deep
    deep/corpus.json is damaged (…): give another --workdir, or the corpus and
    --overwrite to start anew.
train --workdir list
    list/corpus.json is damaged ('list' object has no attribute 'get'): give another
    --workdir, or the corpus and --overwrite to start anew.
"""
ROWS = rows_of(TEXT, WORDS, FILES)
