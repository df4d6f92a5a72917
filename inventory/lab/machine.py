#!/usr/bin/env python3
"""Inventory script: where on this machine the lab is. GPUNODE_LAB_INDEX tells several labs on one machine apart.

Read once a run. As templates in group_vars these values were worked out anew by every task on every node, a third of what a task cost the
controller.
"""

from __future__ import annotations

import json
import os
import sys

index = os.environ.get("GPUNODE_LAB_INDEX") or "0"
home = f"/var/lib/gpunode-lab/{index}"

json.dump(
    {
        "all": {
            "vars": {
                "lab_home": home,
                "lab_subnet": f"10.213.{index}",
                "ansible_user": "root",
                "ansible_ssh_private_key_file": f"{home}/ssh/id_ed25519",
                "ansible_ssh_common_args": f"-o UserKnownHostsFile={home}/ssh/known_hosts -o IdentitiesOnly=yes",
            }
        },
        "_meta": {"hostvars": {}},
    },
    sys.stdout,
)
