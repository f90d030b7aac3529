"""What a trainer consists of: its settings, what it has learned, and the file of both.

The file is one uncompressed `.npz`. Members, each an array without pickled objects:

    format        u8, "embedder-table-model 1"
    settings      u8, the settings as a JSON object; `cap` inf is "inf"
    block         i64[], tokens in a block
    tokens        u8, all tokens in UTF-8, one after the other
    token_ends    i64[V], the byte after the last of each token
    counts        i64[V]
    input, output [V, D], the tables
    loss_history  f64[epochs]

Of Adagrad alone, so that files of SGD are what they were before there was a choice:
the setting `optimizer`, and two members

    input_accumulator, output_accumulator [V], sums of mean squared gradients

Of hierarchical softmax alone: the setting `hs`. The rows of inner nodes are the last V
of `output`, which is [V, D] if `negative` is 0, else [2 V, D]; so is
`output_accumulator`. The last of these rows is not used.

Of subwords alone: the settings `subwords` and `buckets`, and a member

    subwords      [V + K, D], the rows of words and of the K buckets that they have

Of sums of contexts alone: the setting `cbow_mean`.
"""

import json
import math
import numbers
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from legacy.subwords import subwords

_FORMAT = b"embedder-table-model 1"
_MEMBERS = (
    "format",
    "settings",
    "block",
    "tokens",
    "token_ends",
    "counts",
    "input",
    "output",
    "loss_history",
)
_ACCUMULATORS = "input_accumulator", "output_accumulator"
_ADAGRAD_ALPHA = 0.2  # learning rate at the start, of both architectures


class _Rule(NamedTuple):
    type: type
    text: str
    holds: Callable[
        [Any, dict[str, Any]], bool
    ]  # of the value, and the settings so far
    optional: bool = False  # may be None


_COUNT = _Rule(int, "an integer >= 1", lambda x, _: x >= 1)

# In the order of their check: `negative`, `min_alpha` and `block` depend on those
# before them.
_RULES = {
    "hs": _Rule(bool, "True or False", lambda x, _: True),
    "cbow_mean": _Rule(bool, "True or False", lambda x, _: True),
    "vector_size": _COUNT,
    "window": _Rule(int, "an integer from 1 to 127", lambda x, _: 1 <= x <= 127),
    "negative": _Rule(
        int, "an integer >= 1, or 0 with `hs`", lambda x, s: x >= (0 if s["hs"] else 1)
    ),
    "min_count": _COUNT,
    "sample": _Rule(float, "a number from 0 to 1", lambda x, _: 0 <= x <= 1),
    "ns_exponent": _Rule(float, "a finite number", lambda x, _: math.isfinite(x)),
    "architecture": _Rule(
        str, "'skipgram' or 'cbow'", lambda x, _: x in ("skipgram", "cbow")
    ),
    "optimizer": _Rule(str, "'sgd' or 'adagrad'", lambda x, _: x in ("sgd", "adagrad")),
    "alpha": _Rule(
        float, "a finite number > 0", lambda x, _: 0 < x < math.inf, optional=True
    ),
    "min_alpha": _Rule(
        float,
        "a number from 0 to `alpha`",
        lambda x, s: (
            0
            <= x
            <= (
                s["alpha"]
                or default_alpha(
                    s["architecture"],
                    math.inf,
                    s["optimizer"],
                    num_summed=num_summed(s),
                )
            )
        ),
    ),
    "epochs": _Rule(int, "an integer >= 0", lambda x, _: x >= 0),
    "seed": _Rule(
        int, "an integer from 0 to 2**64 - 1", lambda x, _: 0 <= x <= 2**64 - 1
    ),
    "workers": _COUNT,
    "tile": _COUNT,
    "block": _Rule(
        int,
        "a positive multiple of `tile`",
        lambda x, s: x >= 1 and x % s["tile"] == 0,
        optional=True,
    ),
    "noise": _COUNT,
    "cap": _Rule(float, "a number > 0", lambda x, _: x > 0, optional=True),
    "blocks_per_update": _Rule(
        int, "an integer >= 1", lambda x, _: x >= 1, optional=True
    ),
    "dtype": _Rule(
        str, "'float32' or 'float64'", lambda x, _: x in ("float32", "float64")
    ),
    "subwords": _Rule(
        tuple,
        "two integers, MIN and MAX, with 1 <= MIN <= MAX <= 50",
        lambda x, _: (
            not x
            or (
                len(x) == 2
                and all(type(n) is int for n in x)
                and 1 <= x[0] <= x[1] <= 50
            )
        ),
    ),
    "buckets": _Rule(
        int, "an integer from 1 to 2147483647", lambda x, _: 1 <= x < 2**31
    ),
}


def _are_lengths(least: Any, most: Any) -> bool:
    is_integer = type(least) is int and type(most) is int
    return is_integer and 1 <= least <= most <= 50


class Model(NamedTuple):
    """What training makes."""

    tokens: list[str]  # [V]
    counts: np.ndarray  # i64[V]
    block: int  # tokens in a block
    tables: np.ndarray  # [2 or 3, V, D], see `update.State`
    loss_history: list[float]  # one for each epoch
    accumulators: np.ndarray | None = None  # [2 or 3, V], of Adagrad
    subwords: np.ndarray | None = None  # [V + K, D]


def num_output_tables(settings: dict[str, Any]) -> int:
    """Tables beside the input table: of tokens and of inner nodes, or one of them."""
    return bool(settings["negative"]) + settings["hs"]


def check_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as Python int, float, str or None; all names have to be there.

    Raises:
        TypeError, ValueError: a value breaks its rule, which the message says.
    """
    checked = {}
    for name, rule in _RULES.items():
        value = settings[name]
        if value is not None or not rule.optional:
            message = f"`{name}` must be {rule.text}, got {value!r}."
            value = _converted(value, rule.type, message)
            if not rule.holds(value, checked):
                raise ValueError(message)
        checked[name] = value
    if checked["optimizer"] != "sgd" and checked["cap"] is not None:
        raise ValueError(
            f"`cap` applies only to `optimizer` = 'sgd', got {checked['cap']!r}."
        )
    if checked["subwords"]:
        for name, value in (("optimizer", "sgd"), ("workers", 1)):
            if checked[name] != value:
                rule = f"`{name}` must be {value!r} with `subwords`"
                raise ValueError(f"{rule}, got {checked[name]!r}.")
    return checked


def default_alpha(
    architecture: str,
    row_updates: float,
    optimizer: str,
    epochs: int = 5,
    blocks_per_update: int = 1,
    num_summed: int = 0,
) -> float:
    """Learning rate at the start: rows with few updates want more.

    Skip-gram: 0.05 where a row gets 1,300 updates in all epochs (`row_updates` in one),
    falling with their number to the power -1/4, from 0.1 to 0.025. CBOW: four times
    that, since its gradient is divided by the number of contexts. That of a sum is not:
    a sum of `num_summed` contexts has the rate of skip-gram, less for more than 6.
    Updates of N blocks: N to the power 0.1 of that. Adagrad divides by the size of the
    gradients: one for all.
    """
    if optimizer == "adagrad":
        return _ADAGRAD_ALPHA
    updates = max(row_updates * (epochs or 5), 1)
    alpha = min(max(0.05 * (1300 / updates) ** 0.25, 0.025), 0.1)
    factor = {"skipgram": 1, "cbow": 4}[architecture]
    if num_summed:
        factor = min(6 / num_summed, 1)
    return factor * alpha * blocks_per_update**0.1


def num_summed(settings: dict[str, Any]) -> int:
    """Contexts in the sum of a token of CBOW, on average; 0: there are no sums."""
    has_sums = settings["architecture"] == "cbow" and not settings["cbow_mean"]
    return settings["window"] + 1 if has_sums else 0


def default_blocks_per_update(num_tokens: float, block: int) -> int:
    """Blocks in an update for a corpus of `num_tokens`.

    The largest power of two, at most 256, with which an epoch has at least 3,000
    updates.
    """
    most = num_tokens / (3000 * block)
    return 2 ** int(min(math.log2(max(most, 1)), 8))


def default_cap(alpha: float, tokens_per_update: int) -> float:
    """Cap in pair steps: above about 3 / alpha, updates diverge.

    Half of that, at most 128, or 64 when an update has more than 2048 tokens.
    """
    return min(1.6 / alpha, 128.0 if tokens_per_update <= 2048 else 64.0)


def write_model(
    path: str | os.PathLike, settings: dict[str, Any], model: Model
) -> None:
    """Writes a model file, at once or not at all."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Folder {path.parent.resolve()} does not exist.")
    encoded = [token.encode("utf-8") for token in model.tokens]
    members = {
        "format": _bytes(_FORMAT),
        "settings": _bytes(_to_json(settings)),
        "block": np.array(model.block, np.int64),
        "tokens": _bytes(b"".join(encoded)),
        "token_ends": np.cumsum([len(token) for token in encoded], dtype=np.int64),
        "counts": model.counts,
        "input": model.tables[0],
        "output": model.tables[1:].reshape(-1, model.tables.shape[2]),
    }
    if settings["optimizer"] == "adagrad":
        accumulators = adagrad_accumulators(model)
        members |= zip(
            _ACCUMULATORS, (accumulators[0], accumulators[1:].reshape(-1)), strict=True
        )
    if model.subwords is not None:
        members["subwords"] = model.subwords
    members["loss_history"] = np.array(model.loss_history, np.float64)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(unfinished, "wb") as file:
            np.savez(file, **members)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def adagrad_accumulators(model: Model) -> np.ndarray:
    """The accumulators [2 or 3, V] of `model`; zeros where Adagrad made no update."""
    if model.accumulators is not None:
        return model.accumulators
    return np.zeros(model.tables.shape[:2], model.tables.dtype)


def read_model(path: str | os.PathLike) -> tuple[dict[str, Any], Model]:
    """The settings and the model in a file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a whole model file.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"Model file {os.fspath(path)} does not exist.")
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _read_model(archive)
        except Exception as error:  # a damaged zip raises nearly anything
            reason = str(error).removesuffix(".")
            raise ValueError(
                f"{os.fspath(path)} is not a whole model file: {reason}."
            ) from error


def _converted(value: Any, kind: type, message: str) -> Any:
    abstract = {
        **{int: numbers.Integral, float: numbers.Real, str: str, bool: bool},
        tuple: list | tuple,
    }[kind]
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, abstract):
        raise TypeError(message)
    try:
        return kind(value)
    except OverflowError:  # an int beyond every float
        raise ValueError(message) from None


def _bytes(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8)


def _to_json(settings: dict[str, Any]) -> bytes:
    if math.isinf(settings["cap"] or 0):
        settings = settings | {"cap": "inf"}
    if settings["optimizer"] == "sgd":
        settings = {k: v for k, v in settings.items() if k != "optimizer"}
    if not settings["hs"]:
        settings = {k: v for k, v in settings.items() if k != "hs"}
    if not settings["subwords"]:
        left_out = "subwords", "buckets"
        settings = {k: v for k, v in settings.items() if k not in left_out}
    if settings["cbow_mean"]:
        settings = {k: v for k, v in settings.items() if k != "cbow_mean"}
    return json.dumps(settings).encode("utf-8")


def _read_model(archive: zipfile.ZipFile) -> tuple[dict[str, Any], Model]:
    members = {name: _read_member(archive, name) for name in _MEMBERS}
    if members["format"].tobytes() != _FORMAT:
        raise ValueError(f"its format is {members['format'].tobytes()[:40]!r}")
    settings = _settings(members["settings"])
    model = _model(members, settings)
    if settings["optimizer"] == "adagrad":
        found = {name: _read_member(archive, name) for name in _ACCUMULATORS}
        accumulators = _accumulators(found, settings["dtype"], model.tables.shape[:2])
        model = model._replace(accumulators=accumulators)
    if settings["subwords"]:
        rows = _read_member(archive, "subwords")
        num_rows = len(
            subwords(
                model.tokens, model.counts, settings["subwords"], settings["buckets"]
            ).buckets
        ) + len(model.tokens)
        shape = num_rows, settings["vector_size"]
        _check({"subwords": rows}, "subwords", settings["dtype"], shape)
        if not np.isfinite(rows).all():
            raise ValueError("`subwords` has values that are not finite")
        model = model._replace(subwords=rows)
    return settings, model


def _read_member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    if f"{name}.npy" not in archive.namelist():
        raise ValueError(f"it has no `{name}`")
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"`{name}` is compressed")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version != (1, 0):
            raise ValueError(f"`{name}` is an array of version {version}")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        # Before memory is asked for: the header may claim any shape.
        if math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise ValueError(f"`{name}` has a wrong size")
        member.seek(0)
        return np.lib.format.read_array(member, allow_pickle=False)


def _settings(member: np.ndarray) -> dict[str, Any]:
    settings = json.loads(member.tobytes().decode("utf-8"))
    if isinstance(settings, dict):
        of_earlier = {"optimizer": "sgd", "hs": False}
        of_earlier |= {"subwords": (), "buckets": 2_000_000, "cbow_mean": True}
        settings = of_earlier | settings
    if not isinstance(settings, dict) or set(settings) != set(_RULES):
        raise ValueError("`settings` has other names than the arguments of a trainer")
    if settings["cap"] == "inf":
        settings["cap"] = math.inf
    return check_settings(settings)


def _model(members: dict[str, np.ndarray], settings: dict[str, Any]) -> Model:
    tokens = _tokens(members["tokens"], members["token_ends"])
    num_tokens, size = len(tokens), settings["vector_size"]
    _check(members, "counts", "int64", (num_tokens,))
    _check(members, "block", "int64", ())
    _check(members, "loss_history", "float64", (members["loss_history"].size,))
    num_output = num_output_tables(settings) * num_tokens
    for name, num_rows in (("input", num_tokens), ("output", num_output)):
        _check(members, name, settings["dtype"], (num_rows, size))
        if not np.isfinite(members[name]).all():
            raise ValueError(f"`{name}` has values that are not finite")
    if members["counts"].min() < 1:
        raise ValueError("`counts` has counts below 1")
    block = int(members["block"])
    if block < 1 or block % settings["tile"] or settings["block"] not in (None, block):
        raise ValueError(f"`block` is {block}, which the settings contradict")
    tables = np.concatenate([members["input"], members["output"]])
    tables = tables.reshape(-1, num_tokens, size)
    history = members["loss_history"].tolist()
    return Model(tokens, members["counts"], block, tables, history)


def _accumulators(members, dtype: str, shape: tuple[int, int]) -> np.ndarray:
    num_tables, num_tokens = shape
    sizes = num_tokens, (num_tables - 1) * num_tokens
    for name, size in zip(_ACCUMULATORS, sizes, strict=True):
        _check(members, name, dtype, (size,))
        if not np.isfinite(members[name]).all() or members[name].min() < 0:
            raise ValueError(f"`{name}` has values that are not finite and >= 0")
    return np.concatenate([members[name] for name in _ACCUMULATORS]).reshape(shape)


def _check(members, name: str, dtype: str, shape: tuple[int, ...]) -> None:
    found = members[name]
    if found.dtype != np.dtype(dtype) or found.shape != shape:
        raise ValueError(
            f"`{name}` must be {dtype}{list(shape)}, "
            f"got {found.dtype}{list(found.shape)}"
        )


def _tokens(text: np.ndarray, ends: np.ndarray) -> list[str]:
    if text.dtype != np.uint8 or ends.dtype != np.int64 or ends.ndim != 1:
        raise ValueError("`tokens` or `token_ends` has a wrong type")
    starts = np.concatenate([[0], ends[:-1]])
    if not ends.size or ends[-1] != text.size or (ends < starts).any():
        raise ValueError("`token_ends` does not fit `tokens`")
    whole = text.tobytes()
    tokens = [whole[a:b].decode("utf-8") for a, b in zip(starts, ends, strict=True)]
    seen = {}
    for number, token in enumerate(tokens):
        if not token:
            raise ValueError(f"token {number} is empty")
        if seen.setdefault(token, number) != number:
            raise ValueError(f"tokens {seen[token]} and {number} are both {token!r}")
    return tokens
