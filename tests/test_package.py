"""The wheel and the archive of the sources, and what the base installation does."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import embedder
from embedder.errors import EXTRAS
from tests.commands import copy_checkout, run_python

pytestmark = pytest.mark.slow
LARGEST = 100_000  # bytes of a file
NOT_IN_BASE = {"tensorflow", "gensim", *EXTRAS, "bokeh", "openTSNE", "pandas"}
FACADE = """
from gensim.models import KeyedVectors, Word2Vec
sentences = [["tea", "milk", "sugar"], ["nail", "hammer", "screw"]] * 200
model = Word2Vec(sentences, vector_size=16, min_count=1, sample=0, epochs=10, sg=1)
model.wv.save_word2vec_format("vectors.txt")
print(KeyedVectors.load_word2vec_format("vectors.txt").most_similar("nail", topn=2))
"""
ENCODER = """
import numpy as np
x = np.random.default_rng(0).integers(0, 256, (40, 4, 3), np.uint8)
np.savez("images.npz", X=x, y=np.arange(40) % 2)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The wheel and the archive, made by `python -m build` from the files of git."""
    folder = tmp_path_factory.mktemp("package")
    copy = folder / "embedder"
    copy_checkout(copy)
    made = folder / "made"
    done = run_python("-m", "build", "--outdir", str(made), str(copy))
    assert done.returncode == 0, done.stderr
    (wheel,), (archive,) = made.glob("*.whl"), made.glob("*.tar.gz")
    return wheel, archive


@pytest.mark.wheel
def test_twine_finds_no_fault_and_the_wheel_has_the_packages_and_no_large_file(built):
    done = run_python("-m", "twine", "check", "--strict", *map(str, built))
    assert done.returncode == 0, done.stdout
    wheel, archive = built
    assert wheel.name == f"embedder_jax-{embedder.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as file:
        sizes = {each.filename: each.file_size for each in file.infolist()}
    with tarfile.open(archive) as file:
        sizes |= {each.name: each.size for each in file.getmembers()}
    large = {name for name, size in sizes.items() if size > LARGEST}
    assert large == set()
    parts = {name.split("/")[0] for name in sizes if "/" in name}
    info = f"embedder_jax-{embedder.__version__}"
    assert parts == {"embedder", "legacy", "migration", f"{info}.dist-info", info}
    assert not [name for name in sizes if "/tests/" in name or "/bench/" in name]
    wanted = ("py.typed", "ALGORITHM.md", "report/assets/page.html", "__main__.py")
    assert {f"embedder/{name}" for name in wanted} <= {*sizes}
    assert f"{info}.dist-info/licenses/LICENSE" in sizes


def requirements(wheel: Path) -> list[Requirement]:
    """What a wheel requires, with the requirements of extras."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (x for x in file.namelist() if x.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(file.read(name).decode())
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


def test_each_extra_of_a_message_exists(built):
    required: dict[str, set[str]] = {}
    for each in requirements(built[0]):
        if extra := re.search(r'extra == "([\w-]+)"', str(each.marker)):
            required.setdefault(extra[1], set()).add(each.name.lower())
    for package, extra in EXTRAS.values():
        assert package.lower().replace("_", "-") in required[extra]
    assert {"pillow", "prompt-toolkit", "scikit-learn", "bokeh"} <= required["all"]


@pytest.fixture(scope="module")
def base(built, tmp_path_factory) -> Path:
    """The Python of a new environment with the base installation but TensorFlow."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder / "environment", with_pip=False)
    python = folder / "environment" / "bin" / "python"
    of_base = [x for x in requirements(built[0]) if "extra" not in str(x.marker)]
    others = [str(x) for x in of_base if not x.name.startswith("tensorflow")]
    assert len(others) == len(of_base) - 2
    # Of the checkout, which has the package already.
    environment = {name: x for name, x in os.environ.items() if name != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    for packages in ([*others], ["--no-deps", str(built[0])]):
        pipes = {"capture_output": True, "text": True}
        done = subprocess.run([*pip, *packages], env=environment, **pipes)
        assert done.returncode == 0, done.stderr
    return python


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the commands run, and the user's home."""
    return tmp_path_factory.mktemp("folder")


@pytest.fixture(scope="module")
def run(base, folder):
    """Runs a command of the new environment."""

    def run_in_base(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [str(base), *arguments],
            cwd=folder,
            env={"HOME": str(folder), "PATH": ""},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    return run_in_base


@pytest.mark.wheel
def test_the_base_trains_and_answers_without_any_extra(run, folder):
    absent = f"names = {NOT_IN_BASE}; from importlib.util import find_spec; "
    assert run("-c", absent + "print([*filter(find_spec, names)])").strip() == "[]"
    shutil.rmtree(folder / "embedder-demo", ignore_errors=True)
    version = run("-m", "embedder", "--version")
    assert version.startswith(f"embedder {embedder.__version__} (Python ")
    done, *steps = run("-m", "embedder", "train").splitlines()
    assert "done." in done and len(steps) == 3  # what to try next
    assert steps[0].endswith(": embedder neighbors embedder-demo list")
    assert len(run("-m", "embedder", "neighbors", "embedder-demo", "list").split()) > 20
    missing = "`embedder sweep` by a search, and its picture: python -m pip install "
    assert missing + "'embedder-jax[sweep]'" in run("-m", "embedder", "doctor")


def test_the_base_shows_parity_embeds_and_replaces_gensim(run, folder):
    run("-m", "embedder", "parity", "--words", "2000")
    run("-c", ENCODER)
    options = ("train", "images.npz", "--model", "encoder", "--workdir", "run")
    run("-m", "embedder", *options)
    run("-m", "embedder", "embed", "run", "images.npz", "--to", "vectors.npz")
    (folder / "script.py").write_text(FACADE)
    found = run("-m", "embedder.gensim", "script.py")
    assert {*re.findall(r"'(\w+)'", found)} == {"hammer", "screw"}


LACKING = {
    # a command, and what it says that it lacks
    "train --loader tfdata --workdir other": (
        r"`loader` tfdata needs TensorFlow, .*: python -m pip install tensorflow"
    ),
    "neighbors embedder-demo list --to sheet.png": (
        r"`to` .png needs Pillow, .*: .* install 'embedder-jax\[images\]'\."
    ),
    "index embedder-demo": r"An index needs usearch, .* 'embedder-jax\[index\]'\.",
    "export embedder-demo --to x.faiss --format faiss": (
        r"`format` faiss needs faiss-cpu, .* 'embedder-jax\[faiss\]'\."
    ),
    "evaluate embedder-demo --labels labels.tsv": (
        r"A score of the labels in labels.tsv needs scikit-learn, .*\[sklearn\]'\."
    ),
}


@pytest.mark.parametrize(("arguments", "message"), LACKING.items(), ids=LACKING)
def test_what_the_base_lacks_is_told_in_one_line(run, arguments, message, folder):
    if not (folder / "embedder-demo").exists():
        run("-m", "embedder", "train", "--epochs", "0")
    (folder / "labels.tsv").write_text("list\ta\ntuple\tb\n")
    lines = run("-m", "embedder", *arguments.split(), code=2).splitlines()
    assert re.search(f"^embedder: {message}", lines[-1]), lines
    assert not [line for line in lines if "Traceback" in line]


def test_the_estimator_of_scikit_learn_says_what_it_needs(run):
    line = run("-c", "from embedder import FeatureEncoder", code=1).splitlines()[-1]
    assert "`FeatureEncoder` needs scikit-learn" in line
    assert line.endswith("python -m pip install 'embedder-jax[sklearn]'.")
