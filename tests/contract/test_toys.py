"""What a change costs: a toy of each kind is one function or class and one entry of a
table, and serves everywhere: in `train`, `evaluate` and `sweep`, and in the words that
a shell completes."""

import functools
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import haiku as hk
import jax
import numpy as np
import optax
import polars as pl
import pytest

import embedder
from embedder.cli.main import main
from embedder.config import settings, token_options
from embedder.config.encoder_options import NETWORKS, EncoderObjective, EncoderOptions
from embedder.config.encoder_options import OBJECTIVES as ENCODER_OBJECTIVES
from embedder.config.token_objectives import (
    ARCHITECTURES,
    OPTIMIZERS,
    Architecture,
    Optimizer,
)
from embedder.config.token_options import BEST_BY, TokensOptions
from embedder.data.examples import example_formats
from embedder.data.examples.examples import ExampleSet, Source, file_set, make_examples
from embedder.data.tables import table_formats
from embedder.encoders.networks.network import BaseNetwork, Draws, Model
from embedder.encoders.objectives import Softmax
from embedder.engine.rules import RowRule, scale_by_rate
from embedder.errors import InputError
from embedder.metrics.intervals import mean_estimates
from embedder.metrics.scores import NEEDS, SCORES, Score
from embedder.report.metrics import read_metrics
from embedder.tokens.skipgram import SKIPGRAM
from embedder.vectors import export
from embedder.vectors.vectors import Vectors
from tests.commands import error_line, run_python

WORDS = "a b c d e f g h i j"
SMALL = "--vector-size 4 --min-count 1 --epochs 2 --seed 3"
SCORED = "text.txt --min-count 1 --vector-size 4 --epochs 2 --loader memory"
PAIRS = "--pairs pairs.tsv"
ENCODER = "--model encoder --epochs 2 --seed 3"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A text, a similarity set, features, and a folder for runs."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(f"{WORDS}\n" * 30)
    Path("pairs.tsv").write_text("a\tb\t1\na\tc\t2\nb\td\t3\n")
    x = np.random.default_rng(0).random((24, 3), np.float32)
    np.savez("features.npz", X=x, y=np.array(["n", "p"])[(x[:, 0] > 0.5) * 1])


@pytest.fixture
def values_of(monkeypatch):
    """Makes the values of a field those of its table, as importing it does."""

    def read_again(section: type, field: str, name: str) -> None:
        values = get_args(section.__annotations__[field])
        kind: Any = Literal[(*values, name)]
        monkeypatch.setitem(section.__annotations__, field, kind)
        monkeypatch.setattr(section.__dataclass_fields__[field], "type", kind)
        settings._choices.cache_clear()

    yield read_again
    monkeypatch.undo()
    settings._choices.cache_clear()


def run(command: str) -> None:
    assert main(command.split()) == 0


def swept(space: str, command: str) -> list[dict[str, Any]]:
    """The trials of a sweep, in the order of their numbers."""
    Path("space.toml").write_text(space)
    run(f"sweep space.toml {command} --workdir sweep")
    return pl.read_csv("sweep/trials.csv").sort("trial").to_dicts()


def evaluated(capsys, command: str) -> dict[str, Any]:
    """What `evaluate` prints of a file, or of an encoder."""
    capsys.readouterr()
    run(f"evaluate {command} --json")
    return json.loads(capsys.readouterr().out)


def completed(capsys, words: str) -> list[str]:
    """What a shell completes after a verb and a flag."""
    capsys.readouterr()
    run("--print-completion bash")
    name = words.replace("-", "_").replace(" ", "_")
    line = f"_shtab_embedder_{name}_choices=("
    (found,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith(line))
    return found.removeprefix(line).removesuffix(")").split()


def here(name: str) -> str:
    return f"{__name__}:{name}"


def vectors_of(path: str) -> np.ndarray:
    return embedder.read_vectors(path).matrix


def double_loss(*given, **by_name) -> jax.Array:
    return 2 * SKIPGRAM.loss(*given, **by_name)


TWICE = SKIPGRAM._replace(loss=double_loss, kernel=None)


def test_an_architecture(monkeypatch, values_of, capsys):
    """Its rate is half of skip-gram's: so its vectors are nearly those of skip-gram."""
    toy = Architecture(here("TWICE"), "contexts", lambda num_contexts: 0.5)
    monkeypatch.setitem(ARCHITECTURES, "twice", toy)
    values_of(TokensOptions, "architecture", "twice")
    train = f"train text.txt {SMALL} --min-alpha 0 --max-pairs-per-row inf --holdout .1"
    run(f"{train} --workdir one")
    run(f"{train} --workdir two --architecture twice")
    np.testing.assert_allclose(vectors_of("two"), vectors_of("one"), rtol=1e-3)
    run("neighbors two a")
    assert evaluated(capsys, "two --pairs pairs.tsv")["counts"]["pairs"] == 3
    trials = swept('architecture = ["twice"]', f"{SCORED} --score pairs {PAIRS}")
    assert [each["architecture"] for each in trials] == ["skipgram", "twice"]
    assert "twice" in completed(capsys, "train --architecture")
    given = {"vector_size": 4, "min_count": 1, "seed": 3}
    trainer = embedder.EmbeddingTrainer(architecture="twice", **given)
    trainer.fit([WORDS.split()] * 30)
    trainer.save("model.npz")
    assert embedder.EmbeddingTrainer.load("model.npz").architecture == "twice"
    capsys.readouterr()
    refused = f"{train} --workdir three --architecture twice --backend numba"
    assert main(refused.split()) == 2
    assert "`backend` must be 'xla' with `architecture` 'twice'" in error_line(capsys)


def descent() -> RowRule:
    return RowRule(optax.chain(scale_by_rate()), sums_rows=False)


def test_a_row_rule(monkeypatch, capsys):
    """SGD without a limit is that of `max_pairs_per_row` inf."""
    toy = Optimizer(here("descent"), limits_pairs=False, alpha=0.05)
    monkeypatch.setitem(OPTIMIZERS, "descent", toy)
    train = f"train text.txt {SMALL}"
    run(f"{train} --workdir one --optimizer descent")
    run(f"{train} --workdir two --alpha 0.05 --max-pairs-per-row inf")
    np.testing.assert_allclose(vectors_of("one"), vectors_of("two"), rtol=1e-6)
    run("neighbors one a")
    assert evaluated(capsys, "one --pairs pairs.tsv")["counts"]["pairs"] == 3
    space = 'optimizer = ["sgd", "descent"]\nseed = [1, 2]'
    trials = swept(space, f"{SCORED} --score pairs {PAIRS}")
    assert [each["optimizer"] for each in trials].count("descent") == 2
    capsys.readouterr()
    assert main(f"{train} --workdir three --optimizer ascent".split()) == 2
    known = "must be 'sgd' or 'adagrad' or 'descent', got 'ascent'"
    assert known in error_line(capsys)


@dataclass(frozen=True, kw_only=True)
class OneLayer(BaseNetwork):
    name = "one-layer"
    needs_keys = False
    width: int = 5

    @property
    def hidden_size(self) -> int:
        return self.width

    def hidden(self, draws: Draws):
        layer = hk.Linear(self.width, w_init=draws, name="one")
        return lambda x, use: jax.nn.relu(layer(x.reshape(len(x), -1)))


def test_a_network(monkeypatch, values_of, capsys):
    monkeypatch.setitem(NETWORKS, "one-layer", here("OneLayer"))
    values_of(EncoderOptions, "network", "one-layer")
    network = "--network one-layer --network-args width=6 --validation-fraction 0.25"
    run(f"train features.npz {ENCODER} {network} --workdir new")
    assert vectors_of("new").shape[1] == 6
    assert evaluated(capsys, "new --examples features.npz")["examples"] == 24
    trials = swept('network = ["one-layer"]', f"features.npz {ENCODER}")
    assert [each["network"] for each in trials] == ["mlp", "one-layer"]
    assert all(each["val_loss"] > 0 for each in trials)
    assert "one-layer" in completed(capsys, "sweep --network")
    run("neighbors new 0")
    encoder = embedder.FeatureEncoder.load("new/model.npz")
    assert encoder.network == "one-layer"
    assert encoder.transform(np.zeros((2, 3), np.float32)).shape == (2, 6)
    network = OneLayer(example_shape=(3,), num_classes=2)
    with pytest.raises(InputError, match="`network` one-layer have one order"):
        network.with_features(Model({}), [2, 0, 1])


@dataclass(frozen=True)
class Halved(Softmax):
    def terms(self, *given):
        found = super().terms(*given)
        return found._replace(losses=found.losses / 2)


def test_an_objective_of_encoders(monkeypatch, values_of, capsys):
    toy = EncoderObjective(here("Halved"))
    monkeypatch.setitem(ENCODER_OBJECTIVES, "halved", toy)
    values_of(EncoderOptions, "objective", "halved")
    train = f"train features.npz {ENCODER} --optimizer sgd --layers 3 4 2"
    run(f"{train} --workdir one --learning-rate 0.1")
    run(f"{train} --workdir two --learning-rate 0.2 --objective halved")
    np.testing.assert_allclose(vectors_of("two"), vectors_of("one"), rtol=1e-4)
    assert evaluated(capsys, "two --examples features.npz")["examples"] == 24
    trials = swept('objective = ["halved"]', f"features.npz {ENCODER}")
    assert [each["objective"] for each in trials] == ["softmax", "halved"]
    assert "halved" in completed(capsys, "train --objective")


def test_a_reader_of_tables(monkeypatch, capsys):
    """Sessions, names, the columns of names, sessions and word pairs to score, and
    sessions of a sweep are read from it."""

    def scan(paths):
        return pl.concat(pl.read_csv(path, separator="|") for path in paths).lazy()

    toy = table_formats.TableFormat("bars", (".bars",), scan)
    monkeypatch.setattr(table_formats, "FORMATS", (*table_formats.FORMATS, toy))
    rows = [f"{k}|{word}" for k in range(30) for word in WORDS.split()]
    Path("sales.bars").write_text("\n".join(["session|item", *rows]))
    Path("names.bars").write_text("key|name\na|first\nb|second")
    train = f"train sales.bars {SMALL} --names names.bars"
    run(f"{train} --workdir new")
    assert embedder.read_vectors("new").keys == WORDS.split()
    Path("pairs.bars").write_text("word1|word2|score\na|b|1\na|c|2\nb|d|3")
    flags = "--sessions sales.bars --pairs pairs.bars --json"
    capsys.readouterr()
    run(f"evaluate new {flags}")
    sessions, pairs = map(json.loads, capsys.readouterr().out.splitlines())
    assert (sessions["counts"]["sessions"], pairs["counts"]["pairs"]) == (30, 3)
    trials = swept("seed = [4]", f"sales.bars {SMALL} --score pairs --pairs pairs.bars")
    assert len(trials) == 2
    run("neighbors new b")
    assert "first" in capsys.readouterr().out
    trainer = embedder.EmbeddingTrainer(min_count=1, vector_size=4)
    assert len(trainer.fit("sales.bars").vectors) == 10


def test_a_reader_of_examples(monkeypatch, capsys):
    def read(paths: list[Path], decode: Any):
        lines = itertools.chain(*(path.read_text().splitlines() for path in paths))
        rows = [*map(str.split, lines)]
        features = np.array([row[1:] for row in rows], np.float32)
        return make_examples(features, np.array([row[0] for row in rows]), "rows")

    def open_rows(source: Source) -> ExampleSet | None:
        paths = source.files(".rows")
        read_paths = functools.partial(read, paths)
        return file_set(source, paths, read_paths) if paths else None

    toy = example_formats.Format("a file of rows", open_rows, (".rows",))
    monkeypatch.setattr(example_formats, "FORMATS", (*example_formats.FORMATS, toy))
    data = np.load("features.npz")
    rows = zip(data["y"], data["X"], strict=True)
    Path("few.rows").write_text("\n".join(" ".join(map(str, [y, *x])) for y, x in rows))
    run(f"train few.rows {ENCODER} --workdir one")
    run(f"train features.npz {ENCODER} --workdir two")
    np.testing.assert_array_equal(vectors_of("one"), vectors_of("two"))
    assert evaluated(capsys, "one --examples few.rows")["examples"] == 24
    trials = swept("seed = [4]", f"few.rows {ENCODER}")
    assert all(each["val_loss"] > 0 for each in trials) and len(trials) == 2


def test_a_format_of_vectors(monkeypatch, capsys):
    def write(vectors: Vectors, path: Path) -> None:
        lines = zip(vectors.keys, vectors.matrix.tolist(), strict=True)
        path.write_text("".join(f"{key}: {row}\n" for key, row in lines))

    def read(path: Path) -> Vectors:
        lines = [line.split(": ") for line in path.read_text().splitlines()]
        rows = [np.fromstring(row[1:-1], sep=",") for _, row in lines]
        return Vectors([key for key, _ in lines], np.array(rows, np.float32))

    toy = export.VectorFormat((".list",), write, read, "list")
    monkeypatch.setattr(export, "FORMATS", (*export.FORMATS, toy))
    run(f"train text.txt {SMALL} --workdir new")
    run("export new --to out.list")
    run("export new --to named.list --format list")
    np.testing.assert_array_equal(vectors_of("out.list"), vectors_of("new"))
    run("neighbors out.list a")
    run(f"train text.txt {SMALL} --workdir from --init-from out.list")
    shown = evaluated(capsys, "out.list --pairs pairs.tsv")
    assert shown["scores"] == evaluated(capsys, "new --pairs pairs.tsv")["scores"]
    flags = f"{SCORED} --score pairs {PAIRS} --init-from out.list"
    assert len(swept("seed = [4]", flags)) == 2
    capsys.readouterr()
    assert main("export new --to out.other".split()) == 2
    assert ".list" in error_line(capsys)


def gap(pairs, values, num, seed):
    """The mean distance of a cosine to a score of 0 to 1."""
    return mean_estimates(np.abs(values - pairs.scores)[:, np.newaxis], num, seed)


TOY_SCORE = Score("pairs", gap, ("gap",), ("mean gap",), "gap", sign=-1)


@pytest.fixture(autouse=True)
def same_scores():
    """The table of scores is as it was after each test."""
    before = [*SCORES]
    yield
    SCORES[:] = before


def test_a_score(capsys):
    SCORES.insert(0, TOY_SCORE)
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice([*"abcdefgh"], 9)) for _ in range(60)]
    Path("text.txt").write_text("\n".join(lines))
    Path("pairs.tsv").write_text("a\tb\t0.9\nb\tc\t0.1\nc\td\t0.5\n")
    flags = "--best-by pairs.tsv --result best --workdir run"
    assert main(["train", *f"{SCORED} {flags}".split()]) == 0
    shown = evaluated(capsys, "run --pairs pairs.tsv")
    assert [*shown["scores"]] == ["mean gap", "Spearman", "Pearson"]
    gaps = {x: y["mean gap"]["value"] for x, y in shown["baselines"].items()}
    is_better = min(gaps.values()) < shown["scores"]["mean gap"]["value"]
    assert ("mean gap" in shown["better_baselines"]) == is_better
    flags = f"{SCORED} --score gap {PAIRS}"
    trials = swept("alpha = [0.01, 1.0]", flags)
    assert json.loads(Path("sweep/trials.jsonl").read_text().splitlines()[0])["scores"]
    best = min(trials, key=lambda trial: trial["gap"])["alpha"]
    assert f"alpha = {best}" in Path("sweep/best.toml").read_text().splitlines()
    assert "gap" in completed(capsys, "sweep --score")
    lines = map(json.loads, Path("run/metrics.jsonl").read_text().splitlines())
    found = [line["gap"] for line in lines]
    kept = json.loads(Path("run/scores.json").read_text())
    assert kept["gap"]["vectors"][0] == pytest.approx(min(found), abs=1e-6)
    assert kept["gap"]["vectors"][0] == shown["scores"]["mean gap"]["value"]
    assert {*kept["gap"]} == {"vectors", "frequency", "co-occurrence"}
    assert read_metrics(Path("run/metrics.jsonl")).has_held_out
    SCORES.remove(TOY_SCORE)
    assert "gap" not in completed(capsys, "sweep --score")
    assert main(f"sweep space.toml {flags} --workdir sweep".split()) == 2
    assert "got 'gap'" in capsys.readouterr().err


def brier(data, predicted, num, seed):
    """The mean square of 1 less the probability of the label."""
    missed = 1 - np.exp(predicted.log_likelihood)
    return mean_estimates(missed[:, np.newaxis] ** 2, num, seed)


def test_a_score_of_predictions(capsys):
    """`evaluate` and the report of an encoder have it."""
    SCORES.append(Score("predictions", brier, ("brier",), ("Brier score",), sign=-1))
    run(f"train features.npz {ENCODER} --validation-fraction 0.5 --workdir new")
    shown = evaluated(capsys, "new")
    assert 0 < shown["brier"] < 1
    assert shown["intervals"]["brier"]["lower"] < shown["brier"]
    run("evaluate new")
    assert f"{'Brier score':<30}{shown['brier']:7.4f} [" in capsys.readouterr().out
    assert f"{shown['brier']:.4f} [" in Path("new/report.html").read_text()


SETTING = '''
    colour: Literal["red", "blue"] = setting(
        "red", refusals=(Refusal(lambda s: s.wheels > 3, "`{name}` got {value!r}."),)
    )
    """Colour of the toy."""
    wheels: int = setting(4, integer(1), formerly="rollers")
    """Number of wheels."""
'''
AFTER = '''    """Ignore tokens that occur less often than this."""
'''
WITH_SETTING = """
import os, sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location

class Finder:
    def find_spec(name, path, target=None):
        if name == "embedder.config.token_options":
            return spec_from_file_location(name, "token_options.py")

sys.meta_path.insert(0, Finder)
from embedder.cli.main import main
os.dup2(1, 2)
for command in sys.stdin:
    print("exit code", main(command.split()), flush=True)
"""


def test_a_setting():
    """A field, in a copy of its section, is all that it needs."""
    source = Path(token_options.__file__).read_text()
    assert source.count(AFTER) == 1
    Path("token_options.py").write_text(source.replace(AFTER, AFTER + SETTING))
    Path("space.toml").write_text('colour = ["red", "blue"]')
    commands = {
        "train --help": "--colour {red,blue} Colour of the toy. (default: red)",
        f"train text.txt {SMALL} --rollers=3 --colour blue --workdir new": "new: done.",
        "evaluate new --pairs pairs.tsv": "vectors by cosine",
        f"sweep space.toml {SCORED} --rollers 3 --score pairs {PAIRS}": "colour blue",
        "train --config new/config.toml --dry-run": 'colour = "blue"',
        "train --colour blue": "`colour` got 'blue'.",
        "train --colur red": "Unknown option `--colur`, did you mean `--colour`?",
        "train --wheels 0": "`wheels` must be an integer >= 1, got 0.",
        "--print-completion bash": "_sweep___colour_choices=(red blue)",
    }
    given = "\n".join(commands)
    done = run_python("-c", WITH_SETTING, input=given)
    found = re.split("exit code [02]\n", done.stdout)
    for (command, text), printed in zip(commands.items(), found, strict=False):
        assert text in " ".join(printed.split()), command
    assert vectors_of("new/vectors.safetensors").shape == (10, 4)


def test_the_settings_know_the_scores_of_held_out_tokens_items_and_edges():
    held_out = [x for x in SCORES if x.choice and x.need.holdout == "holdout"]
    assert {x.choice: x.need.of[0] for x in held_out} == BEST_BY
    assert {x.needs for x in SCORES} == {*NEEDS}
