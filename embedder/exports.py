"""The verb `export`: vectors, networks and predictions of a run for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from embedder.arguments import Export
from embedder.cards import card_lines, card_path, write_card
from embedder.errors import InputError, naming
from embedder.lookup.found import warn_without_names
from embedder.results import (
    ensemble_of,
    finished_run,
    is_encoder_run,
    key_type_of,
    needs_replicas,
    opened_run,
    vectors_of,
    with_key_type,
)
from embedder.terminal import say_done, shown

if TYPE_CHECKING:
    import polars as pl

    from embedder.encoders.commands import EncoderExport
    from embedder.vectors.vectors import Vectors

_NETWORKS: dict[str, Literal["onnx", "stablehlo"]] = {
    ".onnx": "onnx",
    ".stablehlo": "stablehlo",
}
"""Formats of networks by their endings."""
_OTHERS = "--replicas, --stability, --predictions nor --parameters"


def export(args: Export) -> None:
    """Writes what is asked for, and prints what was written."""
    from embedder.run.workdir import check_target

    check_target(args.to, "`to`")
    if args.card:
        check_target(card_path(args.to), "`card`")
    flags = args.replicas, args.predictions, args.parameters, args.stability is not None
    if sum(flags) > 1:
        raise InputError(
            "Give one of --replicas, --stability N, --predictions and --parameters."
        )
    _check_format(args, is_vectors=not any(flags))
    with opened_run(args.run, with_model=_of_encoder(args) is not None) as run:
        about = _export(args, run)
        if args.card and not args.to.is_dir():
            write_card(args, run, about)


def _check_format(args: Export, *, is_vectors: bool) -> None:
    """Refuses a format that is unknown, and options that other exports lack."""
    given = {"format": args.format, "dtype": args.dtype, "pca": args.pca}
    for name, value in given.items():
        if value is not None and not is_vectors:
            raise InputError(f"`{name}` goes with neither {_OTHERS}, got {value!r}.")
    if not is_vectors:
        return
    network = _network(args)
    if network is None:
        if args.format is not None:
            from embedder.vectors.export import format_of

            with naming("to"):
                format_of(args.to, args.format, also=_NETWORKS.values())
        return
    if not args.to.name.lower().endswith(f".{network}"):
        raise InputError(
            f"`to` must end in .{network} with `format` {network}, got {args.to}."
        )
    for name in ("dtype", "pca"):
        if given[name] is not None:
            raise InputError(
                f"`{name}` applies only to vectors, got {given[name]!r} with .{network}"
            )


def _network(args: Export) -> Literal["onnx", "stablehlo"] | None:
    """The format of a network that is asked for; None: it is none."""
    if args.format is None:
        return _NETWORKS.get(args.to.suffix.lower())
    return _NETWORKS.get(f".{args.format}")


def _of_encoder(args: Export) -> "EncoderExport | None":
    """What is written by the model of an encoder; None: what runs of tables have."""
    if args.predictions:
        return "predictions"
    if args.parameters:
        return "parameters"
    if args.replicas:
        return "replicas"
    return _network(args) if args.stability is None else None


def _export(args: Export, run: Path) -> str:
    """Writes the file or folder; returns what it holds."""
    what, is_file = _of_encoder(args), finished_run(run) is None
    is_encoder = not is_file and is_encoder_run(run)
    if what == "predictions" and not is_encoder:
        raise InputError(
            f"`predictions` applies only to a run of an encoder, got {run}."
        )
    is_network = what in _NETWORKS.values()
    is_model = what == "parameters" or is_network  # of a run or an encoder file
    if is_model and not (is_file or is_encoder):
        argument = f"`to` .{what}" if is_network else "`parameters`"
        raise InputError(f"{argument} applies only to an encoder, got {run}.")
    if what is not None and (is_encoder or is_model):
        from embedder.encoders.commands import export

        if args.names is not None:
            raise InputError(
                "`names` goes with neither --predictions, --replicas, --parameters "
                "nor .onnx or .stablehlo."
            )
        return export(run, args.to, what)
    if args.replicas or args.stability is not None:
        return _export_ensemble(args, run)
    return _export_vectors(args, run, is_encoder)


def _export_vectors(args: Export, run: Path, is_encoder: bool) -> str:
    from embedder.disk.files import name_file_in_errors
    from embedder.vectors.export import check_columns, format_of, write_vectors
    from embedder.vectors.model_card import model_card
    from embedder.vectors.reduce import principal

    with naming("to"):
        found = format_of(args.to, args.format)
    if found.is_of_tokens and is_encoder:
        raise InputError(
            f"`format` {found.name} applies only to vectors of tokens, got the run of "
            f"an encoder {run}."
        )
    if args.names is not None:
        check_columns(args.to, args.format)
    if args.pca is not None and args.format == "fasttext-bin":
        raise InputError(
            f"`pca` does not go with `format` fasttext-bin, got {args.pca!r}: its "
            "vectors are made of n-grams."
        )
    full = with_key_type(vectors_of(run), run)
    vectors = full if args.pca is None else principal(full, args.pca)
    columns = _name_columns(args.names, vectors.keys)
    card = ""
    if found.is_folder:
        card = model_card(found.name, vectors, _facts(args, run, full))
    with name_file_in_errors(args.to), naming("to"):
        write_vectors(
            vectors,
            args.to,
            columns=columns,
            format=args.format,
            dtype=args.dtype,
            card=card,
        )
    say_done(f"{len(vectors):,} vectors in {shown(str(args.to))}")
    _say_kept(args, full, vectors)
    num, size = vectors.matrix.shape
    return f"{num} vectors of {size} numbers"


def _facts(args: Export, run: Path, full: "Vectors") -> list[str]:
    """Lines of a model card."""
    counts = None if full.counts is None else int(full.counts.sum())
    lines = card_lines(args, run, counts)
    if args.pca is not None:
        size = full.matrix.shape[1]
        lines.append(f"dimensions: {args.pca} principal components of {size}")
    if args.dtype is not None:
        lines.append(f"values: {args.dtype}")
    return lines


def _say_kept(args: Export, full: "Vectors", vectors: "Vectors") -> None:
    """Prints how many neighbours smaller vectors keep."""
    from embedder.vectors.reduce import kept_neighbors, rounded

    if args.pca is None and args.dtype is None:
        return
    kept = kept_neighbors(full, rounded(vectors, args.dtype))
    if kept is None:
        return
    before, after = full.matrix.shape[1], vectors.matrix.shape[1]
    dtype = args.dtype or vectors.matrix.dtype.name
    say_done(
        f"{100 * kept.share:.1f} % of the {kept.num_neighbors} nearest keys of "
        f"{kept.num_keys} are those of the full vectors ({dtype}, {after} of {before} "
        "dimensions)."
    )


def _name_columns(path: str | None, keys: list[str]) -> "pl.DataFrame | None":
    """The columns of --names, a row for each of `keys`."""
    if path is None:
        return None
    from embedder.tables.names import read_names

    names = read_names(path)
    warn_without_names(names, keys)
    return names.rows(keys)


def _export_ensemble(args: Export, run: Path) -> str:
    from embedder.disk.files import name_file_in_errors
    from embedder.vectors.ensemble_files import write_ensemble, write_stability
    from embedder.vectors.vectors import check_positive_integer

    if args.stability is not None:
        check_positive_integer("stability", args.stability)
    ensemble = ensemble_of(run, key_type_of(run))
    if ensemble is None:
        raise needs_replicas("`replicas`" if args.replicas else "`stability`", run)
    columns = _name_columns(args.names, ensemble.texts)
    with name_file_in_errors(args.to), naming("to"):
        if args.stability is None:
            write_ensemble(ensemble, args.to, columns=columns)
            num_replicas, num_tokens, _ = ensemble.vectors.shape
            done = f"{num_replicas} x {num_tokens} vectors"
        else:
            tokens = write_stability(ensemble, args.stability, args.to, columns=columns)
            done = f"stability of {len(tokens)} tokens"
    say_done(f"{done} in {shown(str(args.to))}")
    return done
