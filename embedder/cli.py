"""The command line: `embedder train`, `neighbors`, `analogy`, `evaluate`, `export`.

Verbs are dataclasses that tyro reads; each has its work in `_VERB(args)`. What computes
is imported by the verb that needs it, so that `--help` answers at once.

Exit codes: 0 done, 2 wrong usage or input, 3 training failed, 130 interrupted.
"""

import argparse
import contextlib
import io
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from embedder.config import Config, DataConfig, ModelConfig, TrainConfig, read_toml

_Corpus = Annotated[
    tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[CORPUS]", name="corpus")
]
_Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
_Word = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORD")]


@dataclass(frozen=True)
class Train:
    """Train embeddings of the tokens of a text; no text: on the demo corpus."""

    corpus: _Corpus = None
    """A text file (.txt, .gz) with a sequence a line, a glob, or a folder."""
    workdir: Path | None = None
    """Folder of the run; none: embedder-NAME in this folder."""
    config: Path | None = None
    """TOML file of settings; flags go before it."""
    cache: Path | None = None
    """Folder of encoded corpora; none: cache in the workdir."""
    overwrite: bool = False
    """Start anew where there is a run."""
    dry_run: bool = False
    """Print what would be done, and do nothing."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True)
class Neighbors:
    """Print the tokens nearest to each word."""

    run: _Run
    """Folder of a run, or a file of vectors."""
    words: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="WORD...")
    ]
    """Tokens to look up."""
    topn: int = 10
    """How many for each."""


@dataclass(frozen=True)
class Analogy:
    """Print what C is to as A is to B."""

    run: _Run
    """Folder of a run, or a file of vectors."""
    a: _Word
    """As in man."""
    b: _Word
    """As in king."""
    c: _Word
    """As in woman."""
    topn: int = 10
    """How many answers."""


@dataclass(frozen=True)
class Evaluate:
    """Score vectors against human judgements and analogies."""

    run: _Run
    """Folder of a run, or a file of vectors."""
    pairs: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Similarity set: word1, word2 and score, by tabs. May be given again."""
    analogies: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Analogy questions in word2vec's form. May be given again."""
    restrict_vocab: int = 30_000
    """Ask and answer analogies among so many of the most frequent tokens."""


@dataclass(frozen=True)
class Export:
    """Write vectors in another format, told by the ending of the file."""

    run: _Run
    """Folder of a run, or a file of vectors."""
    to: Path
    """.txt or .vec (word2vec text, also .gz), .bin (word2vec binary), .safetensors,
    .npz, .parquet."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(_parse(arguments))
    except (OSError, ValueError, TypeError, EOFError, KeyError) as error:
        return _fail(_message(error), 2)
    except FloatingPointError as error:
        return _fail(str(error), 3)
    except KeyboardInterrupt:
        return _fail("Interrupted.", 130)


def _run(verb) -> int:
    match verb:
        case Train():
            _train(verb)
        case Neighbors():
            _neighbors(verb)
        case Analogy():
            _analogy(verb)
        case Evaluate():
            _evaluate(verb)
        case Export():
            _export(verb)
    return 0


def _parse(arguments: list[str]):
    """The verb that `arguments` name; leaves with exit code 2 and one line if none."""
    defaults = _config_file(arguments)
    train = Train(data=defaults.data, model=defaults.model, train=defaults.train)
    command = tyro.conf.subcommand
    verbs = (
        Annotated[Train, command("train", default=train)]
        | Annotated[Neighbors, command("neighbors")]
        | Annotated[Analogy, command("analogy")]
        | Annotated[Evaluate, command("evaluate")]
        | Annotated[Export, command("export")]
    )
    settings = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), _wide(arguments):
            return tyro.cli(
                verbs,
                prog="embedder",
                description="Trains embeddings of tokens, and answers from them.",
                args=arguments,
                config=settings,
            )
    except SystemExit as stop:
        if stop.code:
            print(f"embedder: {_one_line(errors.getvalue())}", file=sys.stderr)
        raise


def _config_file(arguments: list[str]) -> Config:
    """The settings in the file that --config names, which are defaults for the flags."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    with contextlib.suppress(argparse.ArgumentError, SystemExit):
        with contextlib.redirect_stderr(io.StringIO()):
            path = parser.parse_known_args(arguments)[0].config
        return Config() if path is None else read_toml(path)
    return Config()


@contextlib.contextmanager
def _wide(arguments: list[str]):
    """A very wide terminal, so that no error is broken into lines; not for help."""
    before = os.environ.get("COLUMNS")
    if not {"-h", "--help"} & set(arguments):
        os.environ["COLUMNS"] = "10000"
    try:
        yield
    finally:
        os.environ.pop("COLUMNS", None)
        if before is not None:
            os.environ["COLUMNS"] = before


def _one_line(box: str) -> str:
    """What tyro prints in a box, as one line: its first part without the frame."""
    lines = [line.strip("│╭╮╰╯─ ") for line in box.splitlines()[1:]]
    parts = []
    for line in lines:
        if not line and parts:
            break
        parts.append(line)
    text = " ".join(part for part in parts if part)
    return re.sub(r"^Error parsing __tyro\S+ ", "", text) or "wrong usage"


def _fail(message: str, code: int) -> int:
    print(f"embedder: {message}", file=sys.stderr)
    return code


def _message(error: Exception) -> str:
    """One line; KeyError puts its message in quotes, OSError has it in parts."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    text = str(error.args[0]) if error.args else type(error).__name__
    return " ".join(text.split("\n"))


def _train(args: Train) -> None:
    from embedder import run
    from embedder.progress import progress

    config = Config(data=args.data, model=args.model, train=args.train)
    if args.dry_run:
        print(run.dry_run(config, args.corpus, cache=args.cache))
        return
    corpus = run.open_corpus(args.corpus)
    workdir = args.workdir or Path(f"embedder-{corpus.name}")
    with progress() as on_status:
        vectors = run.train(
            config,
            workdir,
            args.corpus,
            cache=args.cache,
            overwrite=args.overwrite,
            on_status=on_status,
        )
    print(f"{len(vectors)} vectors of {config.model.vector_size} numbers in {workdir}")


def _read(path: Path):
    """The vectors of a run, or of a file."""
    from embedder.vectors.export import read_vectors
    from embedder.workdir import Workdir

    if not path.is_dir():
        return read_vectors(path)
    run = Workdir(path)
    if not run.is_finished:
        raise FileNotFoundError(
            f"{path} holds no finished run: {run.vectors} is missing."
        )
    return read_vectors(run.vectors)


def _neighbors(args: Neighbors) -> None:
    vectors = _read(args.run)
    if not args.words:
        raise ValueError("WORD: give at least one token to look up.")
    for word in args.words:
        _print_ranking(word, vectors.most_similar(word, topn=args.topn))


def _analogy(args: Analogy) -> None:
    answers = _read(args.run).analogy(args.a, args.b, args.c, topn=args.topn)
    _print_ranking(f"{args.a} : {args.b} = {args.c} : ?", answers)


def _print_ranking(title: str, ranking: list[tuple[str, float]]) -> None:
    print(title)
    for token, similarity in ranking:
        print(f"  {similarity:6.3f}  {token}")


def _evaluate(args: Evaluate) -> None:
    from embedder.vectors.evaluate import evaluate_analogies, evaluate_pairs

    if not args.pairs and not args.analogies:
        raise ValueError("Give at least one of --pairs FILE and --analogies FILE.")
    vectors = _read(args.run)
    for path in args.pairs:
        result = evaluate_pairs(vectors, path)
        print(
            f"{path.name}: Spearman {result.spearman:.3f}, Pearson {result.pearson:.3f}, "
            f"{result.num_used} of {result.num_pairs} pairs "
            f"({result.num_unknown} out of vocabulary)"
        )
    for path in args.analogies:
        result = evaluate_analogies(vectors, path, restrict_vocab=args.restrict_vocab)
        for section in (*result.sections, result.total):
            print(
                f"{path.name}: {section.name}: {100 * section.accuracy:.1f} %, "
                f"{section.num_correct} of {section.num_used} "
                f"({section.num_unknown} out of vocabulary)"
            )


def _export(args: Export) -> None:
    from embedder.vectors.export import write_vectors

    vectors = _read(args.run)
    write_vectors(vectors, args.to)
    print(f"{len(vectors)} vectors in {args.to}")


if __name__ == "__main__":
    sys.exit(main())
