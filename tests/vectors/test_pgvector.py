"""SQL for pgvector, loaded into a PostgreSQL of the test's own."""

import csv
import io
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.vectors.export import write_vectors
from embedder.vectors.vectors import Vectors
from tests.commands import SECONDS

KEYS = [
    *("the", "naïve", "猫", "a\tb", "a\nb", "a\r\nb", "\\", "\\N", "\\.", "\\t", "'"),
    '"',
    *("'; DROP TABLE embeddings; --", "$$", ":table", "\x01", "x" * 2600, " ", "{}"),
]
MATRIX = np.random.default_rng(0).normal(size=(len(KEYS), 5)).astype(np.float32)
MATRIX[0] = [0.0, 3e38, -1e-30, 1 / 3, 1e-45]
VECTORS = Vectors(KEYS, MATRIX, np.arange(len(KEYS))[::-1])


class Server:
    """A PostgreSQL of an unprivileged user that listens on a socket in its folder."""

    def __init__(self, folder: Path, programs: Path):
        self.folder, self._programs = folder, programs
        self._user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid())[0]
        if os.getuid() == 0:
            shutil.chown(folder, self._user)
            folder.chmod(0o755)

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What a program printed; its newlines stay as they are."""
        command = [str(self._programs / program), *arguments]
        user = {"user": self._user} if os.getuid() == 0 else {}
        done = subprocess.run(
            command,
            capture_output=True,
            cwd=self.folder,
            env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]},
            timeout=SECONDS,
            **user,
        )
        printed = done.stdout.decode(), done.stderr.decode()
        return subprocess.CompletedProcess(command, done.returncode, *printed)

    def psql(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        where = ("-h", str(self.folder), "-U", "test", "-d", "postgres")
        return self.run("psql", "-X", "-q", *where, *arguments)

    def rows(self, query: str) -> list[list[str]]:
        found = self.psql("-v", "ON_ERROR_STOP=1", "--csv", "-t", "-c", query)
        assert found.returncode == 0, found.stderr
        return [*csv.reader(io.StringIO(found.stdout, newline=""))]


def programs() -> Path | None:
    """The folder of PostgreSQL's programs, if it has pgvector, too."""
    found = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found is None and not debian:
        return None
    folder = Path(found or debian[-1]).resolve().parent
    asked = [str(folder / "pg_config"), "--sharedir"]
    share = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return folder if Path(share, "extension/vector.control").exists() else None


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    found = programs()
    if found is None:
        pytest.skip("needs PostgreSQL with the extension pgvector")
    import tempfile

    with tempfile.TemporaryDirectory(prefix="pg") as short:  # a socket's path is short
        server = Server(Path(short), found)
        data = str(server.folder / "data")
        options = ("-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-sync")
        done = server.run("initdb", *options)
        assert done.returncode == 0, done.stderr
        log = str(server.folder / "log")
        settings = f"-k {server.folder} -c listen_addresses='' -c fsync=off"
        done = server.run(
            "pg_ctl", "-D", data, "-w", "-l", log, "-o", settings, "start"
        )
        assert done.returncode == 0, Path(log).read_text()
        yield server
        server.run("pg_ctl", "-D", data, "-m", "immediate", "stop")


def load(
    server: Server,
    vectors: Vectors,
    table: str | None = None,
    *flags: str,
    **options,
) -> None:
    path = server.folder / "load.sql"
    write_vectors(vectors, path, **options)
    path.chmod(0o644)
    name = ("-v", f"table={table}") if table else ()
    done = server.psql(*name, *flags, "-f", str(path))
    assert done.returncode == 0, done.stderr


def test_postgresql_holds_the_keys_and_vectors(server):
    load(server, VECTORS)
    rows = server.rows("SELECT key, count, vector FROM embeddings ORDER BY count DESC")
    assert [key for key, _, _ in rows] == KEYS
    assert [int(count) for _, count, _ in rows] == VECTORS.counts.tolist()
    values = [np.array(row[2].strip("[]").split(","), np.float32) for row in rows]
    np.testing.assert_array_equal(values, MATRIX)


def test_postgresql_finds_the_neighbours(server):
    rng = np.random.default_rng(1)
    some = Vectors([f"k{i}" for i in range(50)], rng.normal(size=(50, 8)))
    load(server, some, 'odd "name"')
    found = server.rows(
        'SELECT key FROM "odd ""name""" WHERE key <> \'k3\' ORDER BY vector <=> '
        '(SELECT vector FROM "odd ""name""" WHERE key = \'k3\') LIMIT 10'
    )
    expected = [key for key, _ in some.most_similar("k3", topn=10)]
    assert [key for (key,) in found] == expected


def test_vectors_of_16_bits(server):
    small = Vectors(["a", "b"], np.array([[0.1, -1e-7, 65504], [1 / 3, 0, 3]]))
    load(server, small, "small", dtype="float16")
    rows = server.rows("SELECT key, vector, pg_typeof(vector) FROM small ORDER BY key")
    assert [row[::2] for row in rows] == [["a", "halfvec"], ["b", "halfvec"]]
    values = [np.array(row[1].strip("[]").split(","), np.float32) for row in rows]
    np.testing.assert_array_equal(values, small.matrix.astype(np.float16))


def test_another_file_replaces_the_rows_and_keeps_columns_of_the_user(server):
    load(server, Vectors(["a", "b"], np.eye(2)), "again")
    added = "ALTER TABLE again ADD COLUMN own text; UPDATE again SET own = 'mine'"
    assert server.psql("-c", added).returncode == 0
    load(server, Vectors(["b", "c"], 2 * np.eye(2)), "again", "-v", "replace=yes")
    rows = server.rows("SELECT key, vector, own FROM again ORDER BY key")
    assert rows == [["b", "[2,0]", "mine"], ["c", "[0,2]", ""]]


def test_names_are_columns(server):
    names = pl.DataFrame(
        {
            "a title": ["x\ty", None, 'of ":table"'],
            "price": [1.5, -2.0, None],
            "stock": [2**62, 0, None],
            "sold": [True, None, False],
        }
    )
    vectors = Vectors(["a", "b", "c"], np.eye(3), np.array([3, 2, 1]))
    load(server, vectors, "named", columns=names)
    rows = server.rows("SELECT * FROM named ORDER BY count DESC")
    assert [row[:-2] for row in rows] == [
        ["a", "x\ty", "1.5", str(2**62), "t"],
        ["b", "", "-2", "0", ""],
        ["c", 'of ":table"', "", "", "f"],
    ]


def test_integer_keys_are_numbers(server):
    load(server, Vectors(["7", "-3"], np.eye(2), key_type="integer"), "numbers")
    assert server.rows("SELECT sum(key), min(vector::text) FROM numbers") == [
        ["4", "[0,1]"]
    ]


def test_a_table_that_exists_is_kept(server):
    load(server, Vectors(["old"], np.eye(1)), "twice")
    path = server.folder / "load.sql"
    write_vectors(Vectors(["new"], np.eye(1)), path)
    done = server.psql("-v", "table=twice", "-f", str(path))
    assert done.returncode == 3 and 'relation "twice" already exists' in done.stderr
    assert server.rows("SELECT key FROM twice") == [["old"]]


def test_the_file_without_counts(tmp_path):
    write_vectors(Vectors(["a\\b"], np.array([[1.0, -0.5]])), tmp_path / "v.sql")
    text = (tmp_path / "v.sql").read_text()
    assert "(key, vector) FROM STDIN;\na\\\\b\t[1.0,-0.5]\n\\.\n" in text
    assert "count" not in text and "vector vector(2) NOT NULL" in text
