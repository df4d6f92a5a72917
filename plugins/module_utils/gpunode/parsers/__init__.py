"""Parsers: what NVIDIA's, Linux's and others' programs print, as plain data, or a refusal that names what was not understood."""

from __future__ import annotations
