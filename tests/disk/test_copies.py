"""Copies of remote data: read once, in pieces, whole or not at all."""

import io
import os
import re
import traceback
from pathlib import Path

import pytest

from embedder.disk import copies, remote
from embedder.disk.copies import keep_standard_input, local_copy
from embedder.disk.fingerprints import file_fingerprint
from embedder.disk.urls import (
    is_url,
    text_without_secrets,
    without_secrets,
    without_signature,
)
from embedder.errors import InputError, InputNotFoundError
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


def test_an_object_is_read_once(server, copy):
    path = copy(f"{server.url}/texts/a.txt")
    assert server.bytes_sent >= len(TEXT)
    server.gets.clear()
    assert copy(f"{server.url}/texts/a.txt") == path
    assert server.gets == []


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


@pytest.mark.parametrize("query", ["id={}", "se={}", "id={}&sig=abcd"])
def test_another_query_is_another_object(query):
    found = {without_signature(f"https://a.b/c?{query.format(x)}") for x in (1, 2)}
    assert len(found) == 2


def test_an_object_without_etag_and_time_is_read_each_time(server, copy):
    server.has_tags = False
    assert copy(f"{server.url}/texts/a.txt").read_bytes() == TEXT
    server.files["/texts/a.txt"] = TEXT[::-1]
    path = copy(f"{server.url}/texts/a.txt")
    assert path.read_bytes() == TEXT[::-1]
    assert path.stat().st_mtime_ns == 0


def test_fingerprints_are_equal_on_each_machine(server, tmp_path):
    url = f"{server.url}/texts/a.txt"
    paths = [Path(local_copy(url, tmp_path / name)) for name in "ab"]
    assert paths[0] != paths[1]
    assert file_fingerprint(paths[0]) == file_fingerprint(paths[1])


def test_a_changed_object_is_read_again(server, copy):
    copy(f"{server.url}/texts/a.txt")
    server.files["/texts/a.txt"] = TEXT[::-1]
    assert copy(f"{server.url}/texts/a.txt").read_bytes() == TEXT[::-1]


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
def test_slow_bytes_are_read(server, copy):
    server.faults = ["slow"] * 3
    assert copy(f"{server.url}/texts/a.txt").read_bytes() == TEXT


@pytest.mark.row("F41")
def test_a_server_that_stays_broken_is_an_error_and_pieces_are_kept(
    server, copy, tmp_path
):
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
    ("url", "message"),
    [
        ("{}/none.txt", "http://.*/none.txt does not exist"),
        ("nosuch://a/b.txt", "nosuch://a/b.txt cannot be read: .*nosuch"),
        ("memory://nothing", "memory://nothing does not exist"),
        ("memory://nothing/*.txt", r"memory://nothing/\*.txt matches no file"),
        ("zip://a.txt::http://x/a.zip", "URLs within URLs .* are not read"),
        ("https://***@host/a", "had credentials or a query, which are not stored"),
    ],
)
def test_a_wrong_url_is_one_line(server, copy, url, message):
    with pytest.raises(InputError, match=message):
        copy(url.format(server.url))


@pytest.mark.row("B29")
def test_a_denied_object_is_not_tried_again(server, copy, caplog):
    server.faults = ["403"] * 9
    with pytest.raises(InputError, match="must not be read with the credentials of"):
        copy(f"{server.url}/texts/a.txt")
    assert not [each for each in caplog.messages if "tried again" in each]


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
        fs.pipe(f"/bucket/{name}", name.encode())
    yield fs
    fs.rm("/bucket", recursive=True)


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://bucket/*.txt", ["a.txt", "b.txt"]),
        ("memory://bucket/[b]*", ["b.txt"]),
        ("memory://bucket/?.csv", ["c.csv"]),
        ("memory://bucket/*/*.txt", ["deep/d.txt"]),
    ],
)
def test_a_glob_is_the_objects_that_match(copy, url, expected):
    import glob

    pattern = str(copy(url))
    found = sorted(glob.glob(pattern, recursive=True))
    root = pattern.split("bucket/")[0] + "bucket"
    assert [os.path.relpath(each, root) for each in found] == expected


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("url", ["memory://bucket", "memory://bucket/"])
def test_a_folder_is_the_objects_that_are_wanted(copy, url):
    folder = copy(url, is_wanted=lambda name: name.endswith("txt"))
    found = sorted(p for p in folder.rglob("*") if p.is_file())
    names = [str(path.relative_to(folder)) for path in found]
    assert names == [".e.txt", "a.txt", "b.txt", "deep/d.txt"]
    assert [path.read_bytes().decode() for path in found] == names
    assert folder.name == "bucket"


@pytest.mark.parametrize("name", ["../a.txt", "a/../../b.txt", "a//b.txt", "./a.txt"])
def test_names_that_lead_out_of_the_folder_are_refused(monkeypatch, copy, name):
    found = remote.Listing("folder", [remote.RemoteObject("a", name, 1, "x", 0)])
    monkeypatch.setattr(remote.Remote, "listing", lambda *arguments: found)
    with pytest.raises(InputError, match="must have a name of a file, got "):
        copy("memory://bucket")


def test_an_object_that_is_a_folder_too_is_refused(bucket, copy, monkeypatch):
    found = [bucket.info(f"/bucket/{name}") for name in ("a.txt", "b.txt")]
    names = "x", "x/y"
    listed = [
        remote._object(info["name"], name, info)
        for info, name in zip(found, names, strict=True)
    ]
    listing = remote.Listing("folder", listed)
    monkeypatch.setattr(remote.Remote, "listing", lambda *arguments: listing)
    with pytest.raises(InputError, match="x/y is the name of an object and of a fold"):
        copy("memory://bucket")


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


@pytest.mark.row("B30")
@pytest.mark.parametrize("fault", ["403", "503"])
def test_no_message_has_a_secret(server, copy, caplog, fault):
    server.faults = [fault] * 99
    url = server.url.replace("//", "//user:hunter2@") + "/texts/a.txt?sig=hunter3"
    with pytest.raises(InputError) as caught:
        copy(url)
    told = [str(caught.value), *caplog.messages]
    told += traceback.format_exception(caught.value)
    assert f"{server.url.replace('//', '//***@')}/texts/a.txt?***" in told[0]
    assert not [line for line in told if "hunter" in line]


class Input:
    """Standard input with these bytes."""

    closed = False

    def __init__(self, data: bytes):
        self.buffer = io.BytesIO(data)


@pytest.mark.row("B24")
@pytest.mark.parametrize(
    ("data", "name"), [(TEXT, "stdin"), (b"\x1f\x8b123", "stdin.gz"), (b"", "stdin")]
)
def test_standard_input_is_kept_by_its_content(monkeypatch, tmp_path, data, name):
    paths = []
    for _ in range(2):
        monkeypatch.setattr("sys.stdin", Input(data))
        paths.append(Path(keep_standard_input("-", tmp_path)))
    assert paths[0] == paths[1] and paths[0].name == name
    assert paths[0].read_bytes() == data and paths[0].stat().st_mtime_ns == 0
    others = {each.name for each in (tmp_path / "remote").iterdir()}
    assert others == {"objects", paths[0].parent.name}


@pytest.mark.row("B24")
def test_closed_standard_input_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="Corpus - is standard input, which is closed"):
        keep_standard_input("-", tmp_path)


def test_a_missing_object_is_not_found(server, copy):
    with pytest.raises(InputNotFoundError):
        copy(f"{server.url}/none.txt")
