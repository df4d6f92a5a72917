"""Serve folders as repositories of a model hub (HF_ENDPOINT), with resumable transfers, a speed limit and faults.

    python3 -m lab.hub.server ROOT --port 8090 [--rate BYTES_PER_S] [--cut-after BYTES] [--corrupt FILE]

ROOT/ORG/NAME holds a repository's files; its commit is made of their content. Standard library only. Answers as huggingface_hub 2 expects:
the API of models (revision, tree), and HEAD and GET of /ORG/NAME/resolve/REV/FILE with ETag, X-Repo-Commit and ranges.
`--cut-after` closes the connection once after so many bytes of a file; `--corrupt` flips one byte of a file while its ETag stays.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CHUNK = 64 * 1024
LARGE = 1024
"""Files from this size on are named by their SHA-256 as large files are, smaller ones by git's SHA-1."""


def etag(file: Path) -> str:
    """The hash that the hub names a file by."""
    data = file.read_bytes()
    if len(data) >= LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()


def commit_of(repository: Path) -> str:
    """A commit that follows from the repository's content."""
    digest = hashlib.sha1(usedforsecurity=False)
    for file in files_of(repository):
        digest.update(f"{file.relative_to(repository)} {etag(file)}\n".encode())
    return digest.hexdigest()


def files_of(repository: Path) -> list[Path]:
    """The repository's files in order."""
    return sorted(path for path in repository.rglob("*") if path.is_file())


class Handler(BaseHTTPRequestHandler):
    """One request; settings are on the server."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def do_HEAD(self) -> None:
        self._route(body=False)

    def do_GET(self) -> None:
        self._route(body=True)

    def log_message(self, text: str, *arguments: Any) -> None:
        print(f"hub: {text % arguments} {self.headers.get('Range', '')}".rstrip(), flush=True)

    def _route(self, *, body: bool) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+?)(?:/(revision|tree)/([^/]+)(/.*)?)?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        match = api or file
        repository = self.server.root / match[1] if match else None
        if repository is None or not repository.is_dir():
            self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"}, body=body)
            return
        commit = commit_of(repository)
        asked = (api[3] if api else file[2]) if match else ""  # type: ignore[index]
        if asked and asked not in {"main", commit}:
            self._json({"error": f"Invalid rev id: {asked}"}, 404, {"X-Error-Code": "RevisionNotFound"}, body=body)
        elif api:
            self._api(match[1], repository, commit, tree=api[2] == "tree", body=body)
        elif file:
            self._file(repository / file[3], commit, body=body)

    def _api(self, name: str, repository: Path, commit: str, *, tree: bool, body: bool) -> None:
        entries = []
        for file in files_of(repository):
            entry: dict[str, Any] = {
                "type": "file",
                "path": str(file.relative_to(repository)),
                "size": file.stat().st_size,
                "oid": etag(file),
            }
            if file.stat().st_size >= LARGE:
                entry["lfs"] = {"oid": etag(file), "size": file.stat().st_size, "pointerSize": 100}
            entries.append(entry)
        if tree:
            self._json(entries, 200, {}, body=body)
            return
        siblings = [{"rfilename": entry["path"], "size": entry["size"], "blobId": entry["oid"]} for entry in entries]
        answer = {"_id": "0", "id": name, "modelId": name, "sha": commit, "private": False, "gated": False, "disabled": False,
                  "downloads": 0, "likes": 0, "tags": [], "siblings": siblings}  # fmt: skip
        self._json(answer, 200, {}, body=body)

    def _file(self, path: Path, commit: str, *, body: bool) -> None:
        if not path.is_file():
            self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, body=body)
            return
        data = path.read_bytes()
        tag = etag(path)
        if path.name == self.server.corrupt:
            data = data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 0xFF]) + data[len(data) // 2 + 1 :]
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first = int(span[1]) if span else 0
        last = min(int(span[2]), len(data) - 1) if span and span[2] else len(data) - 1
        self.send_response(206 if span else 200)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("ETag", f'"{tag}"')
        self.send_header("X-Repo-Commit", commit)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("X-Linked-Etag", f'"{tag}"')
        self.send_header("X-Linked-Size", str(len(data)))
        if span:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.end_headers()
        if body:
            self._send(path.name, data[first : last + 1])

    def _send(self, name: str, data: bytes) -> None:
        for start in range(0, len(data), CHUNK):
            if self.server.cut_after and name not in self.server.cut and start >= self.server.cut_after:
                self.server.cut.add(name)
                self.close_connection = True
                self.connection.shutdown(2)
                return
            piece = data[start : start + CHUNK]
            self.wfile.write(piece)
            if self.server.rate:
                time.sleep(len(piece) / self.server.rate)

    def _json(self, value: Any, status: int, headers: dict[str, str], *, body: bool) -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        if body:
            self.wfile.write(raw)


class Hub(ThreadingHTTPServer):
    """The server with its settings; ``cut`` remembers which files were cut once already."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], root: Path, *, rate: int = 0, cut_after: int = 0, corrupt: str = "") -> None:
        super().__init__(address, Handler)
        self.root = root
        self.rate = rate
        self.cut_after = cut_after
        self.corrupt = corrupt
        self.cut: set[str] = set()


def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--cut-after", type=int, default=0)
    parser.add_argument("--corrupt", default="")
    options = parser.parse_args()
    hub = Hub((options.host, options.port), options.root, rate=options.rate, cut_after=options.cut_after, corrupt=options.corrupt)
    print(f"hub: {options.root} on http://{options.host}:{hub.server_port}", flush=True)
    hub.serve_forever()


if __name__ == "__main__":
    main()
