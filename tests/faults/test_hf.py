"""A corpus at hf://, by huggingface_hub and a server of the few answers it needs.

`python -m pip install huggingface_hub` for these tests.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.commands import run_python
from tests.servers import Answer, Server, serving

FAST = ("--loader", "memory", "--epochs", "1", "--vector-size", "4")
FAST += ("--min-count", "1", "--block", "32")
API = "/api/datasets/me/data"
COMMIT = {"id": "0" * 40, "title": "all", "date": "2024-01-01T00:00:00.000Z"}


class Hub(Server):
    """The data set me/data, whose `files` are served by their names."""

    def answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes = b""
    ) -> Answer:
        url = urlsplit(path)
        path = unquote(url.path)
        if path == API:
            return answer({"id": "me/data", "sha": COMMIT["id"], "siblings": []})
        if path.startswith(f"{API}/tree/main"):
            folder = path.removeprefix(f"{API}/tree/main").strip("/")
            return self.tree(folder, "recursive=true" in url.query.lower())
        if path == f"{API}/paths-info/main":
            names = parse_qs(body.decode())["paths"]
            return answer([self.entry(name) for name in names if name in self.files])
        name = path.removeprefix("/datasets/me/data/resolve/main")
        return super().answer(method, name, headers)

    def tree(self, folder: str, is_recursive: bool) -> Answer:
        start, found = f"{folder}/".lstrip("/"), {}
        for path in self.files:
            name = path.strip("/")
            if name.startswith(start):
                first, *more = name.removeprefix(start).split("/")
                shown = name if is_recursive or not more else start + first
                found[shown] = self.entry(shown)
        return answer([*found.values()]) if found else answer({}, 404)

    def entry(self, name: str) -> dict:
        data = self.files.get(f"/{name}")
        found = {"path": name, "lastCommit": COMMIT, "oid": "1" * 40, "size": 0}
        if data is None:
            return found | {"type": "directory"}
        oid = hashlib.sha1(data).hexdigest()
        return found | {"type": "file", "oid": oid, "size": len(data)}


def answer(value: object, status: int = 200) -> Answer:
    headers = {"Content-Type": "application/json"}
    if status == 404:
        headers["X-Error-Code"] = "EntryNotFound"
    return Answer(status, headers, json.dumps(value).encode())


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The server; the endpoint is read where huggingface_hub is imported."""
    pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")
    monkeypatch.chdir(tmp_path)
    with serving(Hub()) as server:
        text = b"a b c d a c e f\n" * 200
        server.files = {"/texts/a.txt": text, "/texts/more/b.txt": text[::-1]}
        server.files["/README.md"] = b"# Data"
        folders = {"HF_HOME": "hub", "XDG_CACHE_HOME": "user"}
        values = {name: str(tmp_path / folder) for name, folder in folders.items()}
        values |= {"HF_ENDPOINT": server.url, "HF_HUB_DISABLE_TELEMETRY": "1"}
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        yield server


def embedder(*arguments: str):
    return run_python("-m", "embedder.cli.main", *arguments, env=os.environ)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["texts/a.txt", "texts", "texts/*.txt"])
def test_a_data_set_trains_as_its_files_do(hub, name):
    hub.faults = ["", "", "503"]
    command = [*FAST, "--workdir"]
    done = embedder("train", f"hf://datasets/me/data/{name}", *command, "remote")
    assert done.returncode == 0, done.stderr
    for path, data in hub.files.items():
        Path(path[1:]).parent.mkdir(parents=True, exist_ok=True)
        Path(path[1:]).write_bytes(data)
    assert embedder("train", name, *command, "local").returncode == 0
    files = [Path(run, "vectors.safetensors") for run in ("remote", "local")]
    assert files[0].read_bytes() == files[1].read_bytes()
    shutil.rmtree("texts")
    assert embedder("train", "--workdir", "remote").returncode == 0
    done = embedder("train", "hf://datasets/me/data/none.txt", *FAST)
    assert done.returncode == 2
    said = "embedder: hf://datasets/me/data/none.txt does not exist."
    assert done.stderr.splitlines()[-1] == said
