"""A table model as one `.npz` file, of the form that `legacy` has.

Members: `format` (bytes of a name and a version), `settings` (UTF-8 JSON of the
constructor's arguments), `block` i64[], `tokens` (UTF-8 bytes of all tokens),
`token_ends` i64[V], `counts` i64[V], `input` and `output` [V, D] and `loss_history`
f64[E]. Nothing is pickled, and zip's checksums tell of damage.
"""

import json
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedder.files import pack_strings, read_member, unpack_strings, whole_file

MODEL_SETTINGS = (
    *("vector_size", "window", "negative", "min_count", "sample", "ns_exponent"),
    *("alpha", "min_alpha", "epochs", "architecture", "seed", "workers", "block"),
    *("tile", "noise", "cap", "blocks_per_update", "dtype"),
)
"""Settings that a model file holds: the arguments of `EmbeddingTrainer`."""

_FORMAT = "embedder-table-model 1"
_DTYPES = {
    "format": np.uint8,
    "settings": np.uint8,
    "block": np.int64,
    "tokens": np.uint8,
    "token_ends": np.int64,
    "counts": np.int64,
    "loss_history": np.float64,
}


class ModelFile(NamedTuple):
    """What the file holds."""

    settings: dict[str, Any]  # arguments of the constructor, as given
    block: int  # tokens of a block, resolved
    tokens: list[str]  # [V]
    counts: np.ndarray  # i64[V]
    input: np.ndarray  # [V, D]
    output: np.ndarray  # [V, D]
    loss_history: list[float]


def write_model(path: Path, model: ModelFile) -> None:
    """Writes `model` whole or not at all: to a temporary name, then renamed."""
    tokens, token_ends = pack_strings(model.tokens)
    members = {
        "format": _bytes(_FORMAT),
        "settings": _bytes(_to_json(model.settings)),
        "block": np.array(model.block, dtype=np.int64),
        "tokens": tokens,
        "token_ends": token_ends,
        "counts": model.counts,
        "input": model.input,
        "output": model.output,
        "loss_history": np.array(model.loss_history, dtype=np.float64),
    }
    with whole_file(path) as part, open(part, "wb") as file:
        np.savez(file, **members)


def read_model(path: Path) -> ModelFile:
    """The model in a file of `write_model`.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is not a model file, or not a whole one, or of another version.
    """
    if not path.exists():
        raise FileNotFoundError(f"Model file {path} does not exist.")
    try:
        members = _read_members(path)
        tokens = unpack_strings(members["tokens"], members["token_ends"])
        settings = _from_json(members["settings"].tobytes())
        _check_rows(members, tokens)
        _check_settings(settings, members)
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(f"{path} is not a whole model file: {error}.") from error
    return ModelFile(
        settings=settings,
        block=int(members["block"]),
        tokens=tokens,
        counts=members["counts"],
        input=members["input"],
        output=members["output"],
        loss_history=members["loss_history"].tolist(),
    )


def _read_members(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        found = read_member(archive, "format").tobytes()
        if found != _FORMAT.encode():
            raise ValueError(f"its format is {found[:40]!r}, not {_FORMAT.encode()!r}")
        names = (*_DTYPES, "input", "output")
        members = {name: read_member(archive, name) for name in names}
    for name, dtype in _DTYPES.items():
        if members[name].dtype != dtype:
            raise ValueError(f"`{name}` is {members[name].dtype}")
    return members


def _check_rows(members: dict[str, np.ndarray], tokens: list[str]) -> None:
    counts, input, output = (members[name] for name in ("counts", "input", "output"))
    if input.ndim != 2 or input.shape != output.shape or input.dtype != output.dtype:
        raise ValueError(
            f"`input` is {input.dtype}{list(input.shape)}, "
            f"`output` {output.dtype}{list(output.shape)}"
        )
    if not len(tokens) == len(counts) == len(input):
        raise ValueError(
            f"{len(tokens)} tokens, {len(counts)} counts and {len(input)} rows"
        )
    if len(set(tokens)) < len(tokens):
        raise ValueError("a token occurs twice")
    if not (np.isfinite(input).all() and np.isfinite(output).all()):
        raise ValueError("a table is not finite")


def _check_settings(settings: dict[str, Any], members: dict[str, np.ndarray]) -> None:
    if set(settings) != set(MODEL_SETTINGS):
        raise ValueError("`settings` has other names than the arguments of a trainer")
    input, block = members["input"], members["block"]
    made = [input.shape[1], input.dtype.name, block.tolist()]
    said = [settings["vector_size"], settings["dtype"], settings["block"] or made[2]]
    if made != said:
        raise ValueError(
            f"`vector_size`, `dtype` and `block` are {made}, in its settings {said}"
        )


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _to_json(settings: dict[str, Any]) -> str:
    """JSON has no infinity: a cap that is off is the string "inf"."""
    return json.dumps({k: "inf" if v == math.inf else v for k, v in settings.items()})


def _from_json(data: bytes) -> dict[str, Any]:
    settings = json.loads(data)
    if not isinstance(settings, dict):
        raise ValueError("`settings` is no JSON object")
    return {k: math.inf if v == "inf" else v for k, v in settings.items()}
