"""The verb `export`: vectors, networks and predictions of a run for other programs."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from embedder.api.results import (
    ensemble_of,
    finished_run,
    is_encoder_run,
    key_type_of,
    needs_replicas,
    opened_run,
    vectors_of,
    with_key_type,
)
from embedder.base.terminal import say_done, shown
from embedder.cli.arguments import Export
from embedder.cli.lookup.lookup import warn_without_names
from embedder.data.kept_names import keep_given, names_of
from embedder.disk.files import atomic_file, name_file_in_errors
from embedder.disk.run_record import corpus_facts_of
from embedder.disk.urls import without_secrets
from embedder.disk.workdir import check_target
from embedder.errors import InputError, naming
from embedder.run.facts import facts_of
from embedder.vectors.ensemble_files import write_ensemble, write_stability
from embedder.vectors.export import check_columns, format_of, write_vectors
from embedder.vectors.model_card import file_card, model_card
from embedder.vectors.reduce import kept_neighbors, principal, rounded
from embedder.vectors.vectors import Vectors, check_positive_integer

if TYPE_CHECKING:
    import polars as pl

_NETWORKS = "onnx", "stablehlo"
"""Formats of networks, which are their endings."""
_OTHERS = "--replicas, --stability, --predictions nor --parameters"


def export(args: Export) -> None:
    """Writes what is asked for, and prints what was written."""
    check_target(args.to, "`to`")
    if args.card:
        check_target(_card_path(args.to), "`card`")
    if args.unseen and (args.replicas or args.stability or args.predictions):
        raise InputError(
            "`unseen` goes with neither --replicas, --stability nor --predictions."
        )
    flags = args.replicas, args.predictions, args.parameters, args.stability is not None
    if sum(flags) > 1:
        raise InputError(
            "Give one of --replicas, --stability N, --predictions and --parameters."
        )
    _check_format(args, is_vectors=not any(flags))
    needs_model = args.unseen or _of_encoder(args) is not None
    with opened_run(args.run, with_model=needs_model) as run:
        about = _export(args, run)
        if args.card and not args.to.is_dir():
            _write_card(args, run, about)
        if args.names is not None:
            keep_given(run, args.names, names_of(run, args.names))


def _check_format(args: Export, *, is_vectors: bool) -> None:
    """Refuses a format that is unknown, and options that other exports lack."""
    flags = {"format": args.format, "dtype": args.dtype, "pca": args.pca}
    for name, value in flags.items():
        if value is not None and not is_vectors:
            raise InputError(f"`{name}` goes with neither {_OTHERS}, got {value!r}.")
    if not is_vectors:
        return
    network = _network(args)
    if network is None:
        if args.format is not None:
            with naming("to"):
                format_of(args.to, args.format, also=_NETWORKS)
        return
    if not args.to.name.lower().endswith(f".{network}"):
        raise InputError(
            f"`to` must end in .{network} with `format` {network}, got {args.to}."
        )
    for name in ("dtype", "pca"):
        if flags[name] is not None:
            raise InputError(
                f"`{name}` applies only to vectors, got {flags[name]!r} with .{network}"
            )


def _network(args: Export) -> str | None:
    """The format of a network that is asked for; None: it is none."""
    name = args.to.suffix.lower()[1:] if args.format is None else args.format
    return name if name in _NETWORKS else None


def _of_encoder(args: Export) -> str | None:
    """What is written by the model of an encoder; None: what runs of tables have."""
    for name in ("predictions", "parameters", "replicas"):
        if getattr(args, name):
            return name
    return _network(args) if args.stability is None else None


def _export(args: Export, run: Path) -> str:
    """Writes the file or folder; returns what it holds."""
    what, is_file = _of_encoder(args), finished_run(run) is None
    is_encoder = not is_file and is_encoder_run(run)
    if what == "predictions" and not is_encoder:
        raise InputError(
            f"`predictions` applies only to a run of an encoder, got {run}."
        )
    is_network = what in _NETWORKS
    is_model = what == "parameters" or is_network  # of a run or an encoder file
    if is_model and not (is_file or is_encoder):
        argument = f"`to` .{what}" if is_network else "`parameters`"
        raise InputError(f"{argument} applies only to an encoder, got {run}.")
    if what is not None and (is_encoder or is_model):
        if args.names is not None:
            raise InputError(
                "`names` goes with neither --predictions, --replicas, --parameters "
                "nor .onnx or .stablehlo."
            )
        return _export_encoder(run, args.to, what)
    if args.replicas or args.stability is not None:
        return _export_ensemble(args, run)
    return _export_vectors(args, run, is_encoder)


def _export_vectors(args: Export, run: Path, is_encoder: bool) -> str:
    with naming("to"):
        form = format_of(args.to, args.format)
    if form.is_of_tokens and is_encoder:
        raise InputError(
            f"`format` {form.name} applies only to vectors of tokens, got the run of "
            f"an encoder {run}."
        )
    if args.names is not None:
        check_columns(args.to, args.format)
    if args.pca is not None and args.format == "fasttext-bin":
        raise InputError(
            f"`pca` does not go with `format` fasttext-bin, got {args.pca!r}: its "
            "vectors are made of n-grams."
        )
    full = with_key_type(vectors_of(run, args.key_errors), run)
    if args.unseen:
        full = _with_unseen(full, run)
    vectors = full if args.pca is None else principal(full, args.pca)
    columns = None
    if args.names is not None or form.has_columns:
        columns = _name_columns(run, args.names, vectors.keys)
    facts = _facts(args, run, full) if form.is_folder else []
    card = model_card(form.name, vectors, facts) if form.is_folder else ""
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
    _say_kept_neighbors(args, full, vectors)
    num, size = vectors.matrix.shape
    return f"{num} vectors of {size} numbers"


def _with_unseen(vectors: Vectors, run: Path) -> Vectors:
    """The vectors, and those of items that only the table of attributes has."""
    if vectors.attributes is None:
        raise InputError(
            "`unseen` applies only to a run of one model that was trained with "
            f"--attributes, got {run}."
        )
    keys, rows = vectors.attributes().unseen(vectors.keys)
    counts = vectors.counts
    if counts is not None:
        counts = np.concatenate([counts, np.zeros(len(keys), counts.dtype)])
    matrix = np.concatenate([vectors.matrix, rows.astype(vectors.matrix.dtype)])
    return Vectors([*vectors.keys, *keys], matrix, counts, vectors.key_type)


def _facts(args: Export, run: Path, full: Vectors) -> list[str]:
    """Lines of a model card."""
    counts = None if full.counts is None else int(full.counts.sum())
    lines = _card_lines(args, run, counts)
    if args.pca is not None:
        size = full.matrix.shape[1]
        lines.append(f"dimensions: {args.pca} principal components of {size}")
    if args.dtype is not None:
        lines.append(f"values: {args.dtype}")
    return lines


def _say_kept_neighbors(args: Export, full: Vectors, vectors: Vectors) -> None:
    """Prints how many neighbours smaller vectors keep."""
    if args.pca is None and args.dtype is None:
        return
    neighbors = kept_neighbors(full, rounded(vectors, args.dtype))
    if neighbors is None:
        return
    before, after = full.matrix.shape[1], vectors.matrix.shape[1]
    dtype = args.dtype or vectors.matrix.dtype.name
    say_done(
        f"{100 * neighbors.share:.1f} % of the {neighbors.num_neighbors} nearest keys "
        f"of {neighbors.num_keys} are those of the full vectors ({dtype}, {after} of "
        f"{before} dimensions)."
    )


def _name_columns(
    run: Path, table: str | None, keys: list[str]
) -> "pl.DataFrame | None":
    """The columns of --names, or of the names of the run, a row for each of `keys`."""
    names = names_of(run, table)
    if names is None:
        return None
    if table is not None:
        warn_without_names(names, keys)
    return names.rows(keys)


def _export_ensemble(args: Export, run: Path) -> str:
    if args.stability is not None:
        check_positive_integer("stability", args.stability)
    ensemble = ensemble_of(run, key_type_of(run))
    if ensemble is None:
        raise needs_replicas("`replicas`" if args.replicas else "`stability`", run)
    columns = None
    if args.names is not None or args.to.suffix.lower() != ".safetensors":
        columns = _name_columns(run, args.names, ensemble.texts)
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


def _export_encoder(run: Path, to: Path, what: str) -> str:
    """Writes what the model of an encoder makes; returns what was written."""
    from embedder.encoders.predicted_labels import export_predictions, export_replicas
    from embedder.encoders.weights import (
        export_onnx,
        export_parameters,
        export_stablehlo,
    )

    with name_file_in_errors(to):
        match what:
            case "predictions":
                done = f"predictions of {export_predictions(run, to)} examples"
            case "replicas":
                num_networks, num_examples = export_replicas(run, to)
                done = f"{num_networks} x {num_examples} vectors"
            case "parameters":
                done = f"{export_parameters(run, to)} parameters"
            case _:
                (export_onnx if what == "onnx" else export_stablehlo)(run, to)
                done = "the network"
    say_done(f"{done} in {shown(str(to))}")
    return done


def _card_path(to: Path) -> Path:
    """The card beside the exported file `to`."""
    return to.with_name(f"{to.name}.README.md")


def _write_card(args: Export, run: Path, about: str) -> None:
    """Writes the card of the file that was exported from `run`.

    Args:
      about: what the file holds, as "9 vectors of 12 numbers".

    Raises:
      OSError, InputError: it cannot be written, or a file of the run is damaged.
    """
    path = _card_path(args.to)
    text = file_card(args.to.name, args.format, about, _card_lines(args, run))
    with name_file_in_errors(path), atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")


def _card_lines(
    args: Export, run: Path, num_occurrences: int | None = None
) -> list[str]:
    """Lines of a card about the run, and the command that exported it.

    Args:
      num_occurrences: of the tokens in the corpus; None: as the run knows.
    """
    lines = []
    workdir = finished_run(run)
    if workdir is not None and workdir.is_started:
        if num_occurrences is None and workdir.corpus.exists():
            known = corpus_facts_of(workdir).get("known_tokens")
            num_occurrences = None if known is None else int(known)
        lines = facts_of(workdir, num_occurrences)
    return [*lines, f"exported by: {_command(args)}"]


def _command(args: Export) -> str:
    """The command, with names of files without their folders."""
    words: list[str] = ["embedder", "export", Path(without_secrets(args.run)).name]
    words += ["--to", args.to.name]
    for name in ("format", "dtype", "pca", "stability"):
        value = getattr(args, name)
        words += [] if value is None else [f"--{name}", str(value)]
    if args.names is not None:
        words += ["--names", Path(without_secrets(args.names)).name]
    for name in ("unseen", "replicas", "predictions", "parameters", "card"):
        words += [f"--{name}"] if getattr(args, name) else []
    return shlex.join(words)
