"""Stands in for sglang's tuning script: takes the same flags, tunes nothing, and writes a file under the name that sglang's would have."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--tp-size", "--tp", type=int, default=2)
parser.add_argument("--dtype", choices=["auto", "fp8_w8a8", "int8_w8a16", "int8_w8a8", "int4_w4a16"], default="auto")
parser.add_argument("--tune", action="store_true", required=True)
parser.add_argument("--disable-shared-experts-fusion", action="store_true")
options = parser.parse_args()
config = json.loads((Path(options.model) / "config.json").read_text())
experts = config["n_routed_experts"] + (0 if options.disable_shared_experts_fusion else config["n_shared_experts"])
columns = config["moe_intermediate_size"] // options.tp_size
device = subprocess.run(["nvidia-smi", "--query-gpu=name"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
name = f"E={experts},N={columns},device_name={device.replace(' ', '_')}.json"
Path(name).write_text(json.dumps({"1": {"BLOCK_SIZE_M": 16, "simulated": True, "tp_size": options.tp_size}}) + "\n")
