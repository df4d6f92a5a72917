#!/usr/bin/env python3
"""Build a source package into a wheel for one GPU architecture; a build that was cut off goes on where it stood.

    gpunode_build_wheel.py --python VENV/bin/python --arch sm120 --wheelhouse DIR --work DIR flash_attn-2.8.3.post2.tar.gz

Standard library only. The wheel lands in WHEELHOUSE/KEY, where KEY names everything that decides its binary interface: Python, torch with
its CUDA, architecture, nvcc, C++ compiler and C library. A wheel that is there already is not built again. Progress goes to
WORK/.../progress.json and, with the whole log, to standard output. The path of the wheel is the last line. --where builds nothing: it
prints KEY, the wheel if it is there, and what the package asks for at build time, as JSON. Exit code: 0 built or there, 1 failed, 2 wrong
usage.
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
import tempfile
import threading
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

RECIPES: dict[str, dict[str, object]] = {
    # setup.py ignores TORCH_CUDA_ARCH_LIST, downloads a foreign wheel unless it is forced to build, and needs 2 to 2.5 GB a thread of nvcc.
    # From 2.8.3 on it also installs flash_attn/cute, the folder of flash-attn-4 (which sglang 0.5.10 and newer require): left out here.
    "flash-attn": {
        "environment": {"FLASH_ATTN_CUDA_ARCHS": "{digits}", "FLASH_ATTENTION_FORCE_BUILD": "TRUE", "NVCC_THREADS": "2"},
        "gib_per_job": 5,
        "leave_out": ["flash_attn/cute/"],
        "import": "flash_attn_2_cuda",
    },
    # Both compile for every GPU since 2018 and cannot be told otherwise.
    "causal-conv1d": {
        "environment": {"CAUSAL_CONV1D_FORCE_BUILD": "TRUE"},
        "gib_per_job": 3,
        "only_architecture": True,
        "import": "causal_conv1d_cuda",
    },
    "mamba-ssm": {
        "environment": {"MAMBA_FORCE_BUILD": "TRUE"},
        "gib_per_job": 4,
        "only_architecture": True,
        "import": "selective_scan_cuda",
    },
}
"""What each package's setup.py wants to hear; any other source package is built with TORCH_CUDA_ARCH_LIST alone, and without nvcc where
there is none."""

DEFAULT_GIB_PER_JOB = 4
"""Memory of one nvcc with templates of CUTLASS size."""
SYSTEM_GIB = 2
"""Left to everything else on the machine."""
PROGRESS_STEP_S = 15
"""Seconds between two lines of progress in the log."""

TOOLKIT = "install the toolkit (role cuda_userspace: cuda_userspace_toolkit_packages) or set CUDA_HOME."

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
# Stands before nvcc (PYTORCH_NVCC) where a setup.py asks for more architectures than the one that is wanted.
ONLY_ARCHITECTURE = """#!{python}
import os, re, sys
given, kept, chosen = sys.argv[1:], [], False
while given:
    word = given.pop(0)
    if word in ("-gencode", "--generate-code") and given:
        target = given.pop(0)
        if re.search(r"(?:sm|compute)_{number}(?![0-9a-z])", target):
            kept += [word, target]
            chosen = True
    else:
        kept.append(word)
if not chosen and "-c" in kept:
    kept += ["-gencode", "arch=compute_{number},code=sm_{number}"]
os.execv({nvcc!r}, [{nvcc!r}, *kept])
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


def nvcc_of(environment: dict[str, str]) -> str:
    """The nvcc that torch will call: CUDA_HOME's, else the one on the path."""
    home = environment.get("CUDA_HOME", "")
    return f"{home}/bin/nvcc" if home else (shutil.which("nvcc", path=environment.get("PATH")) or "nvcc")


def first_version(command: list[str]) -> str:
    """The first dotted number in a command's output, or an empty text when the command is not there."""
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
    found = re.search(r"release (\d+\.\d+)", text) or re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return found.group(1) if found else ""


def toolchain(python: str, environment: dict[str, str], *, cuda: bool) -> dict[str, str]:
    """Everything outside the package that decides the wheel's binary interface; raises BuildError when a compiler is missing.

    nvcc is one where the package is known to be CUDA; its version is an empty text where it is not there.
    """
    result = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(f"{python} does not run: {result.stderr.strip()}")
    facts = {key: str(value) for key, value in json.loads(result.stdout).items()}
    nvcc = nvcc_of(environment)
    facts["nvcc"] = first_version([nvcc, "-V"])
    facts["cxx"] = first_version([environment.get("CXX", "c++"), "-dumpfullversion"])
    facts["libc"] = "".join(platform.libc_ver())
    if cuda and not facts["nvcc"]:
        raise BuildError(f"nvcc was not found ({nvcc}): {TOOLKIT}")
    if not facts["cxx"]:
        raise BuildError("no C++ compiler was found: install g++.")
    if facts["cuda"] and facts["nvcc"] and facts["cuda"].split(".")[0] != facts["nvcc"].split(".")[0]:
        raise BuildError(
            f"torch {facts['torch']} was built for CUDA {facts['cuda']}, nvcc is {facts['nvcc']}: install that major version's toolkit."
        )
    return facts


def key_of(facts: dict[str, str], arch: str) -> str:
    """Name of the wheelhouse folder for this toolchain and architecture."""
    torch = f"torch{facts['torch']}" if facts["torch"] else "notorch"
    nvcc = f"nvcc{facts['nvcc']}" if facts["nvcc"] else "nonvcc"
    parts = [facts["python"], torch, arch, nvcc, f"gcc{facts['cxx']}", facts["libc"], platform.machine()]
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


def drop_half(source: Path) -> list[str]:
    """Remove the libraries that a cut may have left half-written and return their names.

    ninja knows which of its steps ended, but setuptools links by itself and takes a library that exists for a whole one. Whatever was
    written after a library proves that one whole.
    """
    times = [(path.stat().st_mtime_ns, path) for path in (source / "build").rglob("*") if path.is_file()]
    newest = max((when for when, _ in times), default=0)
    half = [path for when, path in times if when == newest and ".so" in path.suffixes]
    for path in half:
        path.unlink()
    return [path.name for path in half]


def backend_of(source: Path) -> str:
    """The build backend that pyproject.toml names, else setuptools' own."""
    file = source / "pyproject.toml"
    found = re.search(r'(?m)^\s*build-backend\s*=\s*["\']([^"\']+)', file.read_text()) if file.exists() else None
    return found.group(1) if found else "setuptools.build_meta:__legacy__"


def requires_of(source: Path) -> list[str]:
    """What pyproject.toml asks for at build time, torch left out: a build uses the release's own."""
    file = source / "pyproject.toml"
    text = file.read_text() if file.exists() else ""
    section = re.search(r"(?ms)^\[build-system\]\s*$(.*?)(?=^\[|\Z)", text)
    found = re.search(r"(?ms)^\s*requires\s*=\s*\[(.*?)\]\s*$", section.group(1) if section else "")
    names = [match[1] or match[2] for match in re.finditer(r"\"([^\"]+)\"|'([^']+)'", found.group(1) if found else "")]
    return [name for name in names if not re.match(r"torch\b", name)]


class Progress:
    """How far a build is, as a file for others and as a line now and then, also while a compiler says nothing for minutes.

    ``done`` and ``total`` are ninja's steps (``[12/73]``), 0 where the package is built without it; objects are counted on the disk.
    """

    def __init__(self, path: Path, name: str, source: Path) -> None:
        self.path = path
        self.name = name
        self.source = source
        self.began = time.monotonic()
        self.done = self.total = 0
        self.ended = threading.Event()
        self.write("running")

    def objects(self) -> int:
        """Object files that are compiled."""
        return sum(1 for pattern in ("*.o", "*.obj") for _ in self.source.rglob(pattern))

    def write(self, state: str) -> None:
        """Keep where the build stands."""
        record = {"package": self.name, "state": state, "done": self.done, "total": self.total, "objects": self.objects(),
                  "elapsed_s": round(time.monotonic() - self.began, 1)}  # fmt: skip
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(record) + "\n")
        partial.replace(self.path)

    def line(self, text: str) -> None:
        """Read one line of the log."""
        found = re.match(r"\[(\d+)/(\d+)\]", text)
        if found:
            self.done, self.total = int(found.group(1)), int(found.group(2))

    def _tell(self) -> None:
        while not self.ended.wait(PROGRESS_STEP_S):
            self.write("running")
            steps = f"{self.done} of {self.total} steps, " if self.total else ""
            print(f"gpunode: {self.name}: {steps}{self.objects()} objects, {time.monotonic() - self.began:.0f} s", flush=True)

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Tell while the block runs."""
        teller = threading.Thread(target=self._tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            self.ended.set()
            teller.join()


def compile_wheel(python: str, source: Path, target: Path, environment: dict[str, str], progress: Progress) -> Path:
    """Run the build backend's hook in the source folder and return the wheel; raises BuildError with the end of the log."""
    target.mkdir(parents=True, exist_ok=True)
    command = [python, "-c", HOOK, backend_of(source), str(target)]
    tail: list[str] = []
    built = ""
    with (
        progress.told(),
        subprocess.Popen(
            command, cwd=source, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
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


@dataclass(frozen=True)
class Plan:
    """One build before it begins: the package, what it is told, what it is built with, and where its wheel belongs."""

    sdist: Path
    name: str
    version: str
    recipe: dict[str, object]
    told: dict[str, str]
    environment: dict[str, str] = field(repr=False)
    facts: dict[str, str]
    key: str
    digest: str

    @property
    def stem(self) -> str:
        """Name and version as files carry them."""
        return f"{self.name.replace('-', '_')}-{self.version}"

    def wheel(self, wheelhouse: Path) -> Path | None:
        """The wheel that was built of the same source under the same conditions, whole; None where there is none."""
        shelf = wheelhouse / self.key
        try:
            known = json.loads((shelf / f"{self.stem}.json").read_text())
            found = shelf / str(known["wheel"])
            same = (known["sdist_sha256"], known["environment"]) == (self.digest, self.told)
            return found if same and hashlib.sha256(found.read_bytes()).hexdigest() == known["wheel_sha256"] else None
        except (OSError, ValueError, KeyError, TypeError):
            return None


def plan(options: argparse.Namespace) -> Plan:
    """Work out what would be built; raises BuildError where it cannot be."""
    sdist = Path(options.sdist).resolve()
    name, version = package_of(sdist)
    recipe = RECIPES.get(name, {})
    digits, suffix = re.fullmatch(r"sm(\d+)([a-z]?)", options.arch).groups()  # type: ignore[union-attr]
    environment = os.environ | {"TORCH_CUDA_ARCH_LIST": f"{digits[:-1]}.{digits[-1]}{suffix}", "PYTHONUNBUFFERED": "1"}
    # The interpreter's own folder first: torch looks for ninja on the path.
    environment["PATH"] = f"{Path(options.python).parent}:{environment.get('PATH', '')}"
    told: dict[str, str] = {}
    for variable, value in dict(recipe.get("environment", {})).items():  # type: ignore[call-overload]
        told[variable] = str(value).format(digits=digits)
    told |= dict(pair.partition("=")[::2] for pair in options.env)
    environment |= told
    facts = toolchain(options.python, environment, cuda=name in RECIPES)
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    return Plan(sdist, name, version, recipe, told, environment, facts, key_of(facts, options.arch), digest)


def where(options: argparse.Namespace) -> str:
    """What is known before a build, as JSON: the wheelhouse's folder, the package, the wheel or an empty text, what the build asks for."""
    chosen = plan(options)
    wheel = chosen.wheel(Path(options.wheelhouse))
    with tempfile.TemporaryDirectory() as folder:
        requires = [] if wheel else requires_of(unpack(chosen.sdist, Path(folder) / "source"))
    return json.dumps({"key": chosen.key, "stem": chosen.stem, "wheel": str(wheel or ""), "requires": requires})


def build(options: argparse.Namespace) -> Path:
    """Build, or find, the wheel."""
    chosen = plan(options)
    found = chosen.wheel(Path(options.wheelhouse))
    if found:
        print(f"gpunode: {found.name} is in the wheelhouse already", flush=True)
        return found
    mark = hashlib.sha256(f"{chosen.key}{chosen.digest}{sorted(chosen.told.items())}".encode()).hexdigest()[:12]
    work = Path(options.work) / f"{chosen.stem}-{mark}"
    work.mkdir(parents=True, exist_ok=True)
    with (work / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BuildError(f"another build of {chosen.stem} runs in {work}.") from None
        return _build(options, chosen, work)


def _build(options: argparse.Namespace, chosen: Plan, work: Path) -> Path:
    recipe = chosen.recipe
    per_job = float(options.gib_per_job or recipe.get("gib_per_job", DEFAULT_GIB_PER_JOB))  # type: ignore[arg-type]
    cores = len(os.sched_getaffinity(0))
    jobs = options.jobs or int(chosen.environment.get("MAX_JOBS", "0")) or jobs_for(per_job, memory_gib(), cores)
    resumed = (work / "source" / ".unpacked").exists()
    print(
        f"gpunode: {'going on with' if resumed else 'building'} {chosen.stem} for {options.arch} with {jobs} jobs ({cores} cores, "
        f"{memory_gib():.0f} GiB, {per_job:g} GiB a job); key {chosen.key}; work in {work}",
        flush=True,
    )
    progress = Progress(work / "progress.json", chosen.stem, work / "source")
    environment = chosen.environment | {"MAX_JOBS": str(jobs)}
    if recipe.get("only_architecture"):
        environment["PYTORCH_NVCC"] = str(work / "nvcc")
        text = ONLY_ARCHITECTURE.format(python=sys.executable, number=options.arch.removeprefix("sm"), nvcc=nvcc_of(environment))
        (work / "nvcc").write_text(text)
        (work / "nvcc").chmod(0o755)
    try:
        source = unpack(chosen.sdist, work / "source")
        for name in drop_half(source) if resumed else []:
            print(f"gpunode: {name} may be half-written and is linked anew", flush=True)
        wheel = compile_wheel(options.python, source, work / "dist", environment, progress)
        dropped = leave_out(wheel, list(recipe.get("leave_out", [])))  # type: ignore[call-overload]
        module = options.check_import or str(recipe.get("import", ""))
        if module:
            check_import(options.python, wheel, module, work)
    except BuildError as error:
        progress.write("failed")
        if not chosen.facts["nvcc"]:
            raise BuildError(f"{error} nvcc was not found: where the package compiles CUDA, {TOOLKIT}") from None
        raise
    shelf = Path(options.wheelhouse) / chosen.key
    shelf.mkdir(parents=True, exist_ok=True)
    target = shelf / wheel.name
    shutil.copyfile(wheel, target.with_suffix(".partial"))
    target.with_suffix(".partial").replace(target)
    record = {
        "package": chosen.name,
        "version": chosen.version,
        "wheel": wheel.name,
        "wheel_sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
        "architecture": options.arch,
        "toolchain": chosen.facts,
        "environment": chosen.told,
        "sdist_sha256": chosen.digest,
        "files_left_out": dropped,
        "jobs": jobs,
        "seconds": round(time.monotonic() - progress.began, 1),
        "resumed": resumed,
    }
    (shelf / f"{chosen.stem}.json").write_text(json.dumps(record, indent=1) + "\n")
    progress.write("built")
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
    parser.add_argument("--where", action="store_true", help="print where the wheel belongs and whether it is there, and end")
    options = parser.parse_args()
    if not re.fullmatch(r"sm\d{2,3}[a-z]?", options.arch):
        parser.error(f"--arch {options.arch}: expected sm90, sm100, sm120 ...")
    try:
        print(where(options) if options.where else build(options))
    except (BuildError, OSError) as error:
        print(f"gpunode: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
