"""A release with a hand-written sglang of a dozen flags and the stand-in's hook beside it, started as a real one is."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from lab.sglang import checkpoint, wheel

ROOT = Path(__file__).resolve().parents[3]
SERVER_ARGS = """
class ServerArgs:
    model_path: A[str, Arg(help="weights", aliases=["--model"])]
    host: A[str, "host"] = "127.0.0.1"
    port: A[int, "port"] = 30000
    served_model_name: A[Optional[str], "name"] = None
    max_running_requests: A[Optional[int], "cap"] = None
    max_total_tokens: A[Optional[int], "cache"] = None
    tp_size: A[int, Arg(help="ranks", aliases=["--tensor-parallel-size"])] = 1
    pp_size: A[int, Arg(help="stages", aliases=["--pipeline-parallel-size"])] = 1
    nnodes: A[int, "nodes"] = 1
    node_rank: A[int, "rank"] = 0
    dist_init_addr: A[Optional[str], "address of rank 0"] = None
    mem_fraction_static: A[Optional[float], "fraction"] = None
    api_key: A[Optional[str], "key"] = None
    enable_metrics: A[bool, "metrics"] = False
    disable_flashinfer_autotune: A[bool, "autotune"] = False
    speculative_algorithm: A[Optional[str], "speculation"] = None
    ssl_certfile: A[Optional[str], "certificate"] = None
    ssl_keyfile: A[Optional[str], "key"] = None

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--config", type=str, help="file")
"""
HTTP_SERVER = '''
@app.post("/v1/completions", dependencies=[Depends(validate_json_request)])
async def openai_v1_completions(request, raw_request):
    """Here a traceback would point."""
'''


class Release:
    """One release in a folder, and the servers started from it."""

    def __init__(self, folder: Path) -> None:
        self.site = folder / "site"
        srt = self.site / "sglang" / "srt"
        (srt / "entrypoints").mkdir(parents=True)
        (self.site / "sglang" / "__init__.py").write_text("import torch  # a release without its dependencies does not import\n")
        (srt / "server_args.py").write_text(SERVER_ARGS)
        (srt / "entrypoints" / "http_server.py").write_text(HTTP_SERVER)
        info = self.site / "sglang-0.5.23.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.23\n")
        with zipfile.ZipFile(wheel.build(folder / "wheels")) as archive:
            archive.extractall(self.site)
        self.settings = folder / "settings.json"
        self.set()
        self.model = checkpoint.create(folder / "hub")
        self.log = folder / "server.log"
        self.processes: list[subprocess.Popen[bytes]] = []
        # site.py reads .pth files of site folders only: this release is a folder on PYTHONPATH, so a customisation imports its hook.
        (self.site / "sitecustomize.py").write_text("import gpunode_lab_sglang\n")

    def set(self, **values: Any) -> None:
        """Change the stand-in's settings; faults take hold at once."""
        self.settings.write_text(json.dumps({"load_s": 0.2, "time_scale": 20, "check_gpus": False, **values}))

    def start(self, *flags: str) -> subprocess.Popen[bytes]:
        """Start `python -m sglang.launch_server` and return at once."""
        environment = os.environ | {"PYTHONPATH": str(self.site), "GPUNODE_LAB_ROOT": str(ROOT), "GPUNODE_LAB_SGLANG": str(self.settings)}
        command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(self.model), *flags]
        with self.log.open("wb") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
        return self.processes[-1]

    def serve(self, *flags: str, scheme: str = "http", context: Any = None) -> str:
        """Start it on a free port, wait until it is healthy, and return its address."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = self.start("--port", str(port), "--served-model-name", "glm-5", "--tp-size", "8", "--enable-metrics", *flags)
        url = f"{scheme}://127.0.0.1:{port}"
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if process.poll() is not None:
                raise RuntimeError(self.log.read_text())
            try:
                with urllib.request.urlopen(url + "/health", timeout=5, context=context):
                    return url
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise RuntimeError(f"not healthy: {self.log.read_text()}")

    def stop(self) -> None:
        """End every server that was started."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=10)
        self.processes.clear()
