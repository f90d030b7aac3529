"""Servers on the loopback interface for tests of remote data, with faults."""

import contextlib
import hashlib
import http.client
import http.server
import re
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import NamedTuple
from urllib.parse import urlsplit

CHANGED = 1_700_000_000  # seconds: when the objects changed
Fault = str | Callable[[], None]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`, or all that another server has, with the next of its `faults`.

    A fault is of one GET of an object: "503", "403", "cut", "slow", or a function that
    is called before the answer. Those of `put_faults` are of one request that writes:
    "503", "403", or "cut", after which the object may be there.
    """

    daemon_threads = True

    def __init__(self, behind: str = ""):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.behind = behind
        self.files: dict[str, bytes] = {}
        self.has_ranges = self.has_tags = True
        self.is_away = False
        self.faults: list[Fault] = []
        self.put_faults: list[str] = []
        self.gets: list[str] = []  # paths of objects that were read
        self.bytes_sent = 0

    def answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes = b""
    ) -> Answer:
        if self.behind:
            return _forwarded(self.behind, method, path, headers, body)
        data = self.files.get(urlsplit(path).path)
        if data is None:
            return Answer(404, {}, b"")
        found = {"Content-Type": "text/plain"}
        if self.has_tags:
            found["ETag"] = f'"{hashlib.md5(data).hexdigest()}"'
            found["Last-Modified"] = formatdate(CHANGED, usegmt=True)
        limits = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("Range", ""))
        if limits and self.has_ranges:
            first, last = map(int, limits.groups())
            found["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            return Answer(206, found, data[first : last + 1])
        return Answer(200, found, data)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests, and injects faults into those that read an object."""

    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments) -> None:
        """Logs nothing."""

    def parse_request(self) -> bool:
        """Whether to answer: not on a connection that outlives the server."""
        is_whole = super().parse_request()
        self.close_connection |= self.server.is_away
        return is_whole and not self.server.is_away

    def do_HEAD(self) -> None:
        self._send(self.server.answer("HEAD", self.path, dict(self.headers)))

    def do_GET(self) -> None:
        server, is_listing = self.server, "list-type=" in self.path
        fault: Fault = ""
        if not is_listing:
            server.gets.append(urlsplit(self.path).path)
            fault = server.faults.pop(0) if server.faults else ""
        if callable(fault):
            fault()
        if fault in ("503", "403"):
            return self._send(Answer(int(fault), {}, b"no"))
        found = server.answer("GET", self.path, dict(self.headers))
        self._send(found, fault if isinstance(fault, str) else "")
        server.bytes_sent += 0 if is_listing else len(found.body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = self.server
        fault = server.put_faults.pop(0) if server.put_faults else ""
        if fault in ("503", "403"):
            return self._send(Answer(int(fault), {}, b"no"))
        found = server.answer(self.command, self.path, dict(self.headers), body)
        if fault == "cut":
            self.close_connection = True
        else:
            self._send(found)

    do_POST = do_DELETE = do_PUT

    def _send(self, found: Answer, fault: str = "") -> None:
        self.send_response(found.status)
        for name, value in found.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in found.headers:
            self.send_header("Content-Length", str(len(found.body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "cut":
            self.wfile.write(found.body[: len(found.body) // 2])
            self.close_connection = True
            return
        for start in range(0, len(found.body), 7) if fault == "slow" else ():
            self.wfile.write(found.body[start : start + 7])
            self.wfile.flush()
            time.sleep(0.001)
        if fault != "slow":
            self.wfile.write(found.body)


def _forwarded(
    url: str, method: str, path: str, headers: dict[str, str], body: bytes
) -> Answer:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    with contextlib.closing(connection):
        headers = {k: v for k, v in headers.items() if k.lower() != "expect"}
        connection.request(method, path, body=body or None, headers=headers)
        got = connection.getresponse()
        skipped = "transfer-encoding", "connection", "date", "server"
        kept = {k: v for k, v in got.getheaders() if k.lower() not in skipped}
        return Answer(got.status, kept, got.read())


@contextlib.contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.is_away = True
        server.shutdown()
        thread.join()
        server.server_close()
