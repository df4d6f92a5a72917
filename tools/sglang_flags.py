#!/usr/bin/env python3
"""Generate the table of sglang's flags from published wheels, by running each wheel's own parser.

    tools/sglang_flags.py            write plugins/module_utils/gpunode/sglang/flags_data.py
    tools/sglang_flags.py --check    end with 1 when it differs from what the wheels say

A developer's tool; wheels as in tools/sglang_wheels.py. sglang's
parser imports torch and much else that a flag table does not need: every module but the standard library, msgspec and the files that
declare flags is replaced by a placeholder. Choices that only the placeholders would know are left open (None).
"""

from __future__ import annotations

import ast
import json
import pprint
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from sglang_wheels import ROOT, VERSIONS, wheel

TARGET: Final = ROOT / "plugins/module_utils/gpunode/sglang/flags_data.py"
PARSER: Final = r'''
"""Make sglang's own parser; run in an interpreter of its own with the wheel's folder and that of msgspec as arguments."""
import argparse, importlib.abc, importlib.machinery, json, sys, types

root, msgspec = sys.argv[1:3]
sys.path[:0] = [root, msgspec]
REAL = ("sglang.srt.server_args", "sglang.srt.arg_groups", "sglang.srt.environ")

class Placeholder(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = placeholder(name)
        setattr(cls, name, value)
        return value
    __iter__ = lambda cls: iter(())
    __len__ = lambda cls: 0
    __contains__ = lambda cls, item: False
    __bool__ = lambda cls: False
    __getitem__ = lambda cls, item: placeholder("item")
    __add__ = __radd__ = lambda cls, other: other if isinstance(other, list) else cls
    __or__ = __ror__ = lambda cls, other: cls
    def __call__(cls, *args, **kwargs):
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
            return args[0]
        return type.__call__(cls)

def placeholder(name):
    def attribute(self, key):
        if key.startswith("__"):
            raise AttributeError(key)
        return placeholder(key)
    call = lambda self, *args, **kwargs: args[0] if len(args) == 1 and callable(args[0]) else placeholder("call")
    members = {"__getattr__": attribute, "__iter__": lambda self: iter(()), "__call__": call, "__bool__": lambda self: False,
               "__getitem__": lambda self, key: placeholder("item")}
    return Placeholder(name, (), members)

# What reads a flag's value: a placeholder is false, and `type_parser or ...` would name another reader than the release has.
READERS = ("human_readable_int", "json_list_type", "nullable_str", "parse_cuda_graph_backend_arg", "parse_cuda_graph_config_arg")

def reader(name):
    def read(value):
        return value
    read.__name__ = name
    return read

class Module(types.ModuleType):
    def __getattr__(self, name):
        if name == "__version__":
            return "99.0"
        if name in READERS:
            return reader(name)
        if name.startswith("__"):
            raise AttributeError(name)
        value = placeholder(name)
        setattr(self, name, value)
        return value

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top == "msgspec" or name.startswith(REAL):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        module = Module(spec.name)
        module.__path__ = []
        return module
    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())
for name in ("sglang", "sglang.srt"):
    module = Module(name)
    module.__path__ = [root + "/" + name.replace(".", "/")]
    sys.modules[name] = module
sys.modules["sglang"].srt = sys.modules["sglang.srt"]
from sglang.srt.server_args import ServerArgs

parser = argparse.ArgumentParser(add_help=False)
ServerArgs.add_cli_args(parser)
'''
DUMP: Final = (
    PARSER
    + r"""
flags = {}
for action in parser._actions:
    choices = sorted(map(str, action.choices)) if action.choices is not None and type(action.choices) is not type(parser) else None
    kind = type(action).__name__
    flags[action.option_strings[0]] = {
        "aliases": list(action.option_strings[1:]),
        "switch": action.nargs == 0,
        "many": action.nargs in ("+", "*") or isinstance(action.nargs, int) and action.nargs > 1 or "Append" in kind,
        "optional": action.nargs in ("?", "*"),
        "type": getattr(action.type, "__name__", "str"),
        "choices": choices or None,
        "deprecated": kind.startswith("Deprecated") or (action.help or "").lower().lstrip("[(").startswith("deprecated"),
        "instead": getattr(action, "new_flag", None) or None,
        "error": getattr(action, "error_message", None) or None,
        "required": bool(action.required),
    }
print(json.dumps(flags))
"""
)
"""Prints the flags as JSON."""
JUDGE: Final = (
    PARSER
    + r"""
import contextlib, io

for line in sys.stdin:
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            parser.parse_args(json.loads(line))
            sys.__stdout__.write("taken\n")
        except SystemExit:
            sys.__stdout__.write("refused\n")
"""
)
"""Says of each line of standard input, a list of words in JSON, whether the parser takes it."""


def run(version: str, program: str, given: str = "") -> str:
    """What one of the programs above prints for a version."""
    import msgspec

    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel(version)) as archive:
            wanted = ("sglang/srt/server_args.py", "sglang/srt/environ.py", "sglang/srt/arg_groups/")
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(wanted)])
        command = [sys.executable, "-I", "-c", program, folder, str(Path(msgspec.__file__).parent.parent)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, input=given)
    if result.returncode:
        raise SystemExit(f"sglang {version}: its parser does not run: {result.stderr.strip().splitlines()[-1]}")
    return result.stdout


def dump(version: str) -> dict[str, dict[str, Any]]:
    """Flags of one version: primary name to what its own parser says of it."""
    with zipfile.ZipFile(wheel(version)) as archive:
        parsers = registered_parsers(archive)
    flags: dict[str, dict[str, Any]] = json.loads(run(version, DUMP).splitlines()[-1])
    for flag, names in parsers.items():
        if flags[flag]["choices"] is not None:  # a registry that the stand-ins for torch and others leave empty
            flags[flag]["choices"] = sorted({*flags[flag]["choices"], *names})
    for record in flags.values():
        if any(choice.startswith("<class") for choice in record["choices"] or ()):
            record["choices"] = None
    return flags


REGISTRIES: Final = {
    "--reasoning-parser": ("DetectorMap", "REASONING_PARSER_NAMES"),
    "--tool-call-parser": ("ToolCallParserEnum", "TOOL_CALL_PARSER_NAMES"),
}
"""Flags whose choices are the keys of a registry, with the registry's name and that of a list of its names."""


def registered_parsers(archive: zipfile.ZipFile) -> dict[str, list[str]]:
    """Names of the reasoning and tool call parsers of a wheel, by AST."""
    found: dict[str, list[str]] = {flag: [] for flag in REGISTRIES}
    for name in archive.namelist():
        if not (name.startswith(("sglang/srt/parser/", "sglang/srt/function_call/")) and name.endswith(".py")):
            continue
        for node in ast.walk(ast.parse(archive.read(name))):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            for flag, registries in REGISTRIES.items():
                if names & set(registries) and isinstance(node, (ast.Assign, ast.AnnAssign)):
                    elements = node.value.keys if isinstance(node.value, ast.Dict) else getattr(node.value, "elts", [])
                    found[flag] += [item.value for item in elements if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    for flag, names_of in found.items():
        if not names_of:
            raise SystemExit(f"{archive.filename}: no registry of {flag} was found")
    return found


def table(dumps: list[dict[str, dict[str, Any]]]) -> dict[str, list[tuple[int, int, dict[str, Any]]]]:
    """Flag to spans ``(first, last, what it is)``, first and last being indexes of VERSIONS; equal neighbours are one span."""
    spans: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
    for index, flags in enumerate(dumps):
        for name, record in flags.items():
            compact = {
                key: value for key, value in record.items() if value not in (None, False, [], "str") or (key == "type" and value != "str")
            }
            known = spans.setdefault(name, [])
            if known and known[-1][1] == index - 1 and known[-1][2] == compact:
                known[-1] = (known[-1][0], index, compact)
            else:
                known.append((index, index, compact))
    return dict(sorted(spans.items()))


def render() -> str:
    """The module's text."""
    data = table([dump(version) for version in VERSIONS])
    head = '"""Flags of sglang\'s releases, as their own parsers declare them. Generated by tools/sglang_flags.py; do not edit."""\n\n'
    versions = f"VERSIONS = {pprint.pformat(VERSIONS, width=100)}\n\n"
    body = "\n".join(f"    {name!r}: {spans!r}," for name, spans in data.items())
    future = "from __future__ import annotations\n\nfrom typing import Any\n\n"
    return f"{head}{future}{versions}FLAGS: dict[str, list[tuple[int, int, dict[str, Any]]]] = {{\n{body}\n}}\n"


def main() -> int:
    """Write, or check."""
    text = render()
    if "--check" in sys.argv[1:]:
        same = TARGET.exists() and TARGET.read_text() == text
        print("the table equals the wheels" if same else f"{TARGET.relative_to(ROOT)} is stale: run tools/sglang_flags.py")
        return 0 if same else 1
    TARGET.write_text(text)
    print(f"{TARGET.relative_to(ROOT)}: {text.count(chr(10))} lines for {len(VERSIONS)} releases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
