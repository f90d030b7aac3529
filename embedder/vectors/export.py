"""Writes and reads files of vectors, in the format of the ending or of a name."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from embedder.disk.digests import write_digests
from embedder.disk.files import atomic_file, check_utf8_path, sync
from embedder.disk.folders import atomic_folder
from embedder.disk.workdir import Workdir
from embedder.errors import InputError, InputExistsError, InputNotFoundError
from embedder.vectors import array_formats as arrays
from embedder.vectors import fasttext_bin, word2vec
from embedder.vectors import other_programs as others
from embedder.vectors.key_rows import KeyErrors
from embedder.vectors.reduce import Dtype
from embedder.vectors.vectors import Vectors

if TYPE_CHECKING:
    import polars as pl


class VectorFormat(NamedTuple):
    """A file format of vectors; one entry in FORMATS is all that a new one needs."""

    endings: tuple[str, ...]  # of file names, in lower case
    write: Callable[..., None]
    """Writes `Vectors` to a new file, or into a new folder, at a `Path`; InputError if
    the format cannot hold a key or a value. Takes `columns` and `dtype` by name if the
    format has them, and a folder's `card`."""
    read: Callable[..., Vectors] | None = None
    """Reads an untrusted file at a `Path`; InputError if it is damaged. None: other
    programs do. Takes `key_errors` if keys are those of other programs."""
    name: str = ""
    """By which it can be asked for; "": by the ending alone."""
    is_folder: bool = False
    """Whether it is a folder of files, not one file."""
    needs_utf8_path: bool = False
    has_columns: bool = False
    """Whether it holds more columns than keys, counts and vectors."""
    dtypes: tuple[Dtype, ...] = ()
    """What values it can hold besides those of `Vectors`."""
    other_endings: tuple[str, ...] = ()
    """Endings that it has only by its name: without, they are of another format."""
    write_keys: Callable[[Vectors, Path], None] | None = None
    """Writes the keys to a file beside it, named by KEYS_ENDING; None: it holds them.
    """
    is_of_tokens: bool = False
    """Whether it is looked up by the tokens of texts, which examples are not."""
    has_key_errors: bool = False
    """Whether `read` takes `key_errors`."""


def _text(
    ending: str, *, is_glove: bool = False
) -> tuple[Callable[..., None], Callable[..., Vectors]]:
    """The writer and the reader of text."""
    is_gzip = ending.endswith(".gz")
    write = functools.partial(word2vec.write_text, is_gzip=is_gzip, is_glove=is_glove)
    return write, functools.partial(word2vec.read_text, is_gzip=is_gzip)


_SMALL: tuple[Dtype, ...] = ("float16", "int8")
_HALF: tuple[Dtype, ...] = ("float16",)  # torch averages no integers
KEYS_ENDING = ".keys.parquet"
FORMATS = (
    *(
        VectorFormat((ending,), *_text(ending), name, has_key_errors=True)
        for ending, name in (
            *((".txt", "word2vec"), (".vec", "fasttext")),
            *((".txt.gz", "word2vec"), (".vec.gz", "fasttext")),
        )
    ),
    VectorFormat(
        *((".bin",), word2vec.write_binary, fasttext_bin.read_bin, "word2vec-binary"),
        has_key_errors=True,
    ),
    VectorFormat(
        *((".safetensors",), arrays.write_safetensors, arrays.read_safetensors),
        name="safetensors",
        dtypes=_SMALL,
    ),
    VectorFormat((".npz",), arrays.write_npz, arrays.read_npz, "npz", dtypes=_SMALL),
    VectorFormat(
        *((".parquet",), arrays.write_parquet, arrays.read_parquet, "parquet"),
        needs_utf8_path=True,
        has_columns=True,
        dtypes=_SMALL,
    ),
    VectorFormat(
        *((), fasttext_bin.write_fasttext, None, "fasttext-bin"),
        other_endings=(".bin",),
        is_of_tokens=True,
    ),
    *(
        VectorFormat(
            *((), *_text(names[0], is_glove=True), "glove"),
            other_endings=names,
            has_key_errors=True,
        )
        for names in ((".txt", ".vec"), (".txt.gz", ".vec.gz"))
    ),
    *(
        VectorFormat((), write, None, name, True, dtypes=dtypes, is_of_tokens=True)
        for name, write, dtypes in (
            ("sentence-transformers", others.write_sentence_transformers, _HALF),
            ("model2vec", others.write_model2vec, _SMALL),
        )
    ),
    VectorFormat(
        *((".faiss",), others.write_faiss, None, "faiss"),
        dtypes=_HALF,
        write_keys=others.write_keys,
    ),
    VectorFormat(
        *((".sql",), others.write_sql, None, "pgvector"),
        has_columns=True,
        dtypes=_HALF,
    ),
)


def write_vectors(
    vectors: Vectors,
    path: str | os.PathLike[str],
    before_rename: Callable[[Path], None] = lambda temporary: None,
    *,
    columns: "pl.DataFrame | None" = None,
    format: str | None = None,
    dtype: Dtype | None = None,
    card: str = "",
) -> None:
    """Writes `vectors` atomically, in `format`, or in that of the ending of `path`.

    .txt, .vec (also .gz) and .bin are word2vec's: float32, no counts, no keys with
    white space. .safetensors and .npz hold `vectors` [V, D], `tokens` u8 (the keys in
    UTF-8, concatenated), `token_ends` i64[V] and, if there are counts, `counts` i64[V];
    .parquet the columns key, vector and count. These three detect damage. The other
    formats are for other programs: docs/reference/formats.md.

    Args:
      before_rename: called with the complete temporary file or folder.
      columns: more columns of a .parquet or .sql file, a row for each key; see
        `Names.rows`.
      format: see `format_names`.
      dtype: of the values; None: that of `vectors`.
      card: README.md of a folder; "": none is written.

    Raises:
      InputError: the ending or the format is unknown, or the format cannot hold a key,
        a value, `columns` or `dtype`.
      InputExistsError: there is a folder, or an index, at `path` already.
      OSError: the disk is full, say; an existing file at `path` stays.
    """
    form = format_of(path, format)
    options: dict[str, Any] = {}
    if columns is not None:
        check_columns(path, format)
        options["columns"] = columns
    if dtype is not None:
        _check_dtype(form, dtype)
        options["dtype"] = dtype
    if form.is_folder:
        options["card"] = card
    with _new(form, Path(path)) as temporary:
        form.write(vectors, temporary, **options)
        if form.write_keys is not None:
            with atomic_file(keys_path(path)) as part:
                form.write_keys(vectors, part)
        before_rename(temporary)


def read_vectors(
    path: str | os.PathLike[str], key_errors: KeyErrors = "strict"
) -> Vectors:
    """The vectors in a file that `write_vectors`, gensim, word2vec.c or GloVe wrote.

    Args:
      key_errors: see `KeyErrors`; only for text and .bin of word2vec, and GloVe.

    Raises:
      InputNotFoundError: the file does not exist.
      InputEndError: a word2vec file ends too early.
      InputError: the ending is unknown, or the file is damaged.
    """
    form = _by_ending(path, [each for each in FORMATS if each.read is not None])
    path = Path(path)
    if not path.is_file():
        raise InputNotFoundError(f"Vectors file {path} does not exist.")
    assert form.read is not None
    options = {"key_errors": key_errors} if form.has_key_errors else {}
    return form.read(path, **options)


def format_of(
    path: str | os.PathLike[str],
    name: str | None = None,
    also: Iterable[str] = (),
    *,
    by_ending: bool = False,
) -> VectorFormat:
    """The format with `name`; None: that of the ending of `path`.

    Args:
      also: names of formats of others than vectors, for the message.
      by_ending: whether the user can give no name, for the message.

    Raises:
      InputError: there is none, or `path` has another ending.
    """
    if name is None:
        other = "" if by_ending else "or `format` be given, "
        return _by_ending(path, [*FORMATS], other)
    named = [each for each in FORMATS if each.name == name]
    if not named:
        known = ", ".join((*format_names(), *also))
        raise InputError(f"`format` must be one of {known}, got {name!r}.")
    for each in named:
        known_endings = each.endings + each.other_endings
        if each.is_folder or os.fspath(path).lower().endswith(known_endings):
            return _usable(each, path)
    accepted = [x for each in named for x in each.endings + each.other_endings]
    raise InputError(
        f"`path` must end in {_either(accepted)} with `format` {name}, got "
        f"{os.fspath(path)!r}."
    )


def check_columns(path: str | os.PathLike[str], name: str | None = None) -> None:
    """Raises InputError unless the format of `path` has columns."""
    if not format_of(path, name).has_columns:
        able = [e for each in FORMATS if each.has_columns for e in each.endings]
        raise InputError(arrays.no_columns(path, able))


def endings() -> list[str]:
    """The endings of all formats that can be read."""
    return [ending for each in FORMATS if each.read for ending in each.endings]


def format_names() -> list[str]:
    """The names of all formats."""
    return [*dict.fromkeys(each.name for each in FORMATS if each.name)]


def keys_path(path: str | os.PathLike[str]) -> Path:
    """The file of the keys beside an index."""
    return Path(f"{os.fspath(path)}{KEYS_ENDING}")


def _by_ending(
    path: str | os.PathLike[str], formats: list[VectorFormat], other: str = ""
) -> VectorFormat:
    """The one of `formats` with the ending of `path`.

    Args:
      other: what else can be done, for the message.
    """
    for each in formats:
        if os.fspath(path).lower().endswith(each.endings):
            return _usable(each, path)
    known = [ending for each in formats for ending in each.endings]
    raise InputError(
        f"`path` must end in {_either(known)}, {other}got {os.fspath(path)!r}."
    )


def _usable(form: VectorFormat, path: str | os.PathLike[str]) -> VectorFormat:
    """`form`, if it can open `path`."""
    if form.needs_utf8_path:
        check_utf8_path(path, f"A {form.endings[0][1:]} file")
    return form


def _either(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _check_dtype(form: VectorFormat, dtype: Dtype) -> None:
    if dtype not in form.dtypes:
        able = [each.name for each in FORMATS if dtype in each.dtypes]
        others = f": {dtype} fits {_either(able)}" if able else ""
        raise InputError(
            f"`dtype` must fit `format` {form.name}, got {dtype!r}{others}."
        )


@contextmanager
def _new(form: VectorFormat, path: Path) -> Iterator[Path]:
    """A temporary file or folder that gets the name `path` when the body succeeds."""
    if form.is_folder or form.write_keys is not None:  # several files: not replaced
        if os.path.lexists(path):
            raise InputExistsError(
                f"`path` must be new with `format` {form.name}, got {path}: delete "
                "it, or give another name."
            )
    if not form.is_folder:
        with atomic_file(path) as temporary:
            yield temporary
        return
    if not path.absolute().parent.is_dir():
        raise InputNotFoundError(f"Folder {path.parent} does not exist.")
    with atomic_folder(path.absolute()) as temporary:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                sync(file)


def write_run_vectors(workdir: Workdir, vectors: Vectors) -> None:
    """Writes the checksums of all files, then the vectors: the run is finished."""

    def write_all_checksums(part: Path) -> None:
        others = {*workdir.files, *workdir.event_files} - {workdir.sums}
        paths = sorted({*others, workdir.vectors})
        write_digests(workdir.path, paths, temporary={workdir.vectors: part})

    write_vectors(vectors, workdir.vectors, before_rename=write_all_checksums)
