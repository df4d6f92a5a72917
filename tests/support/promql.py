"""The metrics that an expression of PromQL names."""

from __future__ import annotations

import re

KEYWORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left", "group_right", "inf", "nan"}


def matched(expression: str) -> set[tuple[str, str]]:
    """Pairs of a metric and a label that a matcher of it names."""
    found = set()
    for selector in re.finditer(r"([A-Za-z_][\w:]*)\{([^}]*)\}", expression):
        found |= {(selector[1], label) for label in re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", re.sub(r'"(?:[^"\\]|\\.)*"', "", selector[2]))}
    return found


def grouped(expression: str) -> set[str]:
    """Labels that an expression groups or joins by."""
    lists = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression)
    return {label.strip() for text in lists for label in text.split(",") if label.strip()}


def metrics(expression: str) -> set[str]:
    """Names of metrics: what is left when strings, matchers, label lists, ranges, numbers, functions and keywords are taken away."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    words = re.finditer(r"(?<![\w:.])[A-Za-z_][\w:]*", text)
    return {word[0] for word in words if word[0].lower() not in KEYWORDS and not re.match(r"\s*\(", text[word.end() :])}
