# ruff: noqa: PTH110, PTH112, PTH115, PTH116, PTH119, PTH123, PTH207
"""Reading a machine: one file of standard library, run here or streamed to `python3 -` over ssh and into containers.

It decides nothing and changes nothing. Every command has a deadline; what a missing program, a missing right or a hanging driver hides is
left out or marked, never guessed. Nothing secret is kept: of the kernel's messages those about devices, of a container's configuration the
lines about devices, of the command line no value that looks like a key. Paths by os, not pathlib: twice as quick over hundreds of files.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

COMMANDS = (
    "nvidia-smi topo -m",
    "nvidia-smi topo -p2p r",
    "nvidia-smi topo -p2p w",
    "nvidia-smi topo -p2p n",
    "nvidia-smi topo -p2p a",
    "nvidia-smi topo -p2p p",
    "nvidia-smi -q",
    "nvidia-smi -q -x",
    "nvidia-smi nvlink -s",
    "lspci -vvv",
    "dkms status",
    "dmesg",
    "uname -r",
    "mokutil --sb-state",
    "modinfo -F version nvidia",
    "modinfo -F license nvidia",
)
CONTAINER_COMMANDS = ("nvidia-smi -L",)
FILES = (
    "/proc/cmdline",
    "/proc/devices",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/random/boot_id",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/sys/module/nvidia/version",
    "/sys/module/nvidia_uvm/version",
    "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
    "/sys/module/nouveau/initstate",
    "/sys/module/nova_core/initstate",
    "/sys/class/dmi/id/bios_vendor",
    "/sys/class/dmi/id/bios_version",
    "/sys/class/dmi/id/bios_date",
    "/sys/class/dmi/id/board_name",
)
CONTAINER_FILES = ("/proc/driver/nvidia/version",)
GLOBS = (
    "/proc/driver/nvidia/gpus/*/information",
    "/etc/modprobe.d/*.conf",
    "/run/modprobe.d/*.conf",
    "/usr/lib/modprobe.d/nvidia*.conf",
)
CACHES = (
    *(
        f"{home}/.cache/{server}/gpu_p2p_access_cache_for_*.json"
        for home in ("/root", "/home/*", "/var/lib/*")
        for server in ("sglang", "vllm")
    ),
    "/var/cache/*/gpu_p2p_access_cache_for_*.json",
)
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64")
DEVICE_FILES = (
    "vendor",
    "device",
    "class",
    "numa_node",
    "local_cpulist",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
    "aer_dev_correctable",
    "aer_dev_nonfatal",
    "aer_dev_fatal",
)
PCI = "/sys/bus/pci/devices"
NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
FILE_LIMIT = 1 << 20
SECRET = re.compile(r"(?i)(\S*(?:pass|secret|token|credential|apikey|api_key|luks|key)\S*?=)(\S+)")
LOG = re.compile(
    r"(?i)nvrm|nvidia|nouveau|nova|xid|vfio|iommu|amd-vi|dmar|\bpci|pcie|aer:|command line|linux version|io_page_fault|acs |"
    r"secure ?boot|lockdown|module verification|key was rejected|unsigned module|bar \d|fallen off|PCI ID: 10de|kernel module|this kernel"
)
CONFIG_LINE = re.compile(r"(?:dev\d+|lxc\.mount\.entry|lxc\.cgroup2?\.devices\.\w+|features|unprivileged|onboot|cores|arch|lock)\s*[:=]|\[")
KILL_WAIT_S = 2.0


def run_command(line: str, timeout: float) -> dict[str, Any] | None:
    """Run one command without a shell; None when the program does not exist; rc None when it overran its deadline and was killed."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin:/sbin:/bin"}
    try:
        process = subprocess.Popen(
            line.split(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        return {"rc": 126, "stdout": "", "stderr": str(error)}
    try:
        out, err = process.communicate(timeout=timeout)
        return {"rc": process.returncode, "stdout": out.decode("utf-8", "replace"), "stderr": err.decode("utf-8", "replace")}
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    note = f"ended after {timeout:g} s without an answer"
    try:
        process.communicate(timeout=KILL_WAIT_S)
    except subprocess.TimeoutExpired:  # it hangs in the kernel: leave it
        note += f"; process {process.pid} cannot be killed"
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
    return {"rc": None, "stdout": "", "stderr": note}


class Gatherer:
    """Collects one part of a snapshot; ``errors`` tells why something is not in it."""

    def __init__(self) -> None:
        self.part: dict[str, Any] = {"commands": {}, "files": {}, "links": {}, "nodes": {}}
        self.errors: dict[str, str] = {}

    def file(self, path: str) -> str | None:
        """Read a text file into the part; null when it does not exist, left out when it may not be read."""
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                text = stream.read(FILE_LIMIT)
        except (FileNotFoundError, NotADirectoryError):
            self.part["files"][path] = None
            return None
        except OSError as error:
            self.errors[path] = error.strerror or str(error)
            return None
        if path == "/proc/cmdline":
            text = SECRET.sub(r"\1***", text)
        self.part["files"][path] = text
        return text

    def link(self, path: str, *, whole: bool = False) -> str | None:
        """Read a symbolic link into the part, ``whole`` to its end; null when it does not exist."""
        try:
            target = os.readlink(path)
        except FileNotFoundError:
            self.part["links"][path] = None
            return None
        except OSError as error:
            self.errors[path] = error.strerror or str(error)
            return None
        target = os.path.realpath(path) if whole else target
        self.part["links"][path] = target
        return target

    def node(self, path: str) -> None:
        """Look at a device node; null when it does not exist."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            self.part["nodes"][path] = None
            return
        except OSError as error:
            self.errors[path] = error.strerror or str(error)
            return
        if stat.S_ISCHR(status.st_mode):
            self.part["nodes"][path] = {
                "major": os.major(status.st_rdev),
                "minor": os.minor(status.st_rdev),
                "mode": f"{stat.S_IMODE(status.st_mode):04o}",
                "uid": status.st_uid,
                "gid": status.st_gid,
            }

    def devices(self) -> int:
        """Read NVIDIA's and display devices with the bridges above them; return the number of NVIDIA GPUs."""
        gpus = 0
        wanted: set[str] = set()
        for base in sorted(glob.glob(PCI + "/*")):
            vendor, kind = _plain(base + "/vendor"), _plain(base + "/class")
            if not kind.startswith("0x03"):
                continue
            real = os.path.realpath(base)
            wanted.add(os.path.basename(base))
            if vendor == "0x10de":
                gpus += 1
                wanted.update(re.findall(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", real))
        for bdf in sorted(wanted):
            base = f"{PCI}/{bdf}"
            for name in DEVICE_FILES:
                if os.path.exists(f"{base}/{name}"):
                    self.file(f"{base}/{name}")
            self.link(base)
            self.link(base + "/driver")
            if group := self.link(base + "/iommu_group"):
                self.file("/sys/kernel/iommu_groups/" + os.path.basename(group) + "/type")
        return gpus

    def kernels(self) -> None:
        """Look for the headers of each installed kernel."""
        running = os.uname().release
        installed = {os.path.basename(path)[8:] for path in glob.glob("/boot/vmlinuz-*")} | {running}
        for release in sorted(installed):
            if release != running and not os.path.isdir(f"/lib/modules/{release}"):
                continue
            if self.link(f"/lib/modules/{release}/build") is not None:
                self.file(f"/lib/modules/{release}/build/include/config/kernel.release")

    def containers(self) -> None:
        """Keep what container configurations say about devices."""
        for path in sorted(glob.glob("/etc/pve/lxc/*.conf")):
            text = self.file(path)
            if text is not None:
                kept = [line for line in text.splitlines() if CONFIG_LINE.match(line)]
                self.part["files"][path] = "".join(line + "\n" for line in kept)

    def commands(self, lines: tuple[str, ...], timeout: float) -> None:
        """Run commands side by side: a hanging driver costs one deadline, not one for each."""
        with ThreadPoolExecutor(max_workers=len(lines)) as pool:
            for line, result in zip(lines, pool.map(lambda line: run_command(line, timeout), lines), strict=True):
                if line == "dmesg" and result and result["rc"] == 0:
                    kept = [text for text in result["stdout"].splitlines() if LOG.search(text)]
                    result["stdout"] = "".join(SECRET.sub(r"\1***", text) + "\n" for text in kept)
                self.part["commands"][line] = result


def _plain(path: str) -> str:
    try:
        with open(path, encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def gather(inside: bool = False, timeout: float = 20.0) -> dict[str, Any]:
    """Return what this machine says, as the keys of a snapshot (``inside``: as those of its ``container``), with ``errors``."""
    found = Gatherer()
    for path in CONTAINER_FILES if inside else FILES:
        found.file(path)
    for pattern in CACHES if inside else GLOBS + CACHES:
        for path in sorted(glob.glob(pattern)):
            found.file(path)
    gpus = len(glob.glob("/proc/driver/nvidia/gpus/*"))
    if not inside:
        gpus = max(gpus, found.devices())
        found.kernels()
        found.containers()
    for folder in LIBRARIES:
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            if os.path.lexists(f"{folder}/{name}"):
                found.link(f"{folder}/{name}", whole=True)
    minors = {path for path in glob.glob("/dev/nvidia[0-9]*") if path[11:].isdecimal()}
    if not inside:
        minors |= {f"/dev/nvidia{number}" for number in range(gpus)}
    for path in [*sorted(minors), *NODES]:
        found.node(path)
    found.commands(CONTAINER_COMMANDS if inside else COMMANDS, timeout)
    data: dict[str, Any] = {**found.part}
    if found.errors:
        data["errors"] = found.errors
    if not inside:
        data = {
            "schema": "gpunode.snapshot/1",
            "host": socket.gethostname(),
            "collected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **data,
        }
    return data


if __name__ == "__main__":
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    json.dump(gather(**options), sys.stdout)
