"""The metrics that an expression of PromQL names."""

from __future__ import annotations

import re

KEYWORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left", "group_right", "inf", "nan"}


def metrics(expression: str) -> set[str]:
    """Names of metrics: what is left when strings, matchers, label lists, ranges, numbers, functions and keywords are taken away."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    words = re.finditer(r"(?<![\w:.])[A-Za-z_][\w:]*", text)
    return {word[0] for word in words if word[0].lower() not in KEYWORDS and not re.match(r"\s*\(", text[word.end() :])}
