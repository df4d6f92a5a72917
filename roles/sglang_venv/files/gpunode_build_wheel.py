#!/usr/bin/env python3
"""Build a source package into a wheel for one GPU architecture; a build that was cut off goes on where it stood.

    gpunode_build_wheel.py --python VENV/bin/python --arch sm120 --wheelhouse DIR --work DIR flash_attn-2.8.3.post2.tar.gz

Standard library only. The wheel lands in WHEELHOUSE/KEY, where KEY names everything that decides its binary interface: Python, torch with
its CUDA, architecture, nvcc, C++ compiler and C library. A wheel that is there already is not built again. Progress goes to
WORK/.../progress.json and, with the whole log, to standard output. The path of the wheel is the last line. Exit code: 0 built or there,
1 failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import csv
import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

RECIPES: dict[str, dict[str, object]] = {
    # setup.py ignores TORCH_CUDA_ARCH_LIST, downloads a foreign wheel unless it is forced to build, and needs 2 to 2.5 GB a thread of nvcc.
    # From 2.8.3 on it also installs flash_attn/cute, the folder of flash-attn-4 (which sglang 0.5.10 and newer require): left out here.
    "flash-attn": {
        "environment": {"FLASH_ATTN_CUDA_ARCHS": "{digits}", "FLASH_ATTENTION_FORCE_BUILD": "TRUE", "NVCC_THREADS": "2"},
        "gib_per_job": 5,
        "leave_out": ["flash_attn/cute/"],
        "import": "flash_attn_2_cuda",
    },
    "causal-conv1d": {"environment": {"CAUSAL_CONV1D_FORCE_BUILD": "TRUE"}, "gib_per_job": 3, "import": "causal_conv1d_cuda"},
    "mamba-ssm": {"environment": {"MAMBA_FORCE_BUILD": "TRUE"}, "gib_per_job": 4, "import": "selective_scan_cuda"},
}
"""What each package's setup.py wants to hear; any other source package is built with TORCH_CUDA_ARCH_LIST alone."""

DEFAULT_GIB_PER_JOB = 4
"""Memory of one nvcc with templates of CUTLASS size."""
SYSTEM_GIB = 2
"""Left to everything else on the machine."""
PROGRESS_STEP_S = 15
"""Seconds between two lines of progress in the log."""

PROBE = r"""
import json, sys
result = {"python": "cp%d%d" % sys.version_info[:2]}
try:
    import torch
    result["torch"] = torch.__version__
    result["cuda"] = torch.version.cuda or ""
    result["cxx11"] = bool(torch._C._GLIBCXX_USE_CXX11_ABI)
except ImportError:
    result["torch"] = result["cuda"] = ""
print(json.dumps(result))
"""
# Calls a build backend's hook in the current folder (PEP 517).
HOOK = r"""
import importlib, os, sys
backend, target = sys.argv[1:3]
module, _, attribute = backend.partition(":")
sys.path.insert(0, os.getcwd())
sys.argv[1:] = []
hook = importlib.import_module(module)
for name in filter(None, attribute.split(".")):
    hook = getattr(hook, name)
print("built " + hook.build_wheel(target), flush=True)
"""


class BuildError(RuntimeError):
    """The build cannot go on; the text says why and what to do."""


def first_version(command: list[str]) -> str:
    """The first dotted number in a command's output, or an empty text when the command is not there."""
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
    found = re.search(r"release (\d+\.\d+)", text) or re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return found.group(1) if found else ""


def toolchain(python: str, environment: dict[str, str]) -> dict[str, str]:
    """Everything outside the package that decides the wheel's binary interface; raises BuildError when nvcc or a compiler is missing."""
    result = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(f"{python} does not run: {result.stderr.strip()}")
    facts = {key: str(value) for key, value in json.loads(result.stdout).items()}
    home = environment.get("CUDA_HOME", "")
    nvcc = f"{home}/bin/nvcc" if home else (shutil.which("nvcc", path=environment.get("PATH")) or "nvcc")
    facts["nvcc"] = first_version([nvcc, "-V"])
    facts["cxx"] = first_version([environment.get("CXX", "c++"), "-dumpfullversion"])
    facts["libc"] = "".join(platform.libc_ver())
    if not facts["nvcc"]:
        raise BuildError(
            f"nvcc was not found ({nvcc}). Install the toolkit (role cuda_userspace: cuda_userspace_toolkit_packages) or set CUDA_HOME."
        )
    if not facts["cxx"]:
        raise BuildError("no C++ compiler was found: install g++.")
    if facts["cuda"] and facts["cuda"].split(".")[0] != facts["nvcc"].split(".")[0]:
        raise BuildError(
            f"torch {facts['torch']} was built for CUDA {facts['cuda']}, nvcc is {facts['nvcc']}: install that major version's toolkit."
        )
    return facts


def key_of(facts: dict[str, str], arch: str) -> str:
    """Name of the wheelhouse folder for this toolchain and architecture."""
    torch = f"torch{facts['torch']}" if facts["torch"] else "notorch"
    parts = [facts["python"], torch, arch, f"nvcc{facts['nvcc']}", f"gcc{facts['cxx']}", facts["libc"], platform.machine()]
    return re.sub(r"[^A-Za-z0-9.+_-]", "_", "-".join(parts))


def memory_gib() -> float:
    """Memory that a build may use: what is available, or less where a control group allows less."""
    limits = []
    with contextlib.suppress(OSError):
        found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
        if found:
            limits.append(int(found.group(1)) / 2**20)
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path(path).read_text()) / 2**30)
    return min(limits) if limits else 4.0


def jobs_for(gib_per_job: float, gib: float, cores: int) -> int:
    """How many compilers may run at once: bounded by cores and by memory, at least one."""
    return max(1, min(cores, int((gib - SYSTEM_GIB) / gib_per_job)))


def package_of(sdist: Path) -> tuple[str, str]:
    """Normalised name and version from an sdist's file name."""
    found = re.fullmatch(r"(.+)-([^-]+)\.(?:tar\.gz|zip)", sdist.name)
    if not found:
        raise BuildError(f"{sdist.name} is not named like a source package (NAME-VERSION.tar.gz).")
    return re.sub(r"[-_.]+", "-", found.group(1)).lower(), found.group(2)


def unpack(sdist: Path, target: Path) -> Path:
    """Unpack once; the folder of an earlier run is used as it is, so that what was compiled stays."""
    marker = target / ".unpacked"
    if not marker.exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        if sdist.name.endswith(".zip"):
            with zipfile.ZipFile(sdist) as archive:
                archive.extractall(target)  # noqa: S202 - zipfile keeps members inside
        else:
            with tarfile.open(sdist) as archive:
                archive.extractall(target, filter="data")
        marker.touch()
    folders = [path for path in target.iterdir() if path.is_dir()]
    if len(folders) != 1:
        raise BuildError(f"{sdist.name} holds {len(folders)} folders at its top, expected one.")
    return folders[0]


def backend_of(source: Path) -> str:
    """The build backend that pyproject.toml names, else setuptools' own."""
    file = source / "pyproject.toml"
    found = re.search(r'(?m)^\s*build-backend\s*=\s*["\']([^"\']+)', file.read_text()) if file.exists() else None
    return found.group(1) if found else "setuptools.build_meta:__legacy__"


class Progress:
    """What ninja says (``[12/73]``), as a file for others and as a line now and then."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.began = time.monotonic()
        self.shown = 0.0
        self.base: int | None = None
        self.write("running", 0, 0)

    def write(self, state: str, done: int, total: int) -> None:
        """Keep where the build stands."""
        record = {"package": self.name, "state": state, "done": done, "total": total, "elapsed_s": round(time.monotonic() - self.began, 1)}
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(record) + "\n")
        partial.replace(self.path)

    def line(self, text: str) -> None:
        """Read one line of the log."""
        found = re.match(r"\[(\d+)/(\d+)\]", text)
        if not found:
            return
        done, total = int(found.group(1)), int(found.group(2))
        self.write("running", done, total)
        now = time.monotonic()
        if now - self.shown >= PROGRESS_STEP_S or done == total:
            self.shown = now
            print(f"gpunode: {self.name}: {done} of {total} objects, {now - self.began:.0f} s", flush=True)


def compile_wheel(python: str, source: Path, target: Path, environment: dict[str, str], progress: Progress) -> Path:
    """Run the build backend's hook in the source folder and return the wheel; raises BuildError with the end of the log."""
    target.mkdir(parents=True, exist_ok=True)
    command = [python, "-c", HOOK, backend_of(source), str(target)]
    tail: list[str] = []
    built = ""
    with subprocess.Popen(
        command, cwd=source, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None  # noqa: S101 - asked for above
        for text in process.stdout:
            sys.stdout.write(text)
            tail = [*tail[-29:], text]
            progress.line(text)
            if text.startswith("built "):
                built = text.split(None, 1)[1].strip()
    if process.returncode or not built:
        raise BuildError(f"the build ended with {process.returncode}; its last lines:\n{''.join(tail)}Run the same command again to go on.")
    return target / built


def leave_out(wheel: Path, folders: list[str]) -> int:
    """Drop folders from a wheel and set its RECORD right; returns how many files went."""
    with zipfile.ZipFile(wheel) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist() if not entry.is_dir()]
    kept = [(entry, data) for entry, data in entries if not entry.filename.startswith(tuple(folders))]
    if len(kept) == len(entries):
        return 0
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    partial = wheel.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        record = ""
        for entry, data in kept:
            if entry.filename.endswith(".dist-info/RECORD"):
                record = entry.filename
                continue
            archive.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            writer.writerow((entry.filename, f"sha256={digest}", len(data)))
        writer.writerow((record, "", ""))
        archive.writestr(record, rows.getvalue())
    partial.replace(wheel)
    return len(entries) - len(kept)


def check_import(python: str, wheel: Path, module: str, work: Path) -> None:
    """Unpack the wheel beside and import its compiled module with that Python; raises BuildError with what the import said."""
    folder = work / "check"
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)  # noqa: S202 - our own wheel
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\ntry:\n    import torch\nexcept ImportError:\n    pass\nimport {module}"
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    if result.returncode:
        raise BuildError(f"{wheel.name} was built, but `import {module}` fails: {result.stderr.strip().splitlines()[-1]}")


def build(options: argparse.Namespace) -> Path:
    """Build, or find, the wheel."""
    sdist = Path(options.sdist).resolve()
    name, version = package_of(sdist)
    recipe = RECIPES.get(name, {})
    digits, suffix = re.fullmatch(r"sm(\d+)([a-z]?)", options.arch).groups()  # type: ignore[union-attr]
    capability = f"{digits[:-1]}.{digits[-1]}{suffix}"
    environment = os.environ | {"TORCH_CUDA_ARCH_LIST": capability, "PYTHONUNBUFFERED": "1"}
    # The interpreter's own folder first: torch looks for ninja on the path.
    environment["PATH"] = f"{Path(options.python).parent}:{environment.get('PATH', '')}"
    described: dict[str, str] = {}
    for key, value in dict(recipe.get("environment", {})).items():  # type: ignore[call-overload]
        described[key] = str(value).format(digits=digits)
    for pair in options.env:
        key, _, value = pair.partition("=")
        described[key] = value
    environment |= described
    facts = toolchain(options.python, environment)
    key = key_of(facts, options.arch)
    shelf = Path(options.wheelhouse) / key
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    stem = f"{name.replace('-', '_')}-{version}"
    note = shelf / f"{stem}.json"
    if note.exists():
        known = json.loads(note.read_text())
        if known.get("sdist_sha256") == digest and known.get("environment") == described and (shelf / known["wheel"]).exists():
            print(f"gpunode: {known['wheel']} is in the wheelhouse already", flush=True)
            return shelf / known["wheel"]
    work = Path(options.work) / f"{stem}-{hashlib.sha256(f'{key}{digest}{sorted(described.items())}'.encode()).hexdigest()[:12]}"
    work.mkdir(parents=True, exist_ok=True)
    with (work / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BuildError(f"another build of {stem} runs in {work}.") from None
        per_job = float(options.gib_per_job or recipe.get("gib_per_job", DEFAULT_GIB_PER_JOB))  # type: ignore[arg-type]
        cores = len(os.sched_getaffinity(0))
        jobs = options.jobs or int(environment.get("MAX_JOBS", "0")) or jobs_for(per_job, memory_gib(), cores)
        environment["MAX_JOBS"] = str(jobs)
        resumed = (work / "source" / ".unpacked").exists()
        print(
            f"gpunode: {'going on with' if resumed else 'building'} {stem} for {options.arch} with {jobs} jobs ({cores} cores, "
            f"{memory_gib():.0f} GiB, {per_job:g} GiB a job); key {key}; work in {work}",
            flush=True,
        )
        progress = Progress(work / "progress.json", stem)
        try:
            source = unpack(sdist, work / "source")
            wheel = compile_wheel(options.python, source, work / "dist", environment, progress)
            dropped = leave_out(wheel, list(recipe.get("leave_out", [])))  # type: ignore[call-overload]
            module = options.check_import or str(recipe.get("import", ""))
            if module:
                check_import(options.python, wheel, module, work)
        except BuildError:
            progress.write("failed", 0, 0)
            raise
        shelf.mkdir(parents=True, exist_ok=True)
        target = shelf / wheel.name
        shutil.copyfile(wheel, target.with_suffix(".partial"))
        target.with_suffix(".partial").replace(target)
        record = {
            "package": name,
            "version": version,
            "wheel": wheel.name,
            "architecture": options.arch,
            "toolchain": facts,
            "environment": described,
            "sdist_sha256": digest,
            "files_left_out": dropped,
            "jobs": jobs,
            "seconds": round(time.monotonic() - progress.began, 1),
            "resumed": resumed,
        }
        note.write_text(json.dumps(record, indent=1) + "\n")
        progress.write("built", 1, 1)
        if not options.keep_work:
            shutil.rmtree(work / "source", ignore_errors=True)
    return target


def main() -> int:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sdist", help="source package, NAME-VERSION.tar.gz")
    parser.add_argument("--python", default=sys.executable, help="interpreter whose torch the wheel is for (with setuptools, wheel, ninja)")
    parser.add_argument("--arch", required=True, help="GPU architecture, for example sm120")
    parser.add_argument("--wheelhouse", required=True, help="folder of built wheels")
    parser.add_argument("--work", required=True, help="folder of builds; what is compiled there survives a cut")
    parser.add_argument("--jobs", type=int, default=0, help="compilers at once; default from cores and memory")
    parser.add_argument("--gib-per-job", type=float, default=0, help="memory of one compiler")
    parser.add_argument("--env", action="append", default=[], metavar="K=V", help="a variable for the build; decides the wheel too")
    parser.add_argument("--check-import", default="", help="module that must import from the wheel")
    parser.add_argument("--keep-work", action="store_true", help="keep the objects after success")
    options = parser.parse_args()
    if not re.fullmatch(r"sm\d{2,3}[a-z]?", options.arch):
        parser.error(f"--arch {options.arch}: expected sm90, sm100, sm120 ...")
    try:
        print(build(options))
    except (BuildError, OSError) as error:
        print(f"gpunode: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
