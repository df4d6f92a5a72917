"""Measuring GPU peer-to-peer where the driver is: a watcher and its worker, streamed over any connection as one Python program."""

from __future__ import annotations

from gpunode_tools.probe.measure import Options, measure
from gpunode_tools.probe.session import ChannelSession, LocalSession, Session, command

__all__ = ["ChannelSession", "LocalSession", "Options", "Session", "command", "measure"]
