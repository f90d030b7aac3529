"""Names and values of settings of earlier versions: flags, and runs that have them."""

import re
from pathlib import Path

import pytest

from embedder import config
from embedder.cli import main
from embedder.errors import InputError
from embedder.parsing import parse, settings
from embedder.run import inputs, loop
from embedder.vectors.export import read_vectors
from tests.commands import error_line

TOKENS = ["text.txt", "--loader", "memory", "--vector-size", "4", "--min-count", "2"]
TOKENS += ["--epochs", "3"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a b c d a c a b\n" * 400)


def settings_of(*flags: str):
    return settings(parse(["train", *flags]))


@pytest.mark.parametrize(
    ("former", "now"),
    [
        (["--cap", "7"], ["--max-pairs-per-row", "7"]),
        (["--cap=7"], ["--max-pairs-per-row", "7"]),
        (["--tables", "rows"], ["--table-sharding", "rows"]),
        (["--model", "tables"], ["--model", "tokens"]),
        (["--model=tables", "--cap=inf"], ["--max-pairs-per-row", "inf"]),
    ],
    ids=" ".join,
)
def test_former_flags_are_read(former, now):
    assert settings_of(*former) == settings_of(*now)


def test_a_value_like_a_former_one_stays_with_other_flags():
    assert settings_of("--best-by", "tables").tables.best_by.endswith("/tables")


@pytest.mark.parametrize("flags", [["--cap=1", "--max-pairs-per-row", "2"], []])
def test_both_flags_of_a_setting_are_refused(flags):
    flags = flags or ["--max_pairs_per_row", "2", "--cap", "1"]
    expected = "`--max-pairs-per-row` and its former name are both given"
    with pytest.raises(InputError, match=expected):
        parse(["train", *flags])


def test_messages_and_help_have_the_names_of_now(capsys):
    assert main(["train", "--cap", "0"]) == 2
    assert "`max_pairs_per_row` must be" in error_line(capsys)
    assert main(["train", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "--max-pairs-per-row" in printed and "{tokens,encoder}" in printed
    assert "--cap" not in printed and "--tables" not in printed


def test_a_flag_of_another_verb_keeps_its_message(capsys):
    assert main(["neighbors", "run", "a", "--cap", "3"]) == 2
    assert "Unknown option `--cap`" in error_line(capsys)


def former_toml(settings: config.Config) -> str:
    """`to_toml` of the version before the names changed."""
    text = config.to_toml(settings)
    for now, former in [
        ('optimizer = "sgd"\n', ""),
        ("[tokens]", "[tables]"),
        ('model = "tokens"', 'model = "tables"'),
        ("max_pairs_per_row", "cap"),
        ("table_sharding", "tables"),
    ]:
        assert now in text
        text = text.replace(now, former)
    return text


def test_a_run_of_the_version_before_resumes(stopped, monkeypatch, capsys):
    assert main(["train", *TOKENS, "--workdir", "whole"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(loop, "to_toml", former_toml)
        patch.setattr(inputs, "to_toml", former_toml)
        stopped(*TOKENS, "--workdir", "run")
    assert "[tables]" in Path("run/config.toml").read_text()
    assert main(["train", *TOKENS, "--workdir", "run", "--cap", "9"]) == 2
    assert re.search(r"`max_pairs_per_row` [\d.]+ there, 9.0 now", error_line(capsys))
    assert main(["train", "--workdir", "run"]) == 0
    assert "Resumes after" in capsys.readouterr().err
    found, whole = (read_vectors(Path(x, "vectors.txt")) for x in ("run", "whole"))
    assert (found.matrix == whole.matrix).all()


def test_a_finished_run_of_the_version_before_is_known(monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(loop, "to_toml", former_toml)
        patch.setattr(inputs, "to_toml", former_toml)
        assert main(["train", *TOKENS, "--workdir", "run"]) == 0
    assert main(["train", *TOKENS, "--workdir", "run"]) == 0
    assert "finished before" in capsys.readouterr().out
