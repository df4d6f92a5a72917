"""One server over several nodes: ranks find each other at rank 0's address, start together, and none outlives another."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from typing import Any

from lab.sglang.engine import log

JOIN_S = 600.0  # torch gives a process group ten minutes
RETRY_S = 0.3
BYE = b"bye\n"


def per_node(args: dict[str, Any]) -> int:
    """GPUs that this node's part of the server takes."""
    ranks = int(args.get("tp_size") or 1) * int(args.get("pp_size") or 1)
    nodes = int(args.get("nnodes") or 1)
    if ranks % nodes:
        raise SystemExit(f"AssertionError: tp_size x pp_size is {ranks}, which {nodes} nodes cannot share")
    return ranks // nodes


class Group:
    """The connections between rank 0 and the others; a thread watches each of them."""

    def __init__(self, args: dict[str, Any]) -> None:
        self.nodes, self.rank = int(args.get("nnodes") or 1), int(args.get("node_rank") or 0)
        if self.nodes > 1 and not args.get("dist_init_addr"):
            raise SystemExit("AssertionError: --dist-init-addr is needed with --nnodes")
        if not 0 <= self.rank < self.nodes:
            raise SystemExit(f"AssertionError: --node-rank {self.rank} with --nnodes {self.nodes}")
        host, _, port = str(args.get("dist_init_addr") or "").rpartition(":")
        self.address = (host, int(port or 0))
        self.links: list[socket.socket] = []
        self.ending = False

    def join(self) -> None:
        """Return when every rank is there; SystemExit when one does not come in time."""
        if self.nodes == 1:
            return
        until = time.monotonic() + JOIN_S
        self._gather(until) if self.rank == 0 else self._reach(until)
        for link in self.links:
            threading.Thread(target=self._watch, args=(link,), daemon=True).start()

    def _gather(self, until: float) -> None:
        with socket.create_server(self.address) as server:
            joined: dict[int, socket.socket] = {}
            while len(joined) < self.nodes - 1:
                server.settimeout(max(0.1, until - time.monotonic()))
                try:
                    link, _ = server.accept()
                except TimeoutError:
                    lacking = [rank for rank in range(1, self.nodes) if rank not in joined]
                    raise SystemExit(
                        f"torch.distributed.DistStoreError: Timed out after {JOIN_S:.0f} seconds waiting for clients. "
                        f"{len(joined) + 1}/{self.nodes} clients joined (node ranks {lacking} did not)."
                    ) from None
                link.settimeout(10)
                with contextlib.suppress(OSError, ValueError):
                    said = json.loads(link.makefile("rb").readline())
                    if said.get("nodes") == self.nodes:
                        joined[int(said["rank"])] = link
        for link in joined.values():
            link.settimeout(None)
            link.sendall(b"go\n")
        self.links = list(joined.values())

    def _reach(self, until: float) -> None:
        while True:
            try:
                link = socket.create_connection(self.address, timeout=5)
                link.sendall(json.dumps({"rank": self.rank, "nodes": self.nodes}).encode() + b"\n")
                link.settimeout(max(0.1, until - time.monotonic()))
                if link.recv(3) == b"go\n":
                    link.settimeout(None)
                    self.links = [link]
                    return
                link.close()
            except OSError:
                pass
            if time.monotonic() > until:
                raise SystemExit(
                    f"torch.distributed.DistNetworkError: The client socket has timed out after {JOIN_S:.0f}s while trying to connect to "
                    f"({self.address[0]}, {self.address[1]})."
                )
            time.sleep(RETRY_S)

    def _watch(self, link: socket.socket) -> None:
        """Wait until the other side ends: in order (rank 0 tells the others to stop), or lost."""
        said = b""
        peer = "?"
        with contextlib.suppress(OSError):
            peer = "{}:{}".format(*link.getpeername()[:2])
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
            said = link.recv(4)
        if self.ending:
            return
        if said == BYE:
            self.ending = True
            os.kill(os.getpid(), signal.SIGUSR1)
            return
        log(
            "Scheduler hit an exception: Traceback (most recent call last):\n  ...\n"
            f"RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [{peer}]\n"
        )
        log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        log(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
        os.kill(os.getpid(), signal.SIGKILL)

    def end(self) -> None:
        """Rank 0 stops in order: the others are told."""
        self.ending = True
        for link in self.links:
            with contextlib.suppress(OSError):
                link.sendall(BYE)
