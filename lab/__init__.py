"""A Proxmox node with 8 GPUs on any Linux machine: real LXC containers, stand-ins for what needs the hardware.

Standard library only; imports neither the core nor the tools. Runs on the machine (command line) and inside the nodes.
"""

from __future__ import annotations
