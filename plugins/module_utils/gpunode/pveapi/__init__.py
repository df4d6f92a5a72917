"""Talking to Proxmox VE: backends and a container's life. The one part of the core that touches the world.

The backends are this project's own, over the standard library and paramiko: proxmoxer takes whatever a command writes to its error output
for a failure, gives a request 5 s, accepts any host key over ssh, and pins no certificate. And a node needs nothing installed.
"""

from __future__ import annotations
