"""Remote data: a bucket of a real S3 server, web servers, runs at URLs."""

import json
import os
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import polars as pl
import pytest

from embedder.api.families import open_task
from embedder.cli.main import main
from embedder.config import Config
from embedder.disk import copies, remote
from embedder.engine.hosts import processes
from embedder.errors import InputError
from embedder.run import run_training as train
from tests.commands import last_line, run_python, wait_until
from tests.refusals.rows import write_shared
from tests.servers import Server, serving

FAST = ("--loader", "memory", "--epochs", "1", "--vector-size", "4")
FAST += ("--min-count", "1", "--block", "32")
SESSIONS = ("--session", "session", "--item", "item", "--order", "order")
ENCODER = ("--model", "encoder", "--loader", "memory", "--epochs", "3")
TRAIN_SMALL = ("train", "small.npz", *ENCODER, "--no-report")
TEXT = b"a b c d a c e f\n" * 200
OTHER = TEXT[::-1].replace(b"\n", b" \n")
A = "s3://data/texts/a.txt"
OBJECTS = Path("user/embedder/remote/objects")


@pytest.fixture(scope="module")
def moto():
    """The URL of moto's S3 server."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        "127.0.0.1", port=0, verbose=False
    )
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def bucket(moto, monkeypatch):
    """A server before moto's, which can inject faults; `put` adds objects."""
    import boto3
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(remote, "_WAITS", (0.01, 0.01))
    monkeypatch.setattr(copies, "_PIECE_BYTES", 512)
    with serving(Server(behind=moto)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        s3fs.S3FileSystem.clear_instance_cache()
        client = boto3.client("s3", endpoint_url=moto)
        client.create_bucket(Bucket="data")
        server.put = lambda name, data: client.put_object(
            Bucket="data", Key=name, Body=data
        )
        texts = {"a.txt": TEXT, "b.txt": OTHER, "c.csv": b"x,y\n" * 40}
        for name, data in texts.items():
            server.put(f"texts/{name}", data)
        yield server
        for each in client.list_objects_v2(Bucket="data")["Contents"]:
            client.delete_object(Bucket="data", Key=each["Key"])
        client.close()
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(autouse=True)
def own_folder(own_folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_folder / "user"))
    Path("texts").mkdir()
    Path("texts/a.txt").write_bytes(TEXT)
    Path("texts/b.txt").write_bytes(OTHER)


def corpus(run: str) -> dict:
    return json.loads(Path(run, "corpus.json").read_text())


def vectors(run: str) -> bytes:
    return Path(run, "vectors.safetensors").read_bytes()


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("name", "run", "files"),
    [
        ("texts/a.txt", "a", ["a.txt"]),
        ("texts/*.txt", "corpus", ["a.txt", "b.txt"]),
        ("texts", "texts", ["a.txt", "b.txt"]),
    ],
)
def test_a_bucket_trains_as_its_files_do(bucket, name, run, files):
    url = f"s3://data/{name}"
    assert main(["train", url, *FAST]) == 0
    found = corpus(f"embedder-{run}")
    assert [each["file"] for each in found["manifest"]] == files
    assert found["source"] == url
    assert main(["train", name, *FAST, "--workdir", "local"]) == 0
    assert vectors(f"embedder-{run}") == vectors("local")


def test_a_finished_run_is_recognised_without_its_copy(bucket, capsys):
    command = ["train", "s3://data/texts", *FAST, "--workdir", "run"]
    assert main(command) == 0
    before = corpus("run")
    bucket.gets.clear()
    assert main(command) == 0 and bucket.gets == []
    shutil.rmtree("user/embedder/remote")
    assert main(["train", "--workdir", "run"]) == 0
    assert bucket.gets != []
    assert capsys.readouterr().out.count("finished before") == 2
    assert corpus("run") == before
    bucket.put("texts/a.txt", TEXT * 2)
    assert main(command) == 2
    assert "another corpus" in last_line(capsys)


@pytest.mark.row("F41")
@pytest.mark.parametrize("fault", ["503", "cut", "slow"])
def test_faults_of_a_bucket_are_tried_again(bucket, capsys, fault):
    bucket.faults = ["", fault, fault]
    assert main(["train", A, *FAST]) == 0
    lines = [x for x in capsys.readouterr().err.splitlines() if "tried again" in x]
    assert len(lines) == (0 if fault == "slow" else 2)
    assert all(f"{A}: " in line for line in lines)


@pytest.mark.row("B19", "B29")
def test_an_object_that_changes_or_is_missing_is_one_line(bucket, capsys):
    bucket.faults = ["", lambda: bucket.put("texts/a.txt", TEXT[::-1])]
    assert main(["train", A, *FAST]) == 2
    assert f"{A}: a.txt changed while it was read" in last_line(capsys)
    assert [*OBJECTS.iterdir()] == []
    for url in ("s3://data/none.txt", "s3://none/a.txt", "s3://data/none/*.txt"):
        assert main(["train", url, *FAST]) == 2
        said = rf"{re.escape(url)} (does not exist|matches no file)\."
        assert re.search(said, last_line(capsys))


@pytest.mark.slow
def test_a_run_starts_from_a_run_in_a_bucket(bucket, capsys):
    assert main(["train", "texts/a.txt", *FAST, "--workdir", "first"]) == 0
    for path in Path("first").rglob("*"):
        if path.is_file():
            bucket.put(str(path), path.read_bytes())
    bucket.gets.clear()
    command = ["train", "s3://data/texts/b.txt", "--loader", "memory", "--grow"]
    assert main([*command, "--resume", "s3://data/first", "--workdir", "second"]) == 0
    assert corpus("second")["resume"]["path"] == "s3://data/first"
    assert not [path for path in bucket.gets if re.search("checkp|cache|tensorb", path)]
    assert main(["train", "--workdir", "second"]) == 0
    assert "finished before" in capsys.readouterr().out
    other = ["--resume", "s3://data/first/model.npz", "--workdir", "third"]
    assert main([*command, *other, "--vector-size", "4", "--epochs", "1"]) == 0


@pytest.mark.row("B30", "B36")
@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        *(("train", "tokens"), ("train", "encoder"), ("sweep", "encoder")),
        pytest.param("sweep", "tokens", marks=pytest.mark.slow),
    ],
)
def test_no_secret_of_a_url_is_shown_or_kept(capsys, verb, kind):
    """Of a corpus, of examples, and of a start, which is needed once."""
    Path("start.txt").write_text("3 4\na 1 2 3 4\nb 1 1 1 1\nc 0 1 0 1\n")
    rate = "alpha" if kind == "tokens" else "learning_rate"
    Path("space.toml").write_text(f"{rate} = [0.01, 0.02]\n")
    for name, size in (("small", 3), ("other", 4)):
        np.savez(f"{name}.npz", X=np.eye(8, size), y=[0, 1] * 4)
    assert main([*TRAIN_SMALL, "--workdir", "encoder"]) == 0
    files = "texts/a.txt", "start.txt", "small.npz", "other.npz", "encoder/model.npz"
    with serving(Server()) as server:
        server.files = {f"/{name}": Path(name).read_bytes() for name in files}

        def secret(name: str) -> str:
            return server.url.replace("//", "//user:hunter2@") + f"/{name}?sig=hunter3"

        command = [verb, *["space.toml"] * (verb == "sweep"), "--workdir", "run"]
        if kind == "tokens":
            command += [secret("texts/a.txt"), *FAST, "--freeze", "known"]
            command += ["--init-from", secret("start.txt")]
        else:
            command += ["small.npz", *ENCODER]
            command += ["--init-from", secret("encoder/model.npz")]
        assert main(command) == 0
        assert main(command) == 0  # the same run
        shown = server.url.replace("//", "//***@") + "/{}?***"
        said = capsys.readouterr().err
        if kind == "encoder":
            settings = "run/config.toml" if verb == "train" else "run/best.toml"
            start = f'init_network = "{shown.format("encoder/model.npz")}"'
            assert start in Path(settings).read_text()
        elif verb == "train":
            assert corpus("run")["source"] == shown.format("texts/a.txt")
            assert "start: 3 of" in said and "/start.txt?***" in said
            evaluate = ["evaluate", "encoder", "--examples"]
            assert main([*evaluate, secret("small.npz")]) == 0
            assert main([*evaluate, secret("other.npz")]) == 2
            out, err = capsys.readouterr()
            assert "/other.npz?*** must have features float64[3]" in err
            said += out + err
        if verb == "train":
            assert main(["train", "--workdir", "run"]) == 2
            message = "had credentials or a query, which are not stored"
            assert message in capsys.readouterr().err
    assert "hunter" not in said + "".join(capsys.readouterr())
    paths = [path for path in Path().rglob("*") if path.is_file()]
    assert paths and not [p for p in paths if b"hunter" in p.read_bytes()]


KILLED = """
import os, sys, types
from embedder.cli.main import main
from embedder.disk import copies

copies._PIECE_BYTES = 512
count = int(sys.argv[1])

def sync_and_die(number):
    global count
    os.fsync(number)
    count -= 1
    if not count:
        os.kill(os.getpid(), 9)

copies.os = types.SimpleNamespace(**vars(os) | {"fsync": sync_and_die})
main(sys.argv[2:])
"""


@pytest.mark.slow
@pytest.mark.row("F42")
@pytest.mark.parametrize("pieces", [1, 4, 6])
def test_a_killed_copy_is_taken_for_no_whole_one(bucket, pieces):
    command = ["train", A, *FAST, "--workdir", "run"]
    killed = run_python("-c", KILLED, pieces, *command)
    assert killed.returncode == -9, killed.stderr
    (part,) = OBJECTS.iterdir()
    assert part.suffix == ".part" and not Path("run").exists()
    bucket.gets.clear()
    assert main(command) == 0
    assert len(bucket.gets) == 8 - pieces  # the last piece is read again
    (whole,) = OBJECTS.iterdir()
    assert whole.read_bytes() == TEXT


@pytest.mark.row("B24")
def test_several_processes_refuse_standard_input(monkeypatch):
    monkeypatch.setattr(processes, "num_processes", lambda: 2)
    with pytest.raises(InputError, match="Corpus - is standard input, which only one"):
        train._open(open_task, train.Command(Config(), None, "-"), train._Lock())


def test_two_at_once_copy_an_object_once(bucket):
    release = threading.Event()
    bucket.faults = [release.wait]
    with ThreadPoolExecutor(2) as pool:
        copied = [pool.submit(copies.local_copy, A) for _ in range(2)]
        wait_until(lambda: bucket.gets)
        release.set()
        first, second = (each.result() for each in copied)
    assert first == second and Path(first).read_bytes() == TEXT
    assert len(bucket.gets) == 7


SAVES = (*FAST, "--epochs", "3", "--save-every", "16", "--blocks-per-update", "1")
MIRROR = "s3://data/runs/first"
MIRRORED = ["--workdir", "run", "--mirror", MIRROR]


@pytest.mark.slow
@pytest.mark.row("F43")
@pytest.mark.parametrize("is_encoder", [False, True], ids=["tables", "encoder"])
def test_a_run_goes_on_from_its_mirror_in_a_bucket(bucket, stopped, is_encoder):
    """While the bucket answers 503, cuts connections, and is slow."""
    options = ["texts/a.txt", *SAVES]
    if is_encoder:
        x = np.random.default_rng(0).random((90, 3))
        np.savez("small.npz", X=x, y=[0, 1, 2] * 30)
        options = ["small.npz", *ENCODER, "--batch-size", "8"]
    bucket.put_faults = ["", "503", "", "cut", "", "cut", "503"]
    stopped(*options, *MIRRORED)
    assert bucket.put_faults == []
    shutil.rmtree("run")
    bucket.faults = ["", "cut", "", "503", "slow", "slow"]
    assert main(["train", *options, *MIRRORED]) == 0
    assert bucket.faults == []
    assert main(["train", *options, "--workdir", "whole"]) == 0
    assert vectors("run") == vectors("whole")
    more = ["--resume", MIRROR, "--workdir", "more"]
    assert is_encoder or main(["train", "texts/a.txt", *FAST, *more]) == 0
    shutil.rmtree("run")
    assert main(["train", *options, *MIRRORED]) == 0
    assert vectors("run") == vectors("whole")
    assert main(["verify", "run"]) == 0


@pytest.mark.row("B34", "F43")
def test_a_bucket_that_is_away_or_must_not_be_written_is_one_line(bucket, capsys):
    bucket.put_faults = ["", *["503"] * 1000]
    assert main(["train", "texts/a.txt", *SAVES, *MIRRORED]) == 3  # away for long
    line = last_line(capsys)
    assert f"Mirror {MIRROR} is behind run: it has no checkpoint ({MIRROR} " in line
    assert "cannot be accessed after 3 attempts" in line
    bucket.put_faults = ["403"]
    command = ["train", "texts/a.txt", *FAST, "--workdir", "new", "--mirror"]
    for mirror, said in (
        (MIRROR, "must not be accessed with the credentials of this"),
        ("s3://none/run", "cannot be written: its bucket or folder does not"),
    ):
        assert main([*command, mirror]) == 2
        assert f"{mirror} {said}" in last_line(capsys)


@pytest.mark.row("B40")
def test_a_mirror_is_looked_up_when_its_run_is_finished(bucket, stopped, capsys):
    stopped("texts/a.txt", *SAVES, *MIRRORED)
    assert main(["neighbors", MIRROR, "a"]) == 2
    said = f"RUN {MIRROR} holds no finished run: {MIRROR}/vectors.saf"
    assert said in last_line(capsys)
    assert main(["train", "texts/a.txt", *SAVES, *MIRRORED]) == 0
    capsys.readouterr()
    bucket.gets.clear()
    assert main(["neighbors", MIRROR, "a"]) == 0
    out, err = capsys.readouterr()
    assert f"Copies {MIRROR}: " in err and "user/embedder/remote" in err
    names = {Path(path).name for path in bucket.gets}
    assert names <= {"config.toml", "corpus.json", "vectors.safetensors"}
    assert main(["neighbors", "run", "a"]) == 0
    assert capsys.readouterr() == (out, "")


# --- what runs were made of, and runs, at URLs


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with data, and the runs of `write_shared`, and `sessions`."""
    folder = tmp_path_factory.mktemp("runs")
    write_shared(folder)
    command = ["train", f"{folder}/baskets.parquet", *SESSIONS, *FAST, "--workdir"]
    assert main([*command, f"{folder}/sessions"]) == 0
    for part in "12":
        path = folder / f"months/month={part}/a.parquet"
        path.parent.mkdir(parents=True)
        shutil.copy(folder / "baskets.parquet", path)
    baskets = pl.read_parquet(folder / "baskets.parquet")
    baskets.write_csv(folder / "baskets.csv")
    np.save(folder / "new.npy", np.eye(3, 6, dtype=np.float32))
    (folder / "pairs.tsv").write_text("w1\tw2\t1\nw3\tw4\t2\nw1\tw5\t3\n")
    return folder


@pytest.fixture
def memory(trained, monkeypatch, capsys):
    """The files, in the memory of this process, as memory://runs."""
    fs = fsspec.filesystem("memory")
    for path in trained.rglob("*"):
        if path.is_file():
            fs.pipe(f"/runs/{path.relative_to(trained)}", path.read_bytes())
    for name in ("pairs.tsv", "new.npy", "examples.npz"):
        shutil.copy(trained / name, name)
    capsys.readouterr()
    yield fs
    fs.rm("/runs", recursive=True)


RUN = "memory://runs"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("baskets.csv", SESSIONS),
        ("months", SESSIONS),
        ("months/**/*.parquet", SESSIONS),
        ("edges.tsv", ("--walks", "4", "--walk-length", "10")),
    ],
)
def test_tables_and_graphs_at_a_url_train_as_their_files_do(
    memory, trained, name, options
):
    command = [*FAST, *options, "--workdir"]
    assert main(["train", f"{RUN}/{name}", *command, "there"]) == 0
    assert main(["train", f"{trained}/{name}", *command, "here"]) == 0
    assert vectors("there") == vectors("here")
    there, here = (
        [{**each, "mtime_ns": 0} for each in corpus(run)["manifest"]]
        for run in ("there", "here")
    )
    assert there == here
    assert main(["train", "--workdir", "there"]) == 0


def printed(capsys, *command: str) -> str:
    assert main([*command]) == 0
    return capsys.readouterr().out


PRINTING = [  # verb, run, options, whether it needs the model
    ("neighbors", "run/vectors.txt", ["w1"], False),
    ("neighbors", "sessions", ["w1", "--json"], False),
    ("neighbors", "sessions", ["--session", "w1", "w2"], True),
    ("neighbors", "replicas", ["w1", "--stable"], False),
    ("analogy", "run", ["w1", "w2", "w3"], False),
    ("evaluate", "run", ["--pairs", "pairs.tsv"], False),
    ("evaluate", "encoder", ["--examples", "examples.npz"], True),
    ("embed", "encoder", ["new.npy"], True),
]
NEVER = {"vectors.txt", "vocab.parquet", "metrics.jsonl", "SHA256SUMS", "manifest.json"}


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "run", "options", "has_model"), PRINTING)
def test_a_run_at_a_url_prints_what_it_prints_here(
    memory, trained, capsys, verb, run, options, has_model
):
    expected = printed(capsys, verb, f"{trained}/{run}", *options)
    assert printed(capsys, verb, f"{RUN}/{run}", *options) == expected
    links = Path("user/embedder/remote").rglob("*")
    names = {path.name for path in links if path.is_symlink()}
    assert ("model.npz" in names) == has_model
    assert names == {"vectors.txt"} or not names & NEVER
    assert {"vectors.safetensors", "vectors.txt"} & names


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("run", "options", "ending"),
    [
        ("run", [], "npz"),
        ("replicas", ["--replicas"], "safetensors"),
        ("sessions", [], "parquet"),
        ("encoder", [], "safetensors"),
    ],
)
def test_a_run_at_a_url_is_exported_as_here(memory, trained, run, options, ending):
    for source, name in ((f"{trained}/{run}", "here"), (f"{RUN}/{run}", "there")):
        assert main(["export", source, "--to", f"{name}.{ending}", *options]) == 0
    assert Path(f"here.{ending}").read_bytes() == Path(f"there.{ending}").read_bytes()


def test_a_local_url_is_its_path(memory, trained, capsys):
    expected = printed(capsys, "neighbors", f"{trained}/run", "w1")
    assert printed(capsys, "neighbors", f"file://{trained}/run", "w1") == expected
    assert not Path("user").exists()
    assert main(["neighbors", f"file://{trained}/none", "w1"]) == 2
    assert f"RUN {trained}/none does not exist." in last_line(capsys)


@pytest.mark.row("B40")
def test_each_file_is_copied_once_for_all_verbs_until_it_changes(
    memory, trained, capsys, monkeypatch
):
    """Without the server the last copies are used, those of the same verbs."""
    read, copy = [], copies._copy

    def counted(remote, found, *rest):
        read.append(found.name)
        return copy(remote, found, *rest)

    monkeypatch.setattr(copies, "_copy", counted)
    url = f"{RUN}/sessions"
    first = printed(capsys, "neighbors", url, "w1")
    read.clear()
    printed(capsys, "neighbors", url, "w2")
    assert read == []
    printed(capsys, "neighbors", url, "--session", "w2")
    assert read == ["model.npz"]
    command = ["train", f"{trained}/baskets.parquet", *SESSIONS, *FAST, "--seed", "9"]
    assert main([*command, "--alpha", "0.2", "--workdir", "other"]) == 0
    for path in Path("other").glob("*.*"):
        memory.pipe(f"/runs/sessions/{path.name}", path.read_bytes())
    capsys.readouterr()
    again = printed(capsys, "neighbors", url, "w1")
    assert again == printed(capsys, "neighbors", "other", "w1") != first
    in_session = printed(capsys, "neighbors", url, "--session", "w1")

    def away(*arguments, **options):
        raise remote.UnreachableError("The server is away.")

    monkeypatch.setattr(remote.Remote, "listing", away)
    assert printed(capsys, "neighbors", url, "w1") == again
    assert printed(capsys, "neighbors", url, "--session", "w1") == in_session
    links = Path("user/embedder/remote").glob("*.json")
    has_model = {"model.npz" in json.loads(x.read_text())["links"] for x in links}
    assert has_model == {False, True}


@pytest.mark.row("B40")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            f"neighbors {RUN}/half a",
            f"RUN {RUN}/half holds no finished run: {RUN}/half",
        ),
        (f"analogy {RUN}/none a b c", f"{RUN}/none does not exist"),
        (f"embed {RUN}/run new.npy", f"{RUN}/run/model.npz"),
        (f"neighbors {RUN}/run W1", "did you mean 'w1'?"),
        (f"neighbors {RUN}/text.txt a", f"{RUN}/text.txt"),
    ],
)
def test_what_does_not_fit_is_one_line_with_the_url(memory, capsys, command, message):
    for name in ("config.toml", "corpus.json"):
        memory.copy(f"/runs/run/{name}", f"/runs/half/{name}")
    assert main(command.split()) == 2
    line = last_line(capsys)
    assert message in line and "user/embedder" not in line


# --- gs://, by gcsfs and an emulator of its server


@pytest.mark.slow
def test_a_corpus_and_a_mirror_in_gs_are_as_local_ones(stopped, monkeypatch):
    gcsfs = pytest.importorskip("gcsfs", reason="needs gcsfs")
    emulator = pytest.importorskip(
        "gcp_storage_emulator.server", reason="needs gcp-storage-emulator"
    )
    server = emulator.create_server(
        "127.0.0.1", 0, in_memory=True, default_bucket="data"
    )
    server.start()
    port = server._api._httpd.server_address[1]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    gcsfs.GCSFileSystem.clear_instance_cache()
    try:
        gcsfs.GCSFileSystem(token="anon").pipe_file("data/texts/a.txt", TEXT)
        command = ["gs://data/texts/a.txt", *SAVES, "--workdir", "run"]
        command += ["--mirror", "gs://data/runs/first"]
        stopped(*command)
        shutil.rmtree("run")
        assert main(["train", *command]) == 0
        os.utime("texts/a.txt", (0, 0))
        assert main(["train", "texts/a.txt", *SAVES, "--workdir", "local"]) == 0
        assert vectors("run") == vectors("local")
        assert main(["train", "gs://data/none.txt", *FAST]) == 2
    finally:
        gcsfs.GCSFileSystem.clear_instance_cache()
        server.stop()
