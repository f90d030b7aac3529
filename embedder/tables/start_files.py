"""The files that `init_from` and `freeze` name, and start.npz.

A run keeps what it has read of both, as start.npz, so that it resumes without them.
"""

import hashlib
import os
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from embedder.disk.arrays import pack_strings, read_stored_array, unpack_strings
from embedder.disk.copies import local_copy
from embedder.disk.files import atomic_file, short_reason
from embedder.disk.urls import without_secrets
from embedder.errors import InputError, InputNotFoundError
from embedder.problem import copy_of_base
from embedder.run.workdir import Workdir
from embedder.tables.artefact import ModelFile, read_model
from embedder.tables.starting import FirstVectors, FrozenKeys, Starting, common_ids
from embedder.tables.vocabulary import Vocabulary
from embedder.vectors.export import endings, read_vectors
from embedder.vectors.vectors import Vectors

_FORMAT = b"embedder-start 1"
_MOST_KEY_BYTES = 2**30  # of a file of keys


def check_freeze(freeze: str, has_start: bool) -> None:
    """Raises InputError for `freeze` known where no row is known."""
    if freeze == "known" and not has_start:
        raise InputError(
            "`freeze` known needs vectors to start from: give --init-from or --resume."
        )


def given_start(
    init_from: str | os.PathLike[str] | Vectors | ModelFile | None,
    freeze: str | Iterable[str | int],
    is_trained: bool = False,
) -> Starting:
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
            path = copy_of_base(os.fspath(init_from))
            if path.is_dir():
                path = Workdir(path).model
            vectors = read_first_vectors(path, shown)
    if isinstance(freeze, str):
        check_freeze(freeze, vectors is not None or is_trained)
        if freeze not in ("", "all", "known"):
            path = Path(local_copy(freeze))
            frozen = read_frozen_keys(path, without_secrets(freeze))
    else:
        frozen, freeze = of_keys(map(str, freeze), "keys"), "keys"
    return Starting(vectors, frozen, freeze)


def read_first_vectors(path: Path, shown: str) -> FirstVectors:
    """The vectors in a file of vectors, a model file, or a file that a run has kept.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: it is damaged, or has another format.
    """
    kind = _npz_format(path)
    if kind == _FORMAT:
        found = _read_start(path).vectors
        if found is None:
            raise InputError(f"`init_from` {shown} has no vectors.")
        return found._replace(shown=shown)
    if kind is not None:
        return of_model(read_model(path), shown)
    return of_vectors(read_vectors(path), shown)


def of_vectors(vectors: Vectors, shown: str) -> FirstVectors:
    """`vectors` as those of the input table."""
    digest = _digest(vectors.keys, vectors.matrix)
    return FirstVectors(vectors.keys, vectors.matrix, None, shown, digest)


def of_model(model: ModelFile, shown: str) -> FirstVectors:
    """The input table of a model, and the output rows of its tokens."""
    digest = _digest(model.tokens, model.input, model.output)
    return FirstVectors(model.tokens, model.input, model.token_output, shown, digest)


def read_frozen_keys(path: Path, shown: str) -> FrozenKeys:
    """The keys in a UTF-8 text file with one a line, or in a file that a run has kept.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: it is no UTF-8 text, or has no key.
    """
    if not path.is_file():
        raise InputNotFoundError(
            "`freeze` must be all, known, or a file with a key a line, got "
            f"{shown!r}, which does not exist."
        )
    if _npz_format(path) == _FORMAT:
        found = _read_start(path).frozen
        if found is None:
            raise InputError(f"`freeze` {shown} has no keys.")
        return found._replace(shown=shown)
    if path.stat().st_size > _MOST_KEY_BYTES:
        raise InputError(f"`freeze` {shown} has more than {_MOST_KEY_BYTES} bytes.")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"`freeze` {shown} is not UTF-8 text: {error}.") from None
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return of_keys(filter(None, lines), shown)


def of_keys(keys: Iterable[str], shown: str) -> FrozenKeys:
    """`keys`, each once, in their order; InputError if there are none."""
    found = [*dict.fromkeys(keys)]
    if not found:
        raise InputError(f"`freeze` {shown} has no key.")
    return FrozenKeys(found, shown, _digest(found))


def is_vectors_file(path: Path) -> bool:
    """Whether a file has vectors alone: no .npz is of a model then."""
    name = path.name.lower()
    if name.endswith(".npz"):
        return _npz_has(path, "vectors")
    return name.endswith(tuple(endings()))


def write_start(path: Path, starting: Starting, vocabulary: Vocabulary) -> None:
    """Writes what a run with this vocabulary needs of `starting`, atomically."""
    members = {"format": np.frombuffer(_FORMAT, np.uint8)}
    if (given := starting.vectors) is not None:
        _, found = common_ids(vocabulary.tokens, given.keys)
        keys = [given.keys[number] for number in found.tolist()]
        members |= _packed("keys", keys) | {"input": given.input[found]}
        if given.output is not None:
            members["output"] = given.output[found]
        members["sha256"] = _text(given.sha256)
    if starting.frozen is not None:
        members |= _packed("frozen", starting.frozen.keys)
        members["frozen_sha256"] = _text(starting.frozen.sha256)
    with atomic_file(path) as part, open(part, "wb") as file:
        np.savez(file, **members)  # type: ignore[arg-type]  # none is `allow_pickle`


def _read_start(path: Path) -> Starting:
    """What `write_start` wrote; InputError if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            members = {name: read_stored_array(archive, name) for name in names}
        return _starting(members, str(path))
    except Exception as error:  # a damaged zip raises nearly anything
        reason = short_reason(error)
        raise InputError(f"{path} is not a whole start file: {reason}.") from error


def _starting(members: dict[str, np.ndarray], shown: str) -> Starting:
    vectors = frozen = None
    if "input" in members:
        keys = _unpacked("keys", members)
        checked = Vectors(keys, members["input"]).matrix
        output = members.get("output")
        if output is not None:
            output = Vectors(keys, output).matrix
        digest = members["sha256"].tobytes().decode()
        vectors = FirstVectors(keys, checked, output, shown, digest)
    if "frozen" in members:
        digest = members["frozen_sha256"].tobytes().decode()
        frozen = FrozenKeys(_unpacked("frozen", members), shown, digest)
    return Starting(vectors, frozen)


def _npz_has(path: Path, member: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{member}.npy" in archive.namelist()
    except Exception:  # a damaged zip raises nearly anything; its reader tells what
        return False


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


def _text(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def _digest(keys: Sequence[str], *arrays: np.ndarray) -> str:
    text, ends = pack_strings(keys)
    digest = hashlib.sha256()
    for array in (text, ends, *arrays):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
