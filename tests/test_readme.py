"""The documents: examples run, commands parse, links resolve."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import commands, registry
from embedder.cli import parse
from embedder.config import FAMILIES, make_config, options_of

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SETTINGS = ROOT / "migration" / "docs" / "settings.md"
CHAPTERS = sorted(SETTINGS.parent.glob("*.md"))
GUIDE = ROOT / "migration" / "README.md"
ALGORITHM = ROOT / "embedder" / "ALGORITHM.md"
REFERENCES = [ALGORITHM, ROOT / "bench/README.md", ROOT / "migration/DECISIONS.md"]
DOCUMENTS = [README, *CHAPTERS, GUIDE, ROOT / "CHANGELOG.md", ROOT / "llms.txt"]
OTHER_NAMES = {"embedder", "legacy", "migration", "tests", "bench"}
"""Folders of the checkout whose paths documents name."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    """Code blocks of a document in `language`."""
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.M)


def prose(path: Path) -> str:
    """The document without its code blocks."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.M)


def lines_of_shell(path: Path) -> list[list[str]]:
    """Each shell command of a document, as words."""
    text = "\n".join(blocks(path, "shell")).replace("\\\n", " ")
    lines = (shlex.split(line, comments=True) for line in text.splitlines())
    return [words for words in lines if words]


def embedder_commands(path: Path) -> list[list[str]]:
    """Arguments of each `embedder` command in shell blocks and in the text."""
    found = []
    for words in lines_of_shell(path):
        for before, word in zip(["&&", *words], words, strict=False):
            if word == "embedder" and (before == "&&" or words[0] == "mpirun"):
                found.append(words[words.index(word) + 1 :])
    inline = re.findall(r"`embedder ([^`]* [^`]*)`", prose(path))
    found += [shlex.split(arguments) for arguments in inline]
    return [arguments for arguments in found if "--help" not in arguments]


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.M)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


def run(example: str, folder: Path) -> str:
    """What an example prints."""
    script = folder / "example.py"
    script.write_text(example, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder,
        env={
            "PYTHONPATH": str(ROOT),
            "PATH": "",
            "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


EXAMPLES = [
    pytest.param(example, id=f"{name(path)}-{number}")
    for path in [*CHAPTERS, GUIDE, *REFERENCES]
    for number, example in enumerate(blocks(path, "python"))
]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_python_examples_run_and_print_what_their_comments_say(example, tmp_path):
    expected = re.findall(r"^print\(.*\)  # (.*)$", example, re.M)
    printed = run(example, tmp_path)
    assert not expected or printed.splitlines() == expected


@pytest.mark.slow
def test_the_first_example_finds_the_neighbours(tmp_path):
    (example,) = blocks(README, "python")
    assert set(re.findall(r"'(\w+)'", run(example, tmp_path))) == {"hammer", "screw"}


@pytest.mark.spread(1)
@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_commands_parse(path):
    for arguments in embedder_commands(path):
        parse(arguments)


def test_commands_are_found():
    assert ["train"] in embedder_commands(README)
    assert ["verify", "RUN"] in embedder_commands(README)
    assert len(embedder_commands(README)) > 10


@pytest.mark.parametrize("path", [*DOCUMENTS, *REFERENCES], ids=name)
def test_benches_exist(path):
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"python -m bench ([a-z][\w-]*)", text))
    assert named <= {*commands.BENCHES, *registry.OWN_COMMANDS, "render"}


@pytest.mark.parametrize("path", [*DOCUMENTS, *REFERENCES], ids=name)
def test_links_resolve(path):
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(path)):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_named_files_exist(path):
    named = re.findall(r"`((?:\.ci|\w+)/[\w./-]*)`", prose(path))
    for file in named:
        if file.split("/")[0] in OTHER_NAMES | {".ci"}:
            assert (ROOT / file).exists(), file


def test_the_readme_links_to_every_chapter():
    text = README.read_text(encoding="utf-8")
    assert CHAPTERS
    for path in [*CHAPTERS, GUIDE, *REFERENCES]:
        assert f"]({name(path)})" in text, path


def settings_and_defaults() -> dict[str, Any]:
    configs = [make_config({"model": model}) for model in FAMILIES]
    return {name: x for each in configs[::-1] for name, x in options_of(each).items()}


def test_the_settings_chapter_has_every_setting_with_its_default():
    text = SETTINGS.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `--([\w-]+)` \| `?(.*?)`? ?\|", text, re.M)
    shown = {name.replace("-", "_"): default for name, default in rows}
    settings = settings_and_defaults()
    assert {*shown} == {*settings}
    for setting, default in settings.items():
        if default not in (None, "", ()):
            kind = json.loads if isinstance(default, bool) else type(default)
            assert kind(shown[setting]) == default, setting


def test_equations_are_numbered_from_1_on_and_listed():
    text = ALGORITHM.read_text(encoding="utf-8")
    defined = [int(n) for n in re.findall(r"^    \((\d+)\) ", text, re.M)]
    listed = re.findall(r"^\| ((?:\(\d+\)(?:, )?)+) \|", text, re.M)
    assert sorted(defined) == [*range(1, len(defined) + 1)]
    assert sorted(int(n) for n in re.findall(r"\d+", " ".join(listed))) == sorted(
        defined
    )


def test_code_cites_equations_that_exist():
    equations = set(re.findall(r"^    (\(\d+\)) ", ALGORITHM.read_text("utf-8"), re.M))
    sources = [
        p for name in ("embedder", "legacy") for p in (ROOT / name).rglob("*.py")
    ]
    for path in sources:
        text = path.read_text(encoding="utf-8")
        cited = re.findall(r"ALGORITHM\.md,?\s+((?:\(\d+\)(?:,| and| to)?\s*)+)", text)
        assert {*re.findall(r"\(\d+\)", " ".join(cited))} <= equations, path
