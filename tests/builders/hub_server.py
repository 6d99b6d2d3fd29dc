"""A hub on this machine: a server for the part of the hub's protocol that a download needs.

It serves repositories with revisions, ranges, gates, tokens and faults.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Files = Mapping[str, bytes]


@dataclass
class Repository:
    """Revision name -> files. The commit of a revision is a digest of its files."""

    revisions: dict[str, Files]
    gated: bool = False
    private: bool = False

    def commit_of(self, revision: str) -> str | None:
        """The commit of a branch, a tag or a commit; None if there is none."""
        for name, files in self.revisions.items():
            if revision in (name, commit(files)):
                return commit(files)
        return None

    def files_of(self, revision: str) -> Files:
        return next(f for n, f in self.revisions.items() if revision in (n, commit(f)))


@dataclass
class Hub:
    """The served repositories, and the requests so far."""

    url: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    token: str = "hf_good"
    status: int | None = None
    """The answer to every request, instead of the right one."""
    cut_after: int | None = None
    """The connection of the next file breaks after this number of bytes."""
    bytes_per_s: float | None = None
    """Bytes per second for files; None: no limit."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Sizes in the listing instead of the real ones, by file."""
    requests: list[str] = field(default_factory=list)
    """"METHOD path", with " range=..." if a range was requested."""

    def sent(self, suffix: str) -> list[str]:
        """The GET requests of a file."""
        return [line for line in self.requests if line.startswith("GET") and suffix in line]

    def environment(self, home: Path, **variables: str) -> dict[str, str]:
        """The environment of a child process that uses this hub with its own cache."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            kept.pop(name, None)
            kept.pop(name.lower(), None)
        kept.update(HF_ENDPOINT=self.url, HF_HOME=str(home), HF_HUB_DISABLE_TELEMETRY="1")
        return {**kept, **variables}

    def run(self, home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """``onward`` with these words, as a child process that uses this hub."""
        return subprocess.run(
            [sys.executable, "-m", "onward", *words],
            capture_output=True,
            text=True,
            timeout=120,
            env=self.environment(home, **variables),
            stdin=subprocess.DEVNULL,
            check=False,
        )


def commit(files: Files) -> str:
    """The commit of these files: 40 hexadecimal digits."""
    digest = hashlib.sha1()
    for name, content in sorted(files.items()):
        digest.update(name.encode() + b"\0" + hashlib.sha1(content).digest())
    return digest.hexdigest()


def folder_files(folder: Path) -> dict[str, bytes]:
    """The files of a folder, in the form of a repository."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@contextmanager
def serving(**repositories: Repository) -> Iterator[Hub]:
    """A hub on the loopback interface during a block; "owner__name" is owner/name."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
    hub.repositories = {name.replace("__", "/"): each for name, each in repositories.items()}
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> Hub:
        return self.server.hub  # type: ignore[attr-defined,no-any-return]

    def log_message(self, format: str, *arguments: object) -> None:
        """Print no log to stderr."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        asked = self.headers.get("Range")
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        self.hub.requests.append(f"{self.command} {path}" + (f" range={asked}" if asked else ""))
        if self.hub.status is not None:
            return self._send(self.hub.status, b"", {})
        match = re.fullmatch(
            r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path
        ) or re.fullmatch(r"/([^/]+/[^/]+)/(resolve)/([^/]+)/(.+)", path)
        if match is None:
            return self._send(404, b"", {})
        repository = self.hub.repositories.get(match[1])
        authorization = self.headers.get("Authorization")
        known = authorization == f"Bearer {self.hub.token}"
        if authorization is not None and not known:
            message = {"X-Error-Message": "Invalid credentials in Authorization header"}
            return self._send(401, b"", message)
        if repository is None or (repository.private and not known):
            status = 404 if known else 401
            return self._send(status, b"", {"X-Error-Code": "RepoNotFound"})
        if repository.gated and not known and match[2] == "resolve":
            return self._send(403, b"", {"X-Error-Code": "GatedRepo"})
        commit_hash = repository.commit_of(match[3] or "main")
        if commit_hash is None:
            return self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        files = repository.files_of(commit_hash)
        if match[2] == "resolve":
            return self._file(files, match[4], commit_hash)
        if match[2] == "tree":
            listing = [self._entry(name, content) for name, content in files.items()]
            return self._json(listing)
        siblings = [
            {"rfilename": name, "size": self._size(name, content), "blobId": _digest(content)}
            for name, content in files.items()
        ]
        self._json({"id": match[1], "modelId": match[1], "sha": commit_hash, "siblings": siblings})

    def _entry(self, name: str, content: bytes) -> dict[str, object]:
        size = self._size(name, content)
        return {"type": "file", "path": name, "size": size, "oid": _digest(content)}

    def _size(self, name: str, content: bytes) -> int:
        return self.hub.sizes.get(name, len(content))

    def _file(self, files: Files, name: str, commit_hash: str) -> None:
        headers = {"X-Repo-Commit": commit_hash, "Accept-Ranges": "bytes"}
        if name not in files:
            return self._send(404, b"", {**headers, "X-Error-Code": "EntryNotFound"})
        content = files[name]
        headers["ETag"] = f'"{_digest(content)}"'
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if part is None:
            return self._send(200, content, headers)
        begin = int(part[1])
        end = int(part[2]) + 1 if part[2] else len(content)
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        self._send(206, content[begin:end], headers)

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        limit, serves_file = self.hub.cut_after, "ETag" in headers
        if serves_file and limit is not None and len(body) > limit:
            self.hub.cut_after = None
            self.wfile.write(body[:limit])
            self.close_connection = True
            return
        if serves_file and self.hub.bytes_per_s is not None:
            piece = 1 << 20
            for begin in range(0, len(body), piece):
                self.wfile.write(body[begin : begin + piece])
                time.sleep(piece / self.hub.bytes_per_s)
            return
        self.wfile.write(body)


def _digest(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
