"""The command line of the sglang that is installed, read from its own source without importing it.

Newer releases declare flags as annotated fields (`port: A[int, "help"] = 30000`), older ones as `parser.add_argument` calls; both are
read from the syntax tree, so that a flag which this release does not know, or knows no longer, fails here exactly as it fails there.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_UNKNOWN = object()
_SCALARS = {"int": int, "float": float, "str": str}


@dataclass
class Flag:
    """One flag: its spellings, and argparse's keywords."""

    names: list[str]
    keywords: dict[str, Any] = field(default_factory=dict)


def _warn(option: str | None, new_flag: str | None) -> None:
    instead = f" Use '{new_flag}' instead." if new_flag else ""
    print(f"'{option}' is deprecated and will be removed in a future release.{instead}", file=sys.stderr)


class _Deprecated(argparse.Action):
    """sglang's four kinds of retired flags in one."""

    def __init__(self, option_strings: list[str], dest: str, kind: str, **keywords: Any) -> None:
        self.kind = kind
        self.new_flag = keywords.pop("new_flag", None)
        self.error_message = keywords.pop("error_message", None)
        self.const_value = keywords.pop("const_value", True)
        if kind != "DeprecatedAliasStoreAction":
            keywords.setdefault("nargs", 0)
        super().__init__(option_strings, dest, **keywords)

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        if self.kind == "DeprecatedAction":
            if self.error_message:
                parser.error(self.error_message)
            _warn(option_string, None)
            return
        _warn(option_string, self.new_flag)
        setattr(namespace, self.dest, values if self.kind == "DeprecatedAliasStoreAction" else self.const_value)


class _Source:
    """Constants and classes of the files that declare the flags."""

    def __init__(self, package: Path) -> None:
        folder = package / "srt"
        files = [folder / "server_args.py", *sorted((folder / "arg_groups").rglob("*.py"))]
        self.trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files if path.is_file()]
        if not self.trees:
            raise SystemExit(f"sglang stand-in: no {folder}/server_args.py: is the sglang wheel installed in this environment?")
        self.constants: dict[str, Any] = {}
        for tree in self.trees:
            for node in tree.body:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
                for target in targets:
                    if isinstance(target, ast.Name) and node.value is not None:
                        value = self.value(node.value)
                        if value is not _UNKNOWN:
                            self.constants[target.id] = value

    def value(self, node: ast.expr) -> Any:
        """What an expression is worth, as far as literals, known names and sums of lists tell."""
        if isinstance(node, ast.Name):
            return self.constants.get(node.id, _UNKNOWN)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "argparse" and node.attr == "SUPPRESS":
                return argparse.SUPPRESS
            return self.constants.get(f"{node.value.id}.{node.attr}", _UNKNOWN)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.value(node.left), self.value(node.right)
            return _UNKNOWN if _UNKNOWN in (left, right) else left + right
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            values = [self.value(item) for item in node.elts]
            return _UNKNOWN if any(value is _UNKNOWN for value in values) else values
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Name):
                    return {"list": [], "dict": {}}.get(keyword.value.id, _UNKNOWN)
            return _UNKNOWN
        try:
            return ast.literal_eval(node)
        except ValueError:
            return _UNKNOWN


def _strip_optional(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Optional":
        return node.slice
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [side for side in (node.left, node.right) if not (isinstance(side, ast.Constant) and side.value is None)]
        return sides[0] if len(sides) == 1 else node
    return node


def _human_int(text: str) -> int:
    factor = {"k": 1000, "K": 1024, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}.get(text[-1:], 0)
    return int(float(text[:-1]) * factor) if factor else int(text)


def _parser_function(node: ast.expr) -> Any:
    name = ast.unparse(node)
    if name in {"json.loads", "json_list_type"}:
        return json.loads
    return {"human_readable_int": _human_int, **_SCALARS}.get(name, str)


def _type_of(node: ast.expr, metadata: dict[str, ast.expr], source: _Source) -> dict[str, Any]:
    """Return argparse's keywords for an annotated type, as sglang's own helper derives them."""
    node = _strip_optional(node)
    keywords: dict[str, Any] = {}
    if "type_parser" in metadata:
        keywords["type"] = _parser_function(metadata["type_parser"])
        return keywords
    if isinstance(node, ast.Name) and node.id == "bool":
        return {"action": "store_true"}
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if node.value.id == "Literal":
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            values = [source.value(item) for item in items]
            return {"type": type(values[0]), "choices": values}
        if node.value.id in {"List", "list"}:
            inner = ast.unparse(node.slice)
            return {"type": _SCALARS.get(inner, str), "nargs": "+"}
    keywords["type"] = _SCALARS.get(ast.unparse(node), str)
    return keywords


def _action(name: str, keywords: dict[str, Any]) -> dict[str, Any]:
    """A custom action by its name; `store` where the name says nothing."""
    short = name.rsplit(".", 1)[-1].strip("'\"")
    if short in {"store_true", "store_false", "append"}:
        return {**{k: v for k, v in keywords.items() if k not in {"type", "nargs"} or short == "append"}, "action": short}
    if short == "BooleanOptionalAction":
        return {**{k: v for k, v in keywords.items() if k not in {"type", "nargs"}}, "action": argparse.BooleanOptionalAction}
    if short.startswith("Deprecated"):
        return {**keywords, "action": _Deprecated, "kind": short}
    return keywords


def _field_flag(node: ast.AnnAssign, source: _Source) -> Flag | None:
    """The flag of one annotated field, or None when the field is not on the command line."""
    name = node.target.id if isinstance(node.target, ast.Name) else ""
    annotation = node.annotation
    if not (isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in {"A", "Annotated"}):
        return None
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
    metadata: dict[str, ast.expr] = {}
    described = False
    for part in parts[1:]:
        if isinstance(part, ast.Call) and ast.unparse(part.func) == "Arg":
            metadata = {keyword.arg: keyword.value for keyword in part.keywords if keyword.arg}
            described = True
        elif not (isinstance(part, ast.Call) and ast.unparse(part.func) in {"NS", "Derived"}):
            described = True
    if not described or source.value(metadata.get("no_cli", ast.Constant(value=False))) is True:
        return None
    flag_name = source.value(metadata["cli_name"]) if "cli_name" in metadata else "--" + name.replace("_", "-")
    aliases = source.value(metadata["aliases"]) if "aliases" in metadata else []
    keywords = _type_of(parts[0], metadata, source)
    for key in ("choices", "nargs", "const"):
        value = source.value(metadata[key]) if key in metadata else _UNKNOWN
        if value is not _UNKNOWN and value is not None:
            keywords[key] = value
    if "action" in metadata:
        extra = metadata.get("action_kwargs")
        if isinstance(extra, ast.Dict):
            for key, value_node in zip(extra.keys, extra.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in {"nargs", "new_flag", "error_message", "const_value"}:
                    keywords[key.value] = source.value(value_node)
        keywords = _action(ast.unparse(metadata["action"]), keywords)
    default = source.value(node.value) if node.value is not None else None
    keywords["default"] = None if default is _UNKNOWN else default
    keywords["dest"] = name
    if node.value is None and name == "model_path":
        keywords["required"] = True
    return Flag([flag_name, *(aliases if isinstance(aliases, list) else [])], keywords)


def _call_flag(node: ast.Call, source: _Source) -> Flag | None:
    """The flag of one `parser.add_argument(...)` call."""
    names = [source.value(argument) for argument in node.args]
    if not names or not all(isinstance(name, str) and name.startswith("-") for name in names):
        return None
    keywords: dict[str, Any] = {}
    action = ""
    for keyword in node.keywords:
        if keyword.arg == "type":
            keywords["type"] = _parser_function(keyword.value)
        elif keyword.arg == "action":
            action = ast.unparse(keyword.value)
        elif keyword.arg in {"choices", "nargs", "const", "dest", "default", "required", "new_flag", "error_message", "const_value"}:
            value = source.value(keyword.value)
            if value is not _UNKNOWN:
                keywords[keyword.arg] = value
    if keywords.get("default") == []:
        keywords["default"] = None
    return Flag(names, _action(action, keywords) if action else keywords)


def read(package: Path) -> list[Flag]:
    """Every flag that the sglang package in this folder declares, calls last as in its own code."""
    source = _Source(package)
    declared: list[Flag] = []
    for tree in source.trees:
        for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for node in owner.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    default = source.value(node.value) if node.value is not None else _UNKNOWN
                    if default is not _UNKNOWN:
                        source.constants[f"{owner.name}.{node.target.id}"] = default
                    flag = _field_flag(node, source)
                    if flag is not None:
                        declared.append(flag)
    for tree in source.trees:
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "add_cli_args"):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                    flag = _call_flag(node, source)
                    if flag is not None:
                        declared.append(flag)
    return declared


def parser(package: Path, prog: str) -> argparse.ArgumentParser:
    """Return an argparse parser with the flags of the installed release."""
    made = argparse.ArgumentParser(prog=prog)
    seen: set[str] = set()
    for flag in read(package):
        names = [name for name in flag.names if name not in seen]
        if not names:
            continue
        seen.update(names)
        keywords = dict(flag.keywords)
        action = keywords.get("action")
        if action is _Deprecated:
            keywords.setdefault("kind", "DeprecatedStoreTrueAction")
        else:
            for key in ("new_flag", "error_message", "const_value"):
                keywords.pop(key, None)
        if action in {"store_true", "store_false"} or action is argparse.BooleanOptionalAction:
            for key in ("choices", "const", "type", "nargs"):
                keywords.pop(key, None)
        made.add_argument(*names, **keywords)
    return made
