"""What a training starts from, as settings and arguments name it.

A run or a model file to train on, and vectors of another, or of a file, for tokens of
the corpus. A run keeps what it has read of vectors and of keys to freeze as start.npz,
so that it resumes without their files.
"""

import hashlib
import itertools
import logging
import os
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from embedder.config import read_toml
from embedder.config.token_options import TokensOptions
from embedder.data.attribute_tables import read_kept
from embedder.data.tables.key_lists import read_keys
from embedder.data.vocabulary import Vocabulary, read_vocabulary
from embedder.disk.arrays import (
    npz_has,
    pack_strings,
    read_stored_array,
    unpack_strings,
)
from embedder.disk.copies import local_copy
from embedder.disk.files import atomic_file, short_reason
from embedder.disk.remote_run import copy_of_base
from embedder.disk.run_record import check_has_one_model, check_sound
from embedder.disk.urls import without_secrets
from embedder.disk.workdir import Workdir
from embedder.engine.checkpoints import Checkpoints, tree_of
from embedder.errors import InputError, InputNotFoundError
from embedder.tokens.artefact import (
    ModelFile,
    model_of_state,
    read_model,
    shapes_of,
    text_bytes,
)
from embedder.tokens.attribute_rows import attributes_with_base, known_attributes
from embedder.tokens.initialization import (
    FrozenKeys,
    Initialization,
    PretrainedVectors,
    common_ids,
)
from embedder.vectors.export import endings, read_vectors
from embedder.vectors.key_rows import KeyErrors
from embedder.vectors.vectors import Vectors

_log = logging.getLogger(__name__)
_FORMAT = b"embedder-start 1"
_MOST_KEY_BYTES = 2**30  # of a file of keys
_KEYS = 2**20  # that are read at a time


def check_one_start(options: TokensOptions, has_base: bool) -> None:
    """Refuses two starts, and frozen rows of none.

    Raises:
      InputError: the settings do not go together.
    """
    if options.init_from and has_base:
        raise InputError(
            "`init_from` and `resume` both name vectors to start from: give one of "
            "them."
        )
    _check_freeze(options.freeze, bool(options.init_from) or has_base)


def _check_freeze(freeze: str, has_start: bool) -> None:
    """Raises InputError for `freeze` known where no row is known."""
    if freeze == "known" and not has_start:
        raise InputError(
            "`freeze` known needs vectors to start from: give --init-from or --resume."
        )


def given_start(
    init_from: str | os.PathLike[str] | Vectors | ModelFile | None,
    freeze: str | Iterable[str | int],
    is_trained: bool = False,
) -> Initialization:
    """The start that the arguments of `EmbeddingTrainer.fit` name.

    Args:
      is_trained: a model goes on, whose tokens are known without `init_from`.

    Raises:
      InputError, OSError: as of the settings of these names.
    """
    vectors = frozen = None
    match init_from:
        case None:
            pass
        case Vectors():
            vectors = of_vectors(init_from, "the given vectors")
        case ModelFile():
            vectors = of_model(init_from, "the given trainer")
        case _:
            shown = without_secrets(os.fspath(init_from))
            vectors = _first_vectors(copy_of_base(os.fspath(init_from)), shown)
    if isinstance(freeze, str):
        _check_freeze(freeze, vectors is not None or is_trained)
        if freeze not in ("", "all", "known"):
            path = Path(local_copy(freeze))
            frozen = read_frozen_keys(path, without_secrets(freeze))
    else:
        frozen, freeze = of_keys(map(str, freeze), "keys"), "keys"
    return Initialization(vectors, frozen, freeze)


def read_start(
    options: TokensOptions, cache: Path | None, run: Workdir
) -> Initialization:
    """What `init_from` and `freeze` name; of a run that lost their files, what it kept.

    Raises:
      OSError, InputError: there are no such files, or they are damaged.
    """
    before = TokensOptions()
    if run.is_started and run.start.exists():
        config = read_toml(run.config)
        before = config.tables if config.run.model == "tokens" else before
    vectors = frozen = None
    if options.init_from:
        shown = without_secrets(options.init_from)
        path = copy_of_base(options.init_from, cache)
        if not path.exists() and before.init_from == shown:
            path = run.start
        _check_apart(run, path)
        if not path.exists():
            raise InputNotFoundError(
                "`init_from` must be a file of vectors, a model file or a run of "
                f"tables: {shown} does not exist."
            )
        vectors = _first_vectors(path, shown, options.key_errors)
    if options.freeze not in ("", "all", "known"):
        shown = without_secrets(options.freeze)
        path = Path(local_copy(options.freeze, cache))
        if not path.exists() and before.freeze == shown:
            path = run.start
        frozen = read_frozen_keys(path, shown)
    return Initialization(vectors, frozen, options.freeze)


def _check_apart(run: Workdir, path: Path) -> None:
    """Refuses vectors in the folder of the run, which would overwrite them."""
    real, here = path.resolve(), run.path.resolve()
    if here in (real, *real.parents) and real != run.start.resolve():
        raise InputError(
            f"`workdir` must be another folder than that of `init_from` {path}: give "
            "--workdir NEW."
        )


def read_base(path: Path, argument: str = "`resume`") -> ModelFile:
    """The model of a run, of an unfinished one that in its newest checkpoint, or the
    model in a file.

    Raises:
      OSError, InputError: there is none, or it is damaged; it names `argument`.
    """
    run = Workdir(path)
    if path.is_dir():
        check_has_one_model(run, argument)
        path = run.model
        if run.is_started and not path.exists():
            return _from_checkpoint(run, argument)
    if not path.exists():
        raise InputNotFoundError(
            f"{argument} must be a run of tables, or a model file: {path} does not "
            "exist."
        )
    if is_vectors_file(path):
        raise InputError(
            f"{argument} must be a run of tables, or a model file, got {path}: if it "
            f"has vectors, give --init-from {path} to start from them."
        )
    return read_model(path)


def _from_checkpoint(run: Workdir, argument: str) -> ModelFile:
    """The model in the newest checkpoint of an unfinished run.

    The run may have diverged after it.
    """
    stored = Checkpoints(run.checkpoints).newest()
    check_sound(run)
    if stored is None or "params.tables.input" not in stored.arrays:
        raise InputNotFoundError(
            f"{argument} must be a run of tables, got {run.path}, which is not "
            "finished and has no checkpoint of tables."
        )
    _log.info("%s is not finished: its checkpoint %d is used.", run.path, stored.step)
    config = read_toml(run.config)
    vocabulary = read_vocabulary(run.vocabulary)
    tokens = vocabulary.tokens
    base = read_model(run.base) if run.base.exists() else None
    before = [] if base is None else base.loss_history
    history = stored.facts["place"]["history"]
    new = read_kept(run.attributes) if run.attributes.exists() else None
    attributes = known_attributes(attributes_with_base(new, base), tokens)
    state = tree_of(stored.arrays, shapes_of(config, tokens, attributes))
    losses = before + [metrics[0] for metrics in history]
    return model_of_state(config, vocabulary, state, losses, attributes)


def model_digest(model: ModelFile) -> str:
    """SHA-256 of all that a run reads from a model, independent of its file."""
    arrays = [model.input, model.output]
    arrays += [] if model.subwords is None else [model.subwords]
    arrays += [*model.row_state.values(), np.array(model.loss_history)]
    attributes = model.attributes.digest if model.attributes else ""
    text = Vocabulary(model.tokens, model.counts).digest + attributes
    return _digest_of(arrays, text)


def _digest_of(arrays: Iterable[np.ndarray], text: str = "") -> str:
    digest = hashlib.sha256(text.encode())
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _first_vectors(
    path: Path, shown: str, key_errors: KeyErrors = "strict"
) -> PretrainedVectors:
    """The vectors of a run, a model file, or a file of vectors or that a run has kept.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: it is damaged, or has another format.
    """
    if path.is_dir():
        return of_model(read_base(path, "`init_from`"), shown)
    if (kind := _npz_format(path)) == _FORMAT:
        vectors = _read_start(path).vectors
        if vectors is None:
            raise InputError(f"`init_from` {shown} has no vectors.")
        return vectors._replace(shown=shown)
    if kind is not None:
        return of_model(read_model(path), shown)
    return of_vectors(read_vectors(path, key_errors), shown)


def of_vectors(vectors: Vectors, shown: str) -> PretrainedVectors:
    """`vectors` as those of the input table."""
    digest = _digest(vectors.keys, vectors.matrix)
    return PretrainedVectors(vectors.keys, vectors.matrix, None, shown, digest)


def of_model(model: ModelFile, shown: str) -> PretrainedVectors:
    """The input table of a model, and the output rows of its tokens."""
    digest = _digest(model.tokens, model.input, model.output)
    return PretrainedVectors(
        model.tokens, model.input, model.token_output, shown, digest
    )


def read_frozen_keys(path: Path, shown: str) -> FrozenKeys:
    """The keys in a list of keys, or in a file that a run has kept.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: it is damaged, no UTF-8 text, or has no key.
    """
    if not path.is_file():
        fault = "is no file on disk" if path.exists() else "does not exist"
        raise InputNotFoundError(
            "`freeze` must be all, known, or a file with a key a line, got "
            f"{shown!r}, which {fault}."
        )
    if _npz_format(path) == _FORMAT:
        frozen = _read_start(path).frozen
        if frozen is None:
            raise InputError(f"`freeze` {shown} has no keys.")
        return frozen._replace(shown=shown)
    if path.stat().st_size > _MOST_KEY_BYTES:
        raise InputError(f"`freeze` {shown} has more than {_MOST_KEY_BYTES} bytes.")
    _, batches = read_keys(path, _KEYS, f"`freeze` {shown}")
    return of_keys(itertools.chain.from_iterable(batches), shown)


def of_keys(keys: Iterable[str], shown: str) -> FrozenKeys:
    """`keys`, each once, in their order; InputError if there are none."""
    distinct = [*dict.fromkeys(keys)]
    if not distinct:
        raise InputError(f"`freeze` {shown} has no key.")
    return FrozenKeys(distinct, shown, _digest(distinct))


def is_vectors_file(path: Path) -> bool:
    """Whether a file has vectors alone: no .npz is of a model then."""
    name = path.name.lower()
    if name.endswith(".npz"):
        return npz_has(path, "vectors")
    return name.endswith(tuple(endings()))


def write_start(path: Path, start: Initialization, vocabulary: Vocabulary) -> None:
    """Writes what a run with this vocabulary needs of `start`, atomically."""
    members = {"format": np.frombuffer(_FORMAT, np.uint8)}
    if (vectors := start.vectors) is not None:
        _, numbers = common_ids(vocabulary.tokens, vectors.keys)
        keys = [vectors.keys[number] for number in numbers.tolist()]
        members |= _packed("keys", keys) | {"input": vectors.input[numbers]}
        if vectors.output is not None:
            members["output"] = vectors.output[numbers]
        members["sha256"] = text_bytes(vectors.sha256)
    if start.frozen is not None:
        members |= _packed("frozen", start.frozen.keys)
        members["frozen_sha256"] = text_bytes(start.frozen.sha256)
    with atomic_file(path) as part, open(part, "wb") as file:
        np.savez(file, **members)  # type: ignore[arg-type]  # none is `allow_pickle`


def _read_start(path: Path) -> Initialization:
    """What `write_start` wrote; InputError if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            members = {name: read_stored_array(archive, name) for name in names}
        return _start_of(members, str(path))
    except Exception as error:  # a damaged zip raises nearly anything
        reason = short_reason(error)
        raise InputError(f"{path} is not a whole start file: {reason}.") from error


def _start_of(members: dict[str, np.ndarray], shown: str) -> Initialization:
    vectors = frozen = None
    if "input" in members:
        keys = _unpacked("keys", members)
        checked = Vectors(keys, members["input"]).matrix
        output = members.get("output")
        if output is not None:
            output = Vectors(keys, output).matrix
        digest = members["sha256"].tobytes().decode()
        vectors = PretrainedVectors(keys, checked, output, shown, digest)
    if "frozen" in members:
        digest = members["frozen_sha256"].tobytes().decode()
        frozen = FrozenKeys(_unpacked("frozen", members), shown, digest)
    return Initialization(vectors, frozen)


def _npz_format(path: Path) -> bytes | None:
    """The member `format` of an .npz file; None: it has none, or is another file."""
    if path.suffix.lower() != ".npz":
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            if "format.npy" not in archive.namelist():
                return None
            return read_stored_array(archive, "format").tobytes()
    except Exception:  # a damaged zip raises nearly anything; its reader tells what
        return None


def _packed(name: str, keys: Sequence[str]) -> dict[str, np.ndarray]:
    text, ends = pack_strings(keys)
    return {name: text, f"{name}_ends": ends}


def _unpacked(name: str, members: dict[str, np.ndarray]) -> list[str]:
    return unpack_strings(members[name], members[f"{name}_ends"])


def _digest(keys: Sequence[str], *arrays: np.ndarray) -> str:
    text, ends = pack_strings(keys)
    return _digest_of((text, ends, *arrays))
