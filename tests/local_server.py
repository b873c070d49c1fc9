"""A web server on this machine, for tests that download: nothing leaves it."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klnmf.datasets.files import RemoteFile


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ``server.content`` with ranges; cuts the first ``server.cuts`` answers short."""

    def do_GET(self) -> None:
        server: Any = self.server
        content = server.content.get(self.path.lstrip("/"))
        server.requests.append((self.path, self.headers.get("Range")))
        if content is None:
            self.send_error(404)
            return
        start = 0
        if server.ranges and "Range" in self.headers:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        if server.cuts:
            server.cuts -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    """A web server whose files are the entries of ``server.content``."""
    running: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.content, running.requests, running.cuts, running.ranges = {}, [], 0, True
    running.url = f"http://127.0.0.1:{running.server_address[1]}"
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def no_folders_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KLNMF_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def offer(server: Any, name: str, content: bytes, checksum: bool = True) -> RemoteFile:
    """Put a file on the server."""
    server.content[name] = content
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    return RemoteFile(name, f"{server.url}/{name}", digest if checksum else None)
