"""Copies of remote data: read once, in pieces, whole or not at all."""

import io
import os
import re
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest

from embedder.disk import copies, remote
from embedder.disk.copies import keep_standard_input, local_copy
from embedder.disk.urls import (
    is_url,
    text_without_secrets,
    without_secrets,
    without_signature,
)
from embedder.errors import InputError
from tests.servers import CHANGED, Server, serving

TEXT = b"a b c d e f g h\n" * 100


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(remote, "_WAITS", (0.01, 0.01))
    monkeypatch.setattr(copies, "_PIECE_BYTES", 256)
    with serving(Server()) as server:
        server.files["/texts/a.txt"] = TEXT
        yield server


@pytest.fixture
def copy(tmp_path):
    """A function that copies into a cache of this test, and returns the path."""
    return lambda url, **options: Path(local_copy(url, tmp_path / "cache", **options))


def kept(tmp_path: Path) -> list[Path]:
    """The objects in the cache, whole or not."""
    return [*(tmp_path / "cache" / "remote" / "objects").iterdir()]


@pytest.mark.parametrize("has_ranges", [True, False])
@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 1600])
def test_a_copy_has_the_bytes_name_and_time_of_the_object(
    server, copy, size, has_ranges
):
    server.files["/texts/a.txt"], server.has_ranges = TEXT[:size], has_ranges
    path = copy(f"{server.url}/texts/a.txt")
    assert (path.name, path.read_bytes()) == ("a.txt", TEXT[:size])
    assert path.stat().st_mtime_ns == CHANGED * 10**9
    server.gets.clear()
    assert copy(f"{server.url}/texts/a.txt") == path and server.gets == []


SIGNED = (
    "X-Amz-Date=1&X-Amz-Expires=60&X-Amz-Signature=abcd",
    "X-Goog-Credential=me&X-Goog-Signature=abcd",
    "Expires=1&Signature=abcd&Key-Pair-Id=k",
    "sv=1&se=2&sr=b&sp=r&sig=abcd",
)


@pytest.mark.parametrize("query", SIGNED)
def test_another_signature_copies_nothing_again(server, copy, query):
    """But another id, or a query without a signature, is another object."""
    path = copy(f"{server.url}/texts/a.txt?{query}")
    before = len(server.gets)
    other = re.sub("=[^&]*", "=other", query)
    assert copy(f"{server.url}/texts/a.txt?{other}") == path
    assert len(server.gets) == before
    server.files["/texts/a.txt"] = TEXT[::-1]
    assert copy(f"{server.url}/texts/a.txt?{query}").read_bytes() == TEXT[::-1]
    for query in ("id={}", "se={}", "id={}&sig=abcd"):
        urls = (f"https://a.b/c?{query.format(x)}" for x in (1, 2))
        assert len({*map(without_signature, urls)}) == 2


def test_an_object_without_etag_and_time_is_read_each_time(server, copy):
    server.has_tags = False
    assert copy(f"{server.url}/texts/a.txt").read_bytes() == TEXT
    server.files["/texts/a.txt"] = TEXT[::-1]
    path = copy(f"{server.url}/texts/a.txt")
    assert path.read_bytes() == TEXT[::-1]
    assert path.stat().st_mtime_ns == 0


@pytest.mark.row("F41")
@pytest.mark.parametrize("fault", ["503", "cut"])
@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_fault_of_the_server_is_tried_again_and_logged(
    server, copy, caplog, fault, has_ranges
):
    server.has_ranges = has_ranges
    server.faults = ["", fault]  # the first is whether the server has ranges
    assert copy(f"{server.url}/texts/a.txt").read_bytes() == TEXT
    lines = [each for each in caplog.messages if "tried again in 0.01 s" in each]
    assert len(lines) == 1 and lines[0].startswith(f"{server.url}/texts/a.txt: ")


@pytest.mark.row("F41")
def test_a_server_that_stays_broken_is_an_error_and_pieces_are_kept(
    server, copy, tmp_path, monkeypatch
):
    monkeypatch.setattr(copies, "_THREADS", 1)  # so the first pieces come first
    server.faults = [""] * 4 + ["503"] * 40
    with pytest.raises(InputError, match=r"a.txt cannot be read after 3 attempts \("):
        copy(f"{server.url}/texts/a.txt")
    (part,) = kept(tmp_path)
    assert part.suffix == ".part" and 0 < part.stat().st_size < len(TEXT)
    size = part.stat().st_size
    server.faults, server.bytes_sent = [], 0
    assert copy(f"{server.url}/texts/a.txt").read_bytes() == TEXT
    assert server.bytes_sent <= len(TEXT) - size + 2 * 256
    assert [each.suffix for each in kept(tmp_path)] == [""]


@pytest.mark.row("B19")
@pytest.mark.parametrize("text", [TEXT[::-1], TEXT[:700], TEXT * 2, None])
@pytest.mark.parametrize("has_ranges", [True, False])
def test_an_object_that_changes_while_it_is_read_is_refused(
    server, copy, tmp_path, text, has_ranges
):
    def change() -> None:
        server.files.pop("/texts/a.txt")
        if text is not None:
            server.files["/texts/a.txt"] = text

    server.faults, server.has_ranges = ["", change], has_ranges
    if not has_ranges:
        server.faults = [change]
    with pytest.raises(InputError, match="a.txt changed while it was read: start aga"):
        copy(f"{server.url}/texts/a.txt")
    assert kept(tmp_path) == []


@pytest.mark.row("F41")
def test_the_last_copy_is_used_when_the_server_is_away(monkeypatch, copy, caplog):
    monkeypatch.setattr(remote, "_WAITS", ())
    with serving(Server()) as server:
        server.files["/a.txt"] = TEXT
        path = copy(f"{server.url}/a.txt")
    assert copy(f"{server.url}/a.txt") == path and path.read_bytes() == TEXT
    (line,) = [each for each in caplog.messages if "last time" in each]
    assert line.startswith(f"{server.url}/a.txt cannot be read after 1 attempts (")
    path.resolve().unlink()
    with pytest.raises(InputError, match="cannot be read after 1 attempts"):
        copy(f"{server.url}/a.txt")


@pytest.mark.row("B29")
@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("s3://bucket/a.txt", "'embedder-jax[s3]'"),
        ("gs://bucket/a.txt", "'embedder-jax[gs]'"),
        ("https://host/a.txt", "'embedder-jax[http]'"),
    ],
)
def test_a_missing_package_is_named_with_the_command(monkeypatch, copy, url, package):
    def missing(*arguments, **options):
        raise ImportError("no such package")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(InputError) as caught:
        copy(url)
    assert str(caught.value) == (
        f"{url} needs a package that is not installed: python -m pip install {package}."
    )


@pytest.fixture
def bucket():
    """Objects in the memory of this process."""
    import fsspec

    fs = fsspec.filesystem("memory")
    for name in ("a.txt", "b.txt", "c.csv", "deep/d.txt", ".e.txt"):
        fs.pipe(f"/shelf/{name}", name.encode())
    yield fs
    fs.rm("/shelf", recursive=True)


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://shelf/*.txt", ["a.txt", "b.txt"]),
        ("memory://shelf/[b]*", ["b.txt"]),
        ("memory://shelf/?.csv", ["c.csv"]),
        ("memory://shelf/*/*.txt", ["deep/d.txt"]),
    ],
)
def test_a_glob_is_the_objects_that_match(copy, url, expected):
    import glob

    pattern = str(copy(url))
    found = sorted(glob.glob(pattern, recursive=True))
    root = pattern.split("shelf/")[0] + "shelf"
    assert [os.path.relpath(each, root) for each in found] == expected
    folder = copy("memory://shelf/", is_wanted=lambda name: name.endswith("txt"))
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [str(path.relative_to(folder)) for path in paths]
    assert names == [".e.txt", "a.txt", "b.txt", "deep/d.txt"]
    assert [path.read_bytes().decode() for path in paths] == names


@pytest.mark.parametrize(
    "names", [["../a.txt"], ["a/../../b.txt"], ["a//b.txt"], ["./a.txt"], ["x", "x/y"]]
)
def test_names_of_no_file_in_the_folder_are_refused(monkeypatch, bucket, copy, names):
    info = bucket.info("/shelf/a.txt")
    objects = [remote._object(info["name"], name, info) for name in names]
    found = remote.Listing("folder", objects)
    monkeypatch.setattr(remote.Remote, "listing", lambda *arguments: found)
    message = "must have a name of a file, got |x/y is the name of an object and of a f"
    with pytest.raises(InputError, match=message):
        copy("memory://shelf")


def test_the_partner_of_an_object_is_beside_its_copy(server, copy):
    server.files["/texts/b.txt"] = b"b"
    path = copy(f"{server.url}/texts/a.txt", partner=lambda n: n.replace("a", "b"))
    assert path.name == "a.txt" and path.with_name("b.txt").read_bytes() == b"b"
    path = copy(f"{server.url}/texts/a.txt", partner=lambda n: "none")
    assert [each.name for each in path.parent.iterdir()] == ["a.txt"]


def test_a_local_url_is_its_path_and_paths_stay(copy, tmp_path):
    assert local_copy(f"file://{tmp_path}/a.txt") == f"{tmp_path}/a.txt"
    assert local_copy("a/b.txt") == "a/b.txt"
    assert not is_url("a:b//c") and not is_url(Path("s3://a")) and is_url("s3://a")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a?.txt", "s3://bucket/a?.txt"),
        ("s3://bucket/a.txt?versionId=SECRET", "s3://bucket/a.txt?***"),
        ("s3://KEY:SEC/RET@bucket/a", "s3://***@bucket/a"),
        ("https://user:SECRET@host:80/a@b", "https://***@host:80/a@b"),
        ("https://SECRET@host/a", "https://***@host/a"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("https://host/a?X-Sig=SECRET&b=1", "https://host/a?***"),
        ("https://host/a#SECRET", "https://host/a?***"),
        ("a/b?c=d", "a/b?c=d"),
        ("abfs://container@account.net/a", "abfs://container@account.net/a"),
    ],
)
def test_urls_are_shown_without_secrets(url, shown):
    assert without_secrets(url) == shown
    text = f"error of '{url}': SECRET, {url}" if "SECRET" in url else url
    assert "SECRET" not in text_without_secrets(text, url)


@pytest.mark.row("B29", "B30")
@pytest.mark.parametrize("fault", ["403", "503"])
def test_no_message_has_a_secret(server, copy, caplog, fault):
    server.faults = [fault] * 99
    url = server.url.replace("//", "//user:hunter2@") + "/texts/a.txt?sig=hunter3"
    with pytest.raises(InputError) as caught:
        copy(url)
    told = [str(caught.value), *caplog.messages]
    is_again = [each for each in caplog.messages if "tried again" in each]
    assert bool(is_again) == (fault == "503")
    told += traceback.format_exception(caught.value)
    assert f"{server.url.replace('//', '//***@')}/texts/a.txt?***" in told[0]
    assert not [line for line in told if "hunter" in line]


@pytest.mark.row("B24")
@pytest.mark.parametrize(
    ("data", "name"), [(TEXT, "stdin"), (b"\x1f\x8b123", "stdin.gz"), (b"", "stdin")]
)
def test_standard_input_is_kept_by_its_content(monkeypatch, tmp_path, data, name):
    paths = []
    for _ in range(2):
        stream = SimpleNamespace(buffer=io.BytesIO(data), closed=False)
        monkeypatch.setattr("sys.stdin", stream)
        paths.append(Path(keep_standard_input("-", tmp_path)))
    assert paths[0] == paths[1] and paths[0].name == name
    assert paths[0].read_bytes() == data and paths[0].stat().st_mtime_ns == 0
    others = {each.name for each in (tmp_path / "remote").iterdir()}
    assert others == {"objects", paths[0].parent.name}
