"""Runs on remote data: a bucket of a real S3 server, web servers, standard input."""

import io
import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from embedder import EmbeddingTrainer
from embedder.cli import main
from embedder.disk import copies, remote
from embedder.errors import InputError
from embedder.run import train
from embedder.vectors.export import write_vectors
from embedder.vectors.vectors import Vectors
from tests.commands import run_python
from tests.servers import Server, serving

FAST = ("--loader", "memory", "--epochs", "1", "--vector-size", "4")
FAST += ("--min-count", "1", "--block", "32")
ENCODER = ("--model", "encoder", "--loader", "memory", "--epochs", "1")
TEXT = b"a b c d a c e f\n" * 200


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
def bucket(moto, monkeypatch, tmp_path):
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
        server.put("texts/a.txt", TEXT)
        server.put("texts/b.txt", TEXT[::-1].replace(b"\n", b" \n"))
        server.put("texts/c.csv", b"x,y\n" * 40)
        yield server
        for each in client.list_objects_v2(Bucket="data")["Contents"]:
            client.delete_object(Bucket="data", Key=each["Key"])
        client.close()
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


def last_line(capsys) -> str:
    """The last line of standard error; copying is logged before it."""
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("embedder: ")
    return line


def corpus(run: str) -> dict:
    return json.loads(Path(run, "corpus.json").read_text())


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("url", "name", "files"),
    [
        ("s3://data/texts/a.txt", "a", ["a.txt"]),
        ("s3://data/texts/*.txt", "corpus", ["a.txt", "b.txt"]),
        ("s3://data/texts", "texts", ["a.txt", "b.txt"]),
    ],
)
def test_a_bucket_trains_as_its_files_do(bucket, url, name, files):
    assert main(["train", url, *FAST]) == 0
    run = f"embedder-{name}"
    assert [each["file"] for each in corpus(run)["manifest"]] == files
    assert corpus(run)["source"] == url
    for file in files:
        Path("texts", file).parent.mkdir(exist_ok=True)
        data = TEXT if file == "a.txt" else TEXT[::-1].replace(b"\n", b" \n")
        Path("texts", file).write_bytes(data)
    local = "texts" if url.endswith("texts") else url.removeprefix("s3://data/")
    assert main(["train", local, *FAST, "--workdir", "local"]) == 0
    vectors = [Path(each, "vectors.txt").read_bytes() for each in (run, "local")]
    assert vectors[0] == vectors[1]


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


@pytest.mark.slow
def test_copies_are_in_the_cache_that_is_given(bucket):
    command = ["train", "s3://data/texts/a.txt", *FAST, "--workdir", "run"]
    assert main([*command, "--cache", "shared"]) == 0
    assert len([*Path("shared/remote/objects").iterdir()]) == 1
    assert not Path("user/embedder/remote").exists()


@pytest.mark.row("F41")
@pytest.mark.parametrize("fault", ["503", "cut", "slow"])
def test_faults_of_a_bucket_are_tried_again(bucket, capsys, fault):
    bucket.faults = ["", fault, fault]
    assert main(["train", "s3://data/texts/a.txt", *FAST]) == 0
    lines = [x for x in capsys.readouterr().err.splitlines() if "tried again" in x]
    assert len(lines) == (0 if fault == "slow" else 2)
    assert all("s3://data/texts/a.txt: " in line for line in lines)


@pytest.mark.row("B19")
def test_an_object_of_a_bucket_that_changes_is_refused(bucket, capsys):
    bucket.faults = ["", lambda: bucket.put("texts/a.txt", TEXT[::-1])]
    assert main(["train", "s3://data/texts/a.txt", *FAST]) == 2
    line = last_line(capsys)
    assert "s3://data/texts/a.txt: a.txt changed while it was read" in line
    assert [*Path("user/embedder/remote/objects").iterdir()] == []


@pytest.mark.row("B29")
@pytest.mark.parametrize(
    "url", ["s3://data/none.txt", "s3://none/a.txt", "s3://data/none/*.txt"]
)
def test_a_missing_object_of_a_bucket_is_one_line(bucket, capsys, url):
    assert main(["train", url, *FAST]) == 2
    found = last_line(capsys)
    assert re.search(rf"{re.escape(url)} (does not exist|matches no file)\.", found)


@pytest.mark.slow
def test_a_run_starts_from_a_run_in_a_bucket(bucket, capsys):
    Path("first.txt").write_bytes(TEXT)
    assert main(["train", "first.txt", *FAST, "--workdir", "first"]) == 0
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


@pytest.mark.slow
def test_a_run_starts_from_the_checkpoint_of_an_unfinished_run_in_a_bucket(
    bucket, stopped
):
    Path("first.txt").write_bytes(TEXT)
    options = [*FAST, "--workdir", "first", "--blocks-per-update", "1"]
    stopped("first.txt", *options, "--epochs", "3")
    for path in Path("first").rglob("*"):
        if path.is_file():
            bucket.put(str(path), path.read_bytes())
    command = ["train", "s3://data/texts/a.txt", "--resume", "s3://data/first"]
    assert main([*command, "--workdir", "second"]) == 0


@pytest.mark.slow
def test_an_encoder_trains_on_images_in_a_bucket(bucket):
    rng = np.random.default_rng(0)
    for name in ("a/0", "a/1", "b/0", "b/1"):
        Path("photos", name).parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        image.save(f"photos/{name}.png")
        bucket.put(f"photos/{name}.png", Path(f"photos/{name}.png").read_bytes())
    assert main(["train", "s3://data/photos", *ENCODER, "--workdir", "remote"]) == 0
    assert main(["train", "photos", *ENCODER, "--workdir", "local"]) == 0
    files = [
        Path(run, "vectors.safetensors").read_bytes() for run in ("remote", "local")
    ]
    assert files[0] == files[1]


@pytest.mark.slow
def test_a_trainer_fits_a_url(bucket):
    trainer = EmbeddingTrainer(vector_size=4, min_count=1)
    trainer.fit("s3://data/texts/a.txt")
    assert sorted(trainer.index_to_key) == [*"abcdef"]


@pytest.mark.slow
def test_the_labels_of_an_idx_file_come_with_it(bucket):
    images, labels = (bytes([0, 0, 8, n]) for n in (3, 1))
    rng = np.random.default_rng(0)
    images += np.array([8, 4, 4], ">u4").tobytes() + rng.bytes(8 * 16)
    labels += np.array([8], ">u4").tobytes() + bytes([0, 1] * 4)
    bucket.put("digits/train-images-idx3-ubyte", images)
    bucket.put("digits/train-labels-idx1-ubyte", labels)
    for name in ("digits", "digits/train-images-idx3-ubyte"):
        command = ["train", f"s3://data/{name}", *ENCODER, "--overwrite"]
        assert main([*command, "--workdir", "run"]) == 0
        files = [each["file"] for each in corpus("run")["manifest"]]
        assert files == ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"]


@pytest.mark.row("B30")
def test_files_of_a_run_have_no_secret(bucket, capsys):
    with serving(Server()) as server:
        server.files["/a.txt"] = TEXT
        url = server.url.replace("//", "//user:hunter2@") + "/a.txt?sig=hunter3"
        assert main(["train", url, *FAST, "--workdir", "run"]) == 0
        shown = server.url.replace("//", "//***@") + "/a.txt?***"
        assert corpus("run")["source"] == shown
        shown_by_program = capsys.readouterr()
        assert "hunter" not in shown_by_program.out + shown_by_program.err
        paths = [path for path in Path().rglob("*") if path.is_file()]
        assert paths and not [p for p in paths if b"hunter" in p.read_bytes()]
        assert main(["train", "--workdir", "run"]) == 2
        assert "had credentials or a query, which are not stored" in last_line(capsys)
        assert main(["train", url, *FAST, "--workdir", "run"]) == 0


@pytest.mark.slow
@pytest.mark.row("B30")
def test_an_evaluation_on_a_url_shows_no_secret(capsys):
    rng = np.random.default_rng(0)
    np.savez("small.npz", X=rng.random((8, 3)), y=[0, 1] * 4)
    np.savez("other.npz", X=rng.random((8, 4)), y=[0, 1] * 4)
    assert main(["train", "small.npz", *ENCODER, "--workdir", "run"]) == 0
    with serving(Server()) as server:
        for name in ("small", "other"):
            server.files[f"/{name}.npz"] = Path(f"{name}.npz").read_bytes()
        url = server.url.replace("//", "//user:hunter2@") + "/{}.npz?sig=hunter3"
        assert main(["evaluate", "run", "--examples", url.format("small")]) == 0
        assert main(["evaluate", "run", "--examples", url.format("other")]) == 2
    shown = capsys.readouterr()
    assert "/other.npz?*** must have features float64[3]" in shown.err
    assert "hunter" not in shown.out + shown.err


@pytest.mark.spread(1)
@pytest.mark.row("B30", "B36")
@pytest.mark.parametrize("verb", ["train", "sweep"])
def test_a_start_at_a_url_shows_no_secret_and_is_needed_once(capsys, verb):
    words = [*{*TEXT.decode().split()}][:3]
    write_vectors(Vectors(words, np.ones((3, 4), np.float32)), "start.txt")
    Path("keys.txt").write_text("\n".join(words))
    Path("a.txt").write_bytes(TEXT)
    options = [*FAST, "--vector-size", "4", "--workdir", "run"]
    Path("space.toml").write_text("alpha = [0.01, 0.02]\n")
    command = [verb, *["space.toml"] * (verb == "sweep"), "a.txt", *options]
    with serving(Server()) as server:
        for name in ("start.txt", "keys.txt"):
            server.files[f"/{name}"] = Path(name).read_bytes()
        url = server.url.replace("//", "//user:hunter2@") + "/{}.txt?sig=hunter3"
        start = ["--init-from", url.format("start"), "--freeze", url.format("keys")]
        assert main([*command, *start]) == 0
    shown = capsys.readouterr()
    assert "hunter" not in shown.out + shown.err
    paths = [path for path in Path("run").rglob("*") if path.is_file()]
    assert paths and not [p for p in paths if b"hunter" in p.read_bytes()]
    if verb == "train":
        assert "start: 3 of" in shown.err and "/start.txt?***" in shown.err
        assert main(["train", "--workdir", "run"]) == 0  # the server is away
        assert "finished before" in capsys.readouterr().out


KILLED = """
import os, sys, threading
from embedder.cli import main
from embedder.disk import copies

copies._PIECE_BYTES = 512
count, write = int(sys.argv[1]), copies._write

def write_and_die(*arguments):
    global count
    write(*arguments)
    count -= 1
    if not count:
        os.kill(os.getpid(), 9)

copies._write = write_and_die
main(sys.argv[2:])
"""


@pytest.mark.slow
@pytest.mark.row("F42")
@pytest.mark.parametrize("pieces", [1, pytest.param(4, marks=pytest.mark.slow), 6])
def test_a_killed_copy_is_taken_for_no_whole_one(bucket, pieces):
    command = ["train", "s3://data/texts/a.txt", *FAST, "--workdir", "run"]
    killed = run_python("-c", KILLED, pieces, *command)
    assert killed.returncode == -9, killed.stderr
    (part,) = Path("user/embedder/remote/objects").iterdir()
    assert part.suffix == ".part" and not Path("run").exists()
    bucket.gets.clear()
    assert main(command) == 0
    assert len(bucket.gets) == 8 - pieces  # the last piece is read again
    (whole,) = Path("user/embedder/remote/objects").iterdir()
    assert whole.read_bytes() == TEXT


@pytest.mark.row("B24")
def test_standard_input_trains_as_a_file_does(monkeypatch, capsys):
    def train_on(data: bytes) -> int:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        return main(["train", "-", *FAST])

    assert train_on(TEXT) == 0
    assert Path(corpus("embedder-stdin")["source"]).read_bytes() == TEXT
    Path("text.txt").write_bytes(TEXT)
    assert main(["train", "text.txt", *FAST]) == 0
    files = [Path(f"embedder-{x}/vectors.txt").read_bytes() for x in ("stdin", "text")]
    assert files[0] == files[1]
    capsys.readouterr()
    assert train_on(TEXT) == 0
    assert main(["train", "--workdir", "embedder-stdin"]) == 0
    assert capsys.readouterr().out.count("finished before") == 2
    assert train_on(TEXT * 2) == 2
    assert "another corpus" in last_line(capsys)


@pytest.mark.row("B24")
def test_several_processes_refuse_standard_input(monkeypatch):
    monkeypatch.setattr("embedder.hosts.processes.num_processes", lambda: 2)
    with pytest.raises(InputError, match="Corpus - is standard input, which only one"):
        train._source("-", None)


@pytest.mark.row("B24")
def test_a_sweep_and_a_trainer_refuse_standard_input(capsys):
    Path("space.toml").write_text("window = [1, 2]")
    assert main(["sweep", "space.toml", "-", *FAST]) == 2
    message = "Corpus - must be a file on disk, not a stream"
    assert message in last_line(capsys)
    with pytest.raises(ValueError, match=message):
        EmbeddingTrainer().fit("-")


@pytest.mark.row("B24")
def test_a_dry_run_does_not_read_standard_input(capsys):
    assert main(["train", "-", "--dry-run"]) == 2
    assert last_line(capsys) == (
        "embedder: `dry_run` would read standard input, which can be read only once: "
        "write it to a file, or leave --dry-run out."
    )


def test_two_processes_copy_an_object_once(bucket):
    import threading

    release = threading.Event()
    bucket.faults = [release.wait]
    url, found = "s3://data/texts/a.txt", []
    threads = [
        threading.Thread(target=lambda: found.append(copies.local_copy(url)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    while not bucket.gets:
        time.sleep(0.01)
    release.set()
    for thread in threads:
        thread.join()
    assert found[0] == found[1] and Path(found[0]).read_bytes() == TEXT
    assert len(bucket.gets) == 7


SAVES = (*FAST, "--epochs", "3", "--save-every", "16", "--blocks-per-update", "1")
MIRROR = "s3://data/runs/first"


def vectors(run: str) -> bytes:
    return Path(run, "vectors.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.row("F43")
@pytest.mark.parametrize("is_encoder", [False, True], ids=["tables", "encoder"])
def test_a_run_goes_on_from_its_mirror_in_a_bucket(bucket, stopped, is_encoder):
    """While the bucket answers 503, cuts connections, and is slow."""
    options = ["first.txt", *SAVES]
    if is_encoder:
        rng = np.random.default_rng(0)
        np.savez("small.npz", X=rng.random((90, 3)), y=[0, 1, 2] * 30)
        options = ["small.npz", *ENCODER, "--epochs", "3", "--batch-size", "8"]
    Path("first.txt").write_bytes(TEXT)
    bucket.put_faults = ["", "503", "", "cut", "", "cut", "503"]
    stopped(*options, "--workdir", "run", "--mirror", MIRROR)
    assert bucket.put_faults == []
    shutil.rmtree("run")
    bucket.faults = ["", "cut", "", "503", "slow", "slow"]
    command = ["train", *options, "--workdir", "run", "--mirror", MIRROR]
    assert main(command) == 0
    assert bucket.faults == []
    assert main(["train", *options, "--workdir", "whole"]) == 0
    assert vectors("run") == vectors("whole")
    more = ["--resume", MIRROR, "--workdir", "more"]
    if not is_encoder:
        assert main(["train", "first.txt", *FAST, *more]) == 0
    shutil.rmtree("run")
    assert main(command) == 0
    assert vectors("run") == vectors("whole")
    assert main(["verify", "run"]) == 0


@pytest.mark.row("F43")
def test_a_bucket_that_is_away_for_long_leaves_the_mirror_behind(bucket, capsys):
    Path("first.txt").write_bytes(TEXT)
    bucket.put_faults = ["", *["503"] * 1000]
    command = ["train", "first.txt", *SAVES, "--workdir", "run", "--mirror", MIRROR]
    assert main(command) == 3
    line = last_line(capsys)
    assert f"Mirror {MIRROR} is behind run: it has no checkpoint ({MIRROR} " in line
    assert "cannot be accessed after 3 attempts" in line
    bucket.put_faults = []
    assert main(command) == 0
    shutil.rmtree("run")
    assert main(command) == 0
    assert main(["verify", "run"]) == 0


@pytest.mark.row("B34")
def test_a_bucket_that_must_not_be_written_is_one_line(bucket, capsys):
    Path("first.txt").write_bytes(TEXT)
    bucket.put_faults = ["403"]
    command = ["train", "first.txt", *FAST, "--workdir", "run", "--mirror"]
    assert main([*command, MIRROR]) == 2
    line = last_line(capsys)
    assert f"{MIRROR} must not be accessed with the credentials of this" in line
    assert main([*command, "s3://none/run"]) == 2
    line = last_line(capsys)
    assert "s3://none/run cannot be written: its bucket or folder does not" in line


KILLED_COPY = """
import os, sys
from embedder.cli import main
from embedder.disk import store

count, put = int(sys.argv[1]), store.Store._put

def put_and_die(*arguments):
    global count
    put(*arguments)
    count -= 1
    if not count:
        os.kill(os.getpid(), 9)

store.Store._put = put_and_die
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.row("F43")
def test_a_machine_that_is_killed_again_and_again_loses_nothing(bucket):
    """Each time on an empty folder, with the bucket alone."""
    Path("first.txt").write_bytes(TEXT)
    options = ["train", "first.txt", *SAVES, "--epochs", "12"]
    assert main([*options, "--workdir", "whole"]) == 0
    command = [*options, "--workdir", "run", "--mirror", MIRROR]
    for at in (4, 16, 13, 2, 9):
        process = run_python("-c", KILLED_COPY, at, *command)
        assert process.returncode == -9, process.stderr
        shutil.rmtree("run")
    process = run_python("-c", KILLED_COPY, -1, *command)
    assert process.returncode == 0, process.stderr
    assert vectors("run") == vectors("whole")


def write_tables() -> None:
    """Sessions and edges in several formats, partitions, and names, in `data`."""
    rng = np.random.default_rng(0)
    for name in ("months/month=1/a.parquet", "months/month=2/a.parquet"):
        Path("data", name).parent.mkdir(parents=True, exist_ok=True)
        columns = {
            "basket": np.sort(rng.integers(0, 40, 400)),
            "item": rng.integers(0, 9, 400),
        }
        pl.DataFrame(columns).write_parquet(Path("data", name))
    shutil.copy("data/months/month=1/a.parquet", "data/one.parquet")
    shutil.copy("data/months/month=2/a.parquet", "data/two.parquet")
    pl.DataFrame(columns).write_csv("data/baskets.csv")
    ends = rng.integers(0, 20, (200, 2))
    Path("data/edges.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in ends))
    names = {"item": range(9), "name": [f"thing {i}" for i in range(9)]}
    pl.DataFrame(names).write_csv("data/names.csv")


SESSIONS = ("--session", "basket", "--item", "item")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("baskets.csv", SESSIONS),
        ("*.parquet", SESSIONS),
        ("months", SESSIONS),
        ("months/**/*.parquet", SESSIONS),
        ("edges.tsv", ("--walks", "4", "--walk-length", "10")),
    ],
)
def test_tables_and_graphs_in_a_bucket_train_as_their_files_do(bucket, name, options):
    write_tables()
    for path in Path("data").rglob("*.*"):
        bucket.put(f"tables/{path.relative_to('data')}", path.read_bytes())
    command = [*FAST, *options, "--workdir"]
    assert main(["train", f"s3://data/tables/{name}", *command, "remote"]) == 0
    assert main(["train", f"data/{name}", *command, "local"]) == 0
    assert vectors("remote") == vectors("local")
    found = [
        [{**each, "mtime_ns": 0} for each in corpus(run)["manifest"]]
        for run in ("remote", "local")
    ]
    assert found[0] == found[1]
    assert main(["train", "--workdir", "remote"]) == 0


def test_names_in_a_bucket_are_shown(bucket, capsys):
    write_tables()
    bucket.put("names.csv", Path("data/names.csv").read_bytes())
    assert main(["train", "data/baskets.csv", *FAST, *SESSIONS]) == 0
    command = ["neighbors", "embedder-baskets", "--names", "s3://data/names.csv"]
    assert main([*command, "--name", "thing 3", "--topn", "1"]) == 0
    assert "3 (thing 3)" in capsys.readouterr().out


@pytest.mark.row("B40")
def test_a_mirror_in_a_bucket_is_looked_up_when_its_run_is_finished(
    bucket, stopped, capsys
):
    Path("first.txt").write_bytes(TEXT)
    command = ["first.txt", *SAVES, "--epochs", "3", "--workdir", "run"]
    command += ["--mirror", MIRROR]
    stopped(*command)
    assert main(["neighbors", MIRROR, "a"]) == 2
    line = last_line(capsys)
    assert f"RUN {MIRROR} holds no finished run: {MIRROR}/vectors.saf" in line
    assert main(["train", *command]) == 0
    capsys.readouterr()
    bucket.gets.clear()
    assert main(["neighbors", MIRROR, "a"]) == 0
    out, err = capsys.readouterr()
    assert f"Copies {MIRROR}: " in err and "user/embedder/remote" in err
    names = {Path(path).name for path in bucket.gets}
    assert names <= {"config.toml", "corpus.json", "vectors.safetensors"}
    assert main(["neighbors", "run", "a"]) == 0
    assert capsys.readouterr() == (out, "")
