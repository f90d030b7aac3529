"""The model file: tables, vocabulary and settings in one `.npz`, as `legacy` has it.

Members: `format` (bytes of a name and a version), `settings` (UTF-8 JSON of the
constructor's arguments), `block` i64[], `tokens` (UTF-8 bytes of all tokens),
`token_ends` i64[V], `counts` i64[V], `input` and `output` [V, D] and `loss_history`
f64[E]. With hierarchical softmax `output` is [V, D] of inner nodes if `negative` is 0,
else [2 V, D] of tokens and then of inner nodes; the last row is not used. Of Adagrad
also `input_accumulator` and `output_accumulator`, a number a row, and so for all that
an optimizer keeps for each row (`training.rules.RowArray`), and of tokens that were
given as integers `key_type`. With subwords also `subwords` [V + K, D], the rows of
words and of the buckets that they have, ascending; and with attributes the same, of
items and of attributes, and `attribute_keys`, `attribute_names` (as `tokens`, with
`..._ends`), `attribute_starts`, `attribute_rows`,
`attribute_num_known`. The settings `optimizer` of SGD, and
`hs`, `subwords` and `buckets` where they are off, are left out, as in files of earlier
versions, and so is `cbow_mean` where it is on. Nothing is pickled, and the checksums of
zip reveal damage.
"""

import json
import math
import zipfile
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from embedder.config import Config, current_name, options_of, with_options
from embedder.config.token_objectives import OPTIMIZERS
from embedder.config.token_options import TokensOptions
from embedder.data.vocabulary import Vocabulary
from embedder.disk.arrays import (
    pack_strings,
    read_stored_array,
    unpack_strings,
)
from embedder.disk.files import atomic_file, name_file_in_errors, short_reason
from embedder.engine.rules import RowRule, row_rule
from embedder.engine.state import TrainState
from embedder.errors import InputError, InputNotFoundError
from embedder.tokens.subwords import TABLE, ngram_rule, with_row_shapes
from embedder.tokens.train_step import (
    TABLES,
    RowState,
    row_state_names,
    state_shapes,
)
from embedder.vectors.attributes import AttributeRows, Attributes
from embedder.vectors.fasttext_bin import training_settings
from embedder.vectors.subwords import Ngrams, subwords_of

MODEL_SETTINGS = (
    *("vector_size", "window", "negative", "min_count", "sample", "ns_exponent"),
    *("alpha", "min_alpha", "epochs", "architecture", "seed", "workers", "block"),
    *("tile", "noise", "cap", "blocks_per_update", "dtype", "optimizer", "hs"),
    *("subwords", "buckets", "cbow_mean"),
)
"""Settings that a model file holds: the arguments of `EmbeddingTrainer`."""

_FORMAT = "embedder-table-model 1"
_ATTRIBUTES = "attribute_"  # first part of names of members
_MEMBERS = {
    "format": (np.uint8, 1),
    "settings": (np.uint8, 1),
    "block": (np.int64, 0),
    "tokens": (np.uint8, 1),
    "token_ends": (np.int64, 1),
    "counts": (np.int64, 1),
    "loss_history": (np.float64, 1),
}
"""Dtype and number of axes of each member but the tables."""


_OF_EARLIER_VERSIONS: dict[str, Any] = {
    **{"optimizer": "sgd", "hs": False, "subwords": (), "buckets": 2_000_000},
    "cbow_mean": True,
}
"""Settings that files of earlier versions lack, with the values that those have."""


KeyType = Literal["text", "integer"]


class ModelFile(NamedTuple):
    """The content of a model file."""

    settings: dict[str, Any]  # arguments of the constructor, as given
    block: int  # tokens of a block, resolved
    tokens: list[str]  # [V]
    counts: np.ndarray  # i64[V]
    input: np.ndarray  # [V, D]
    output: np.ndarray  # [V, D], with hierarchical softmax of other rows, see above
    loss_history: list[float]
    row_state: RowState = MappingProxyType({})  # of the optimizer
    key_type: KeyType = "text"  # what the tokens were given as
    subwords: np.ndarray | None = None  # [V + K, D], of which `input` is made
    attributes: Attributes | None = None  # whose rows the last K are; None: n-grams

    @property
    def options(self) -> TokensOptions:
        """Its settings, checked."""
        return with_options(Config(), **self.settings).tables

    @property
    def ngrams(self) -> Ngrams | None:
        """The rows of n-grams, for vectors of unknown words; None: there are none."""
        if self.subwords is None or self.attributes is not None:
            return None
        rule = ngram_rule(self.options)
        assert rule is not None, "there are rows of subwords"
        rows = self.subwords[len(self.tokens) :]
        buckets = subwords_of(self.tokens, rule).buckets
        return Ngrams(
            *(rule, buckets, rows, self.settings["seed"]),
            words=self.subwords[: len(self.tokens)],
            output=self.output[: len(self.tokens)],
            settings=training_settings(self.settings),
        )

    @property
    def attribute_rows(self) -> AttributeRows | None:
        """The rows of attributes, for vectors of unknown items; None: there are
        none."""
        if self.subwords is None or self.attributes is None:
            return None
        return AttributeRows(self.attributes, self.subwords[len(self.tokens) :])

    @property
    def token_output(self) -> np.ndarray | None:
        """The rows of tokens of the output table, [V, D]; None: hierarchical softmax
        alone has none."""
        has_rows = self.options.has_token_output
        return self.output[: len(self.tokens)] if has_rows else None


def model_settings(config: Config) -> dict[str, Any]:
    """The settings of `config` by their names in a model file, as `cap`."""
    options = options_of(config) | {"noise": config.tables.num_noise}
    return {name: options[current_name(name)] for name in MODEL_SETTINGS}


def shapes_of(
    config: Config, tokens: list[str], attributes: Attributes | None = None
) -> TrainState:
    """Shapes and dtypes of a state with a row for each of `tokens`.

    Args:
      attributes: that one of the tokens has.
    """
    options, rule = config.tables, row_rule(config.run.optimizer)
    shape = len(tokens), options.vector_size
    output_rows = len(tokens) * options.num_output_tables
    shapes = state_shapes(rule, shape, config.run.dtype, output_rows)
    if attributes is not None:
        return with_row_shapes(shapes, len(tokens) + attributes.num_known)
    if (ngrams := ngram_rule(options)) is None:
        return shapes
    return with_row_shapes(shapes, subwords_of(tokens, ngrams).num_rows)


def model_of_state(
    config: Config,
    vocabulary: Vocabulary,
    state: TrainState,
    losses: list[float],
    attributes: Attributes | None = None,
) -> ModelFile:
    """The model file of a run; `workers` is 1: those of `legacy` are processes.

    Args:
      config: resolved.
      losses: of all epochs.
    """
    assert config.tables.block is not None, "its settings are resolved"
    tables = state.params["tables"]
    return ModelFile(
        settings=model_settings(config) | {"workers": 1},
        block=config.tables.block,
        tokens=vocabulary.tokens,
        counts=vocabulary.counts,
        input=np.asarray(tables["input"]),
        output=np.asarray(tables["output"]),
        loss_history=losses,
        row_state=row_rule(config.run.optimizer).row_state(state.opt_state),
        subwords=tables.get(TABLE),
        attributes=attributes,
    )


def write_model(path: Path, model: ModelFile) -> None:
    """Writes `model` atomically: to a temporary file, which is renamed."""
    tokens, token_ends = pack_strings(model.tokens)
    members = {
        "format": text_bytes(_FORMAT),
        "settings": text_bytes(_to_json(model.settings)),
        "block": np.array(model.block, dtype=np.int64),
        "tokens": tokens,
        "token_ends": token_ends,
        "counts": model.counts,
        "input": model.input,
        "output": model.output,
        **model.row_state,
        **({} if model.subwords is None else {TABLE: model.subwords}),
        **(model.attributes.arrays(_ATTRIBUTES) if model.attributes else {}),
        "loss_history": np.array(model.loss_history, dtype=np.float64),
    }
    if model.key_type == "integer":
        members["key_type"] = text_bytes("integer")
    with atomic_file(path) as part, open(part, "wb") as file:
        np.savez(file, **members)  # type: ignore[arg-type]  # none is `allow_pickle`


def read_model(path: Path) -> ModelFile:
    """The model in a file of `write_model`.

    Raises:
      FileNotFoundError: there is no such file.
      InputError: it is not a model file, or damaged, or of another version.
    """
    if not path.exists():
        raise InputNotFoundError(f"Model file {path} does not exist.")
    try:
        with name_file_in_errors(path), zipfile.ZipFile(path) as archive:
            return _model(_read_members(archive))
    except Exception as error:  # a damaged zip raises nearly anything
        reason = short_reason(error)
        raise InputError(f"{path} is not a whole model file: {reason}.") from error


def _read_members(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    written = read_stored_array(archive, "format").tobytes()
    if written != _FORMAT.encode():
        raise InputError(f"its format is {written[:40]!r}, not {_FORMAT.encode()!r}")
    members = {name: read_stored_array(archive, name) for name in (*_MEMBERS, *TABLES)}
    settings = _from_json(members["settings"].tobytes())
    optimizer = settings["optimizer"]
    names = []
    if optimizer in OPTIMIZERS:  # else `_config` refuses it
        names += row_state_names(row_rule(optimizer))
    there = archive.namelist()  # of these `legacy` reads none
    attributes = [x.removesuffix(".npy") for x in there if x.startswith(_ATTRIBUTES)]
    if settings["subwords"] or attributes:
        names += [TABLE, *attributes]
    if "key_type.npy" in there:
        names.append("key_type")
    return members | {name: read_stored_array(archive, name) for name in names}


def _model(members: dict[str, np.ndarray]) -> ModelFile:
    for name, (dtype, ndim) in _MEMBERS.items():
        if members[name].dtype != dtype or members[name].ndim != ndim:
            raise InputError(f"`{name}` is {_described(members[name])}")
    config = _config(members["settings"].tobytes(), int(members["block"]))
    tokens = unpack_strings(members["tokens"], members["token_ends"])
    attributes = None
    if any(name.startswith(_ATTRIBUTES) for name in members):
        attributes = Attributes.of_arrays(members.__getitem__, _ATTRIBUTES)
    rule = row_rule(config.run.optimizer)
    _check_rows(members, shapes_of(config, tokens, attributes), tokens, rule)
    return ModelFile(
        settings=_from_json(members["settings"].tobytes()),
        block=int(members["block"]),
        tokens=tokens,
        counts=members["counts"],
        input=members["input"],
        output=members["output"],
        loss_history=members["loss_history"].tolist(),
        row_state={n: members[n] for n in row_state_names(rule)},
        key_type=_key_type(members.get("key_type"), tokens),
        subwords=members.get(TABLE),
        attributes=attributes,
    )


def _key_type(member: np.ndarray | None, tokens: list[str]) -> KeyType:
    if member is None:
        return "text"

    def is_integer(token: str) -> bool:
        digits = token.removeprefix("-")
        return digits.isascii() and digits.isdigit() and str(int(token)) == token

    if member.tobytes() != b"integer" or not all(map(is_integer, tokens)):
        raise InputError("`key_type` is not integer, or a token is none")
    return "integer"


def _config(data: bytes, block: int) -> Config:
    """The settings and the block of a file, checked."""
    settings = _from_json(data)
    if set(settings) != set(MODEL_SETTINGS):
        raise InputError("`settings` has other names than the arguments of a trainer")
    if settings["block"] not in (None, block):
        raise InputError(f"`block` is {block}, in its settings {settings['block']}")
    return with_options(Config(), **settings | {"block": block})


def _check_rows(
    members: dict[str, np.ndarray],
    shapes: TrainState,
    tokens: list[str],
    rule: RowRule,
) -> None:
    counts = members["counts"]
    if not tokens or "" in tokens or len(set(tokens)) < len(tokens):
        raise InputError("a token is empty, or occurs twice, or there is none")
    if len(counts) != len(tokens) or counts.min() < 1:
        raise InputError(f"`counts` must be {len(tokens)} numbers >= 1")
    tables = shapes.params["tables"]
    for name, shape in (tables | rule.row_state(shapes.opt_state)).items():
        if (actual := _described(members[name])) != _described(shape):
            raise InputError(f"`{name}` must be {_described(shape)}, got {actual}")
    for name in tables:
        if not np.isfinite(members[name]).all():
            raise InputError(f"`{name}` is not finite")
    for array in rule.row_arrays:
        for name in map(array.of, TABLES):
            values, least = members[name], array.minimum
            if not np.isfinite(values).all() or values.min() < least:
                bound = "" if least == -math.inf else f" >= {least:g}"
                raise InputError(f"`{name}` must be finite numbers{bound}")


def _described(array: np.ndarray | jax.ShapeDtypeStruct) -> str:
    return f"{array.dtype}{list(array.shape)}"


def text_bytes(text: str) -> np.ndarray:
    """A text in UTF-8, as an array."""
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _to_json(settings: dict[str, Any]) -> str:
    """Without those that files of earlier versions lack, with the values of these.

    JSON has no infinity: a cap that is off is the string "inf".
    """
    left_out = {k for k, v in _OF_EARLIER_VERSIONS.items() if settings.get(k) == v}
    left_out -= {"buckets"}
    if not settings.get("subwords"):
        left_out |= {"buckets"}
    written = {k: v for k, v in settings.items() if k not in left_out}
    return json.dumps({k: "inf" if v == math.inf else v for k, v in written.items()})


def _from_json(data: bytes) -> dict[str, Any]:
    settings = json.loads(data)
    if not isinstance(settings, dict):
        raise InputError("`settings` is no JSON object")
    settings = {k: math.inf if v == "inf" else v for k, v in settings.items()}
    settings = _OF_EARLIER_VERSIONS | settings
    if isinstance(settings["subwords"], list):
        settings["subwords"] = tuple(settings["subwords"])
    return settings
