"""A corpus and a mirror in a bucket of gs://, by gcsfs and an emulator of its server.

`python -m pip install gcsfs gcp-storage-emulator` for these tests.
"""

import os
import shutil
from pathlib import Path

import pytest

from embedder.cli import main

FAST = ("--loader", "memory", "--epochs", "3", "--vector-size", "4")
FAST += ("--min-count", "1", "--block", "32", "--blocks-per-update", "1")
TEXT = b"a b c d a c e f\n" * 200


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    """gcsfs on an emulated server with the bucket `data`; skips without either."""
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
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    gcsfs.GCSFileSystem.clear_instance_cache()
    yield gcsfs.GCSFileSystem(token="anon")
    gcsfs.GCSFileSystem.clear_instance_cache()
    server.stop()


@pytest.mark.slow
def test_a_corpus_and_a_mirror_in_gs_are_as_local_ones(bucket, stopped):
    bucket.pipe_file("data/texts/a.txt", TEXT)
    command = ["gs://data/texts/a.txt", *FAST, "--workdir", "run"]
    command += ["--mirror", "gs://data/runs/first"]
    stopped(*command)
    shutil.rmtree("run")
    assert main(["train", *command]) == 0
    Path("a.txt").write_bytes(TEXT)
    os.utime("a.txt", (0, 0))
    assert main(["train", "a.txt", *FAST, "--workdir", "local"]) == 0
    files = [Path(run, "vectors.safetensors") for run in ("run", "local")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert main(["train", "gs://data/none.txt", *FAST]) == 2
