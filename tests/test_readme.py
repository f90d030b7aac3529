"""The documents: examples run, commands parse, links resolve."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bench import commands, registry
from embedder.cli.main import parse
from embedder.config import FAMILIES, make_config, options_of
from tests.commands import SECONDS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
SETTINGS = DOCS / "reference" / "settings.md"
CHAPTERS = sorted(DOCS.glob("*/*.md"))
INDEX = DOCS / "README.md"
GUIDE = ROOT / "migration" / "README.md"
ALGORITHM = ROOT / "embedder" / "ALGORITHM.md"
BENCHES = ROOT / "bench" / "README.md"
ARCHIVES = [
    ROOT / "migration" / "archive" / "decisions.md",
    ROOT / "bench" / "archive.md",
]
REFERENCES = [ALGORITHM, BENCHES, *ARCHIVES]
DOCUMENTS = [README, INDEX, *CHAPTERS, GUIDE, ROOT / "CHANGELOG.md", ROOT / "llms.txt"]
OTHER_NAMES = {"embedder", "legacy", "migration", "tests", "bench", "docs"}
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
        timeout=SECONDS,
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


def test_every_page_is_listed():
    """The README links to the list of pages, and that to each."""
    assert "](docs/README.md" in README.read_text(encoding="utf-8")
    text = INDEX.read_text(encoding="utf-8")
    assert len(CHAPTERS) > 25 and len([*DOCS.glob("how-to/*.md")]) <= 12
    for path in [*CHAPTERS, GUIDE, *REFERENCES]:
        assert re.search(rf"\]\({os.path.relpath(path, DOCS)}[)#]", text), path


@pytest.mark.parametrize("path", [README, INDEX, *CHAPTERS, GUIDE], ids=name)
def test_lines_are_short(path):
    """All but those of tables, of code, and of one word that cannot be cut."""
    for line in re.sub(r"^(\||<!--).*$", "", prose(path), flags=re.M).splitlines():
        assert len(line) <= 120 or len(line.split()) < 3, line


def test_pages_are_those_of_docstrings_and_fields(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    pages = runpy.run_path(str(DOCS / "render.py"))["pages"]().items()
    different = [name(path) for path, text in pages if text != path.read_text("utf-8")]
    assert different == [], "`python docs/render.py` writes them"


def test_the_settings_chapter_has_every_setting():
    text = SETTINGS.read_text(encoding="utf-8")
    shown = re.findall(r"^\| `--([\w-]+)` \| (?:`.*?`)? \| (?:yes|no) \|", text, re.M)
    configs = [make_config({"model": model}) for model in FAMILIES]
    names = [name.replace("-", "_") for name in shown]
    assert {*names} == {name for each in configs for name in options_of(each)}
    assert len(names) == len({*names})


@pytest.mark.slow
def test_the_first_example_finds_the_neighbours(tmp_path):
    (example,) = blocks(README, "python")
    assert set(re.findall(r"'(\w+)'", run(example, tmp_path))) == {"hammer", "screw"}


@pytest.mark.spread(1)
@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_commands_parse(path):
    for arguments in embedder_commands(path):
        try:
            parse(arguments)
        except SystemExit as end:  # of --help and the like
            assert end.code == 0
    if path == README:
        found = embedder_commands(path)
        assert ["train"] in found and ["verify", "RUN"] in found and len(found) > 6


@pytest.mark.parametrize("path", [*DOCUMENTS, *REFERENCES], ids=name)
def test_links_benches_and_named_files_exist(path):
    defined = dict(re.findall(r"^\[([^\]]+)\]: (\S+)", prose(path), re.M))
    assert {*re.findall(r"\[(\(\d+\))\]", prose(path))} <= {*defined}
    links = re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(path))
    for link in [*links, *defined.values()]:
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
    text = path.read_text(encoding="utf-8")
    if path not in ARCHIVES:
        named = set(re.findall(r"python -m bench ([a-z][\w-]*)", text))
        assert named <= {*commands.BENCHES, *registry.OWN_COMMANDS, "render"}
    if path in DOCUMENTS:
        for file in re.findall(r"`((?:\.ci|\w+)/[\w./-]*)`", prose(path)):
            if file.split("/")[0] in OTHER_NAMES | {".ci"}:
                assert (ROOT / file).exists(), file


def test_equations_are_numbered_listed_and_cited():
    text = ALGORITHM.read_text(encoding="utf-8")
    defined = [int(n) for n in re.findall(r"^    \((\d+)\) ", text, re.M)]
    assert sorted(defined) == [*range(1, len(defined) + 1)]
    listed = " ".join(re.findall(r"^\| ((?:\(\d+\)(?:, )?)+) \|", text, re.M))
    assert sorted(map(int, re.findall(r"\d+", listed))) == sorted(defined)
    for path in [*(ROOT / "embedder").rglob("*.py"), *(ROOT / "legacy").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        cited = re.findall(r"ALGORITHM\.md,?\s+((?:\(\d+\)(?:,| and| to)?\s*)+)", text)
        assert {*map(int, re.findall(r"\d+", " ".join(cited)))} <= {*defined}, path
