"""RUN of the verbs that look up: a run, or a file of vectors, at a URL."""

import json
import shutil
from pathlib import Path

import fsspec
import numpy as np
import pytest

from embedder.cli import main
from embedder.disk import copies, remote
from embedder.vectors.export import read_vectors
from tests.servers import Server, serving

TOKENS = ("--loader", "memory", "--vector-size", "4", "--min-count", "1")
TOKENS += ("--epochs", "1", "--save-every", "1epoch")
ENCODER = ("--model", "encoder", "--loader", "memory", "--epochs", "2")
ENCODER += ("--layers", "4", "6", "2", "--batch-size", "8")
ENCODER += ("--validation-fraction", "0.4")
RUN = "memory://runs/{}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with data, and the runs `words`, `two`, `sessions` and `encoder`."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text("a b c d a c e f\n" * 100)
    rows = "".join(f"{k // 4},{k % 7 + 100}\n" for k in range(400))
    (folder / "baskets.csv").write_text(f"session,item\n{rows}")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4)).astype(np.float32)
    np.savez(
        folder / "points.npz", X=x, y=np.array(["u", "v"])[rng.integers(2, size=40)]
    )
    np.save(folder / "new.npy", x[:3])
    (folder / "pairs.tsv").write_text("a\tb\t1\nc\td\t2\na\te\t3\n")
    for run, corpus, options in (
        ("words", "text.txt", TOKENS),
        ("two", "text.txt", (*TOKENS, "--replicas", "2")),
        ("sessions", "baskets.csv", TOKENS),
        ("encoder", "points.npz", (*ENCODER, "--replicas", "2")),
    ):
        command = ["train", f"{folder}/{corpus}", "--workdir", f"{folder}/{run}"]
        assert main([*command, *options]) == 0
    return folder


@pytest.fixture
def bucket(trained):
    """The runs, in the memory of this process."""
    fs = fsspec.filesystem("memory")
    for path in trained.rglob("*"):
        if path.is_file():
            fs.pipe(f"/runs/{path.relative_to(trained)}", path.read_bytes())
    yield fs
    fs.rm("/runs", recursive=True)


@pytest.fixture(autouse=True)
def own_folder(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(remote, "_WAITS", (0.01,))
    for name in ("pairs.tsv", "new.npy", "points.npz"):
        shutil.copy(trained / name, name)
    capsys.readouterr()


def printed(capsys, *command: str) -> str:
    assert main([*command]) == 0
    return capsys.readouterr().out


def copied() -> set[str]:
    """Names of the files that were copied."""
    links = Path("user/embedder/remote").rglob("*")
    return {path.name for path in links if path.is_symlink()}


def last_line(capsys) -> str:
    """The last line of standard error; copying is logged before it."""
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("embedder: ")
    return line


PRINTING = {
    "neighbors": (["neighbors", "words", "a", "b", "--topn", "2"], False),
    "file": (["neighbors", "words/vectors.txt", "a"], False),
    "json": (["neighbors", "sessions", "101", "--json"], False),
    "next": (["neighbors", "sessions", "--session", "100", "102"], True),
    "stable": (["neighbors", "two", "a", "--stable"], False),
    "classes": (["neighbors", "encoder", "3"], False),
    "analogy": (["analogy", "words", "a", "b", "c"], False),
    "pairs": (["evaluate", "words", "--pairs", "pairs.tsv"], False),
    "evaluation": (["evaluate", "encoder"], True),
    "examples": (["evaluate", "encoder", "--examples", "points.npz"], True),
    "embed": (["embed", "encoder", "new.npy"], True),
}
NEVER = {"vectors.txt", "vocab.parquet", "metrics.jsonl", "SHA256SUMS", "manifest.json"}


@pytest.mark.slow
@pytest.mark.parametrize("case", PRINTING)
def test_a_run_at_a_url_prints_what_it_prints_here(bucket, trained, capsys, case):
    (verb, run, *options), has_model = PRINTING[case]
    expected = printed(capsys, verb, f"{trained}/{run}", *options)
    assert printed(capsys, verb, RUN.format(run), *options) == expected
    names = copied()
    assert ("model.npz" in names) == has_model
    assert names == {"vectors.txt"} or not names & NEVER
    assert {"vectors.safetensors", "vectors.txt"} & names


EXPORTS = {
    "words": ([], "npz"),
    "two": (["--replicas"], "safetensors"),
    "sessions": ([], "parquet"),
    "encoder": (["--predictions"], "safetensors"),
}


@pytest.mark.parametrize("run", EXPORTS)
def test_a_run_at_a_url_is_exported_as_here(bucket, trained, run):
    options, ending = EXPORTS[run]
    for source, name in ((f"{trained}/{run}", "here"), (RUN.format(run), "there")):
        assert main(["export", source, "--to", f"{name}.{ending}", *options]) == 0
    assert Path(f"here.{ending}").read_bytes() == Path(f"there.{ending}").read_bytes()


def test_embedded_files_of_a_run_at_a_url_are_written(bucket, trained):
    for run, to in ((f"{trained}/encoder", "here"), (RUN.format("encoder"), "there")):
        assert main(["embed", run, "new.npy", "--to", f"{to}.npz"]) == 0
    here, there = (read_vectors(f"{name}.npz") for name in ("here", "there"))
    np.testing.assert_array_equal(there.matrix, here.matrix)


def test_a_local_url_is_its_path(trained, capsys):
    expected = printed(capsys, "neighbors", f"{trained}/words", "a")
    assert printed(capsys, "neighbors", f"file://{trained}/words", "a") == expected
    assert not Path("user").exists()
    assert main(["neighbors", f"file://{trained}/none", "a"]) == 2
    assert f"RUN {trained}/none does not exist." in last_line(capsys)


def test_a_folder_with_the_name_of_a_url_is_a_folder(trained, capsys):
    shutil.copytree(trained / "words", "s3:/bucket/run")
    assert "a" in printed(capsys, "neighbors", "s3://bucket/run", "a")


def test_each_file_is_copied_once_for_all_verbs(bucket, capsys, monkeypatch):
    printed(capsys, "neighbors", RUN.format("sessions"), "101")
    read = []
    copy = copies._copy
    monkeypatch.setattr(
        copies,
        "_copy",
        lambda r, found, *a: (read.append(found.name), copy(r, found, *a)),
    )
    printed(capsys, "neighbors", RUN.format("sessions"), "102")
    assert read == []
    printed(capsys, "neighbors", RUN.format("sessions"), "--session", "102")
    assert read == ["model.npz"]


@pytest.mark.row("B40")
def test_a_run_that_is_trained_anew_is_copied_anew(bucket, trained, capsys):
    url = RUN.format("words")
    first = printed(capsys, "neighbors", url, "a")
    other = [*TOKENS, "--seed", "9", "--alpha", "0.2", "--workdir", "other"]
    assert main(["train", f"{trained}/text.txt", *other]) == 0
    for path in Path("other").glob("*.*"):
        bucket.pipe(f"/runs/words/{path.name}", path.read_bytes())
    capsys.readouterr()
    again = printed(capsys, "neighbors", url, "a")
    assert again == printed(capsys, "neighbors", "other", "a") != first


@pytest.mark.row("B40")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["neighbors", "memory://runs/half", "a"],
            "RUN memory://runs/half holds no finished run: "
            "memory://runs/half/vectors.safetensors is missing.",
        ),
        (
            ["analogy", "memory://runs/none", *"abc"],
            "memory://runs/none does not exist",
        ),
        (
            ["neighbors", "memory://runs/words", "a", "--stable"],
            "`stable` applies only to a run with replicas, got memory://runs/words.",
        ),
        (
            ["embed", "memory://runs/words", "new.npy"],
            "memory://runs/words/model.npz",
        ),
        (
            ["evaluate", "memory://runs/words", "--json"],
            "`json` applies only to a run of an encoder, got memory://runs/words.",
        ),
        (["neighbors", "memory://runs/words", "A"], "did you mean 'a'?"),
        (["neighbors", "memory://runs/text.txt", "a"], "memory://runs/text.txt"),
        (["neighbors", "", "a"], "`RUN` must be a path or a URL, got ''."),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_what_does_not_fit_is_one_line_with_the_url(bucket, capsys, command, message):
    for name in ("config.toml", "corpus.json"):
        bucket.copy(f"/runs/words/{name}", f"/runs/half/{name}")
    assert main(command) == 2
    line = last_line(capsys)
    assert message in line and "user/embedder" not in line


@pytest.mark.row("B40")
@pytest.mark.parametrize("verb", ["neighbors", "embed", "evaluate", "export"])
def test_wrong_usage_is_refused_before_anything_is_copied(bucket, verb, capsys):
    wrong = {
        "neighbors": ["tea", "--topn", "0"],
        "embed": [],
        "evaluate": ["--pairs", "pairs.tsv", "--topn", "5"],
        "export": ["--to", "a.npz", "--replicas", "--predictions"],
    }
    assert main([verb, RUN.format("words"), *wrong[verb]]) == 2
    capsys.readouterr()
    assert not Path("user").exists()


@pytest.fixture
def server(trained):
    with serving(Server()) as server:
        for name in ("vectors.safetensors", "vectors.txt"):
            server.files[f"/{name}"] = (trained / "words" / name).read_bytes()
        yield server


@pytest.mark.row("B40", "F41")
def test_faults_of_a_server_are_tried_again(server, trained, capsys):
    expected = printed(capsys, "neighbors", f"{trained}/words", "a")
    url = f"{server.url}/vectors.safetensors"
    server.faults = ["503"]
    for is_away, message in ((False, "tried again in 0.01 s"), (True, "The copy of")):
        server.is_away = is_away
        assert main(["neighbors", url, "a"]) == 0
        out, err = capsys.readouterr()
        assert out == expected and message in err


@pytest.mark.row("B40")
def test_the_last_copy_is_that_of_the_same_use(bucket, monkeypatch, capsys):
    """One that lacks the model does not stand for one that has it."""
    url = RUN.format("sessions")
    for options in (["101"], ["--session", "101"]):
        printed(capsys, "neighbors", url, *options)

    def away(*arguments, **options):
        raise remote.UnreachableError("The server is away.")

    monkeypatch.setattr(remote.Remote, "listing", away)
    for options in (["101"], ["--session", "101"]):
        printed(capsys, "neighbors", url, *options)
    links = Path("user/embedder/remote").glob("*.json")
    has_model = sorted("model.npz" in json.loads(x.read_text())["links"] for x in links)
    assert has_model == [False, True]


@pytest.mark.row("B40", "B19")
def test_a_run_that_changes_while_it_is_copied_is_refused(server, capsys):
    def change() -> None:
        server.files["/vectors.txt"] = b"1 4\na 1 2 3 4\n"

    server.faults = [change]
    assert main(["neighbors", f"{server.url}/vectors.txt", "a"]) == 2
    assert "vectors.txt changed while it was read" in last_line(capsys)
    assert [*Path("user/embedder/remote/objects").iterdir()] == []


@pytest.mark.row("B40", "B30")
def test_a_denied_run_is_one_line_without_secrets(server, capsys):
    server.faults = ["403"] * 9
    url = server.url.replace("//", "//key:hunter2@") + "/vectors.txt?sig=hunter3"
    assert main(["export", url, "--to", "a.npz"]) == 2
    line = last_line(capsys)
    assert "must not be read with the credentials" in line and "hunter" not in line
    server.faults = []
    server.files["/vectors.txt"] = b"1 4\na 1 2 3\n"
    assert main(["export", url, "--to", "a.npz"]) == 2
    line = last_line(capsys)
    assert "//***@127.0.0.1" in line and "hunter" not in line


@pytest.mark.row("B40")
@pytest.mark.parametrize("command", [["verify", "RUN"], ["convert", "RUN", "a.npz"]])
def test_a_verb_that_needs_all_files_refuses_a_url(command, capsys):
    url = "s3://key:hunter2@data/run"
    assert main([url if x == "RUN" else x for x in command]) == 2
    line = last_line(capsys)
    assert "s3://***@data/run is a URL, where a path on this machine is needed" in line
