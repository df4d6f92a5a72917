"""modprobe, insmod, rmmod and lsmod: kmod reads configuration and dependencies, the stand-in kernel does the loading.

Nothing can be loaded into the machine's own kernel. So the real modprobe is asked what it would insert (--show-depends: aliases, options,
blacklists, soft dependencies and install commands of /etc/modprobe.d all count), and each module file must exist for the running release.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from . import kernel, paths, state, users

KMOD = "/usr/bin/kmod"
# Long options of modprobe that take a value, and those with which kmod only prints.
_VALUED = {"-C", "--config", "-d", "--dirname", "-S", "--set-version"}
_PRINTING = {
    "-D",
    "--show-depends",
    "-c",
    "--showconfig",
    "-n",
    "--dry-run",
    "--show",
    "-R",
    "--resolve-alias",
    "-V",
    "--version",
    "-h",
    "--help",
}
_PRINTING |= {"--show-modversions", "--show-exports", "--dump-modversions"}


def _kmod(tool: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool, *arguments], executable=KMOD, capture_output=True, text=True, check=False)


def _exec(tool: str, arguments: list[str]) -> int:
    sys.stdout.flush()
    os.execv(KMOD, [tool, *arguments])


class _Arguments:
    """A modprobe command line: options kmod needs to know, and what is to be done."""

    def __init__(self, arguments: list[str]) -> None:
        self.passed: list[str] = []
        self.names: list[str] = []
        self.printing = self.removing = self.all = self.quiet = self.verbose = self.first_time = self.unload_deps = False
        waiting = False
        for argument in arguments:
            if waiting or not argument.startswith("-") or argument == "-":
                (self.passed if waiting else self.names).append(argument)
                waiting = False
                continue
            flags = [argument] if argument.startswith("--") else ["-" + letter for letter in argument[1:]]
            for flag in flags:
                bare = flag.partition("=")[0]
                self.printing |= bare in _PRINTING
                self.removing |= bare in {"-r", "--remove"}
                self.all |= bare in {"-a", "--all"}
                self.quiet |= bare in {"-q", "--quiet"}
                self.verbose |= bare in {"-v", "--verbose"}
                self.first_time |= bare == "--first-time"
                if bare in _VALUED:
                    waiting = "=" not in flag
                if bare in {"-b", "--use-blacklist", "-i", "--ignore-install", "--ignore-remove", "-f", "--force"} | _VALUED:
                    self.passed.append(flag)


def modprobe(arguments: list[str]) -> int:
    """Load or remove modules by name; exit codes and messages are modprobe's own."""
    asked = _Arguments(arguments)
    if asked.printing or not asked.names:
        return _exec("modprobe", arguments)
    if asked.removing:
        return max(_remove(name, asked) for name in asked.names)
    if asked.all:
        return max(_load(name, [], asked) for name in asked.names)
    return _load(asked.names[0], asked.names[1:], asked)


def _load(name: str, options: list[str], asked: _Arguments) -> int:
    shown = _kmod("modprobe", ["--show-depends", *asked.passed, name, *options])
    if shown.returncode != 0:
        if not asked.quiet:
            sys.stderr.write(shown.stderr)
        return shown.returncode
    done = 0
    for line in shown.stdout.splitlines():
        action, _, rest = line.partition(" ")
        if action == "install":
            if asked.verbose:
                print(line)
            done = subprocess.run(["/bin/sh", "-c", rest], check=False, env=os.environ | {"MODPROBE_MODULE": name}).returncode
            if done:
                print(f"modprobe: ERROR: Error running install command '{rest}' for module {name}: retcode {done}", file=sys.stderr)
                return 1
        elif action == "insmod":
            path, _, parameters = rest.partition(" ")
            done = _insert(Path(path), parameters.strip(), asked)
            if done:
                return done
    return done


def _insert(path: Path, parameters: str, asked: _Arguments) -> int:
    name = kernel.canonical(path.name.partition(".ko")[0])
    if name in state.read()["loaded"]:
        if asked.first_time:
            print(f"modprobe: ERROR: could not insert '{name}': Module already in kernel", file=sys.stderr)
            return 1
        return 0
    if asked.verbose:
        print(f"insmod {path} {parameters}")
    try:
        kernel.insert(path, parameters)
    except kernel.KernelError as error:
        if not asked.quiet:
            print(f"modprobe: ERROR: could not insert '{name}': {error}", file=sys.stderr)
        return 1
    return 0


def soft_dependencies(name: str) -> tuple[list[str], list[str]]:
    """What modprobe.d wants loaded before and after a module."""
    before: list[str] = []
    after: list[str] = []
    for line in _kmod("modprobe", ["--showconfig"]).stdout.splitlines():
        match = re.match(r"softdep\s+(\S+)\s+(.*)", line)
        if match and kernel.canonical(match.group(1)) == kernel.canonical(name):
            target = before
            for word in match.group(2).split():
                if word in {"pre:", "post:"}:
                    target = before if word == "pre:" else after
                else:
                    target.append(kernel.canonical(word))
    return before, after


def _remove(name: str, asked: _Arguments) -> int:
    """Remove a module as modprobe -r does: post soft dependencies first, then the module, then what it needed and nobody uses."""
    name = kernel.canonical(name)
    loaded = state.read()["loaded"]
    if name not in loaded:
        shown = _kmod("modprobe", ["--show-depends", *asked.passed, name])
        if shown.returncode:
            if not asked.quiet:
                print(f"modprobe: FATAL: Module {name} not found.", file=sys.stderr)
            return 1
        if asked.first_time:
            print(f"modprobe: FATAL: Module {name} is not in kernel.", file=sys.stderr)
            return 1
        return 0
    for other in soft_dependencies(name)[1]:
        if other in loaded:
            _remove(other, asked)
    try:
        kernel.remove(name)
    except kernel.KernelError as error:
        if not asked.quiet:
            print(f"modprobe: FATAL: Module {name} is {'in use' if str(error).startswith('in use') else error}.", file=sys.stderr)
        return 1
    if asked.verbose:
        print(f"rmmod {name}")
    for needed in kernel.NEEDS.get(name, []):
        left = state.read()["loaded"]
        if needed in left and not kernel.holders(left, needed) and not users.count(needed):
            _remove(needed, asked)
    return 0


def insmod(arguments: list[str]) -> int:
    """Insert one module file."""
    files = [argument for argument in arguments if not argument.startswith("-")]
    if not files:
        return _exec("insmod", arguments)
    try:
        if not Path(files[0]).is_file():
            raise kernel.KernelError("No such file or directory")
        kernel.insert(Path(files[0]), " ".join(files[1:]))
    except kernel.KernelError as error:
        print(f"insmod: ERROR: could not insert module {files[0]}: {error}", file=sys.stderr)
        return 1
    return 0


def rmmod(arguments: list[str]) -> int:
    """Remove modules one by one, without what they need."""
    names = [argument for argument in arguments if not argument.startswith("-")]
    if not names:
        return _exec("rmmod", arguments)
    failed = 0
    for given in names:
        name = kernel.canonical(Path(given).name.partition(".ko")[0])
        try:
            kernel.remove(name)
        except kernel.KernelError as error:
            text = {"not found": "is not currently loaded", "in use": "is in use"}.get(str(error), f"is {error}")
            print(f"rmmod: ERROR: Module {name} {text}", file=sys.stderr)
            failed = 1
    return failed


def lsmod(_arguments: list[str]) -> int:
    """List what is loaded, as lsmod prints it."""
    now = state.read()
    print("Module                  Size  Used by")
    used = users.counts()
    for name in reversed(list(now["loaded"])):
        used_by = kernel.holders(now["loaded"], name)
        count = len(used_by) + used.get(name, 0)
        print(f"{name:<19} {now['loaded'][name]['size']:8d}  {count}{' ' + ','.join(used_by) if used_by else ''}")
    return 0


def main() -> int:
    """Answer to the name given as first argument."""
    tool, *arguments = sys.argv[1:]
    if tool != "lsmod" and os.geteuid() != 0 and not _Arguments(arguments).printing:
        print(f"{tool}: ERROR: Operation not permitted", file=sys.stderr)
        return 1
    if not paths.PROC_DRIVER.is_dir() and tool != "modprobe":
        return _exec(tool, arguments)
    return {"modprobe": modprobe, "insmod": insmod, "rmmod": rmmod, "lsmod": lsmod}[tool](arguments)


if __name__ == "__main__":
    sys.exit(main())
