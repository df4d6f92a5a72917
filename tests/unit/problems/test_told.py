"""A line may tell of an error without reporting it; and the same words, reported, are found however they are printed."""

from __future__ import annotations

import pytest

from gpunode.problems import match

TOLD = {
    "notes": """
- If you see `CUDA out of memory`, lower it.
- "NCCL watchdog timeout" usually means a hang.
- Xid 79 means that the GPU has fallen off the bus.
""",
    "a change log": """
* Fix CUDA out of memory in graph capture (#1234)
- [Bugfix] Avoid illegal memory access in extend
* Raise when address already in use
""",
    "commits": """
fix: handle `no kernel image is available for execution on the device`
docs: explain "Failed to initialize NVML: Unknown Error"
""",
    "commands": """
$ grep -c "CUDA out of memory" server.log
0
+ grep -q 'address already in use' /var/log/sglang.log
root@pve1:~# dmesg | grep 'fallen off the bus'
zgrep -E 'GPU has fallen off the bus' /var/log/syslog.2.gz
""",
    "cron and sudo": """
Mar 02 10:00:01 pve1 CRON[12]: (root) CMD (dmesg | grep -q 'fallen off the bus' && reboot)
Mar 02 10:00:01 pve1 sudo[12]: ops : TTY=pts/0 ; USER=root ; COMMAND=/usr/bin/grep 'GPU has fallen off the bus' /var/log/kern.log
""",
    "a unit": """
# Restart when "Failed to initialize NVML: Unknown Error" appears
ExecStartPre=/bin/sh -c '! dmesg | grep -q "fallen off the bus"'
""",
    "a report": """
ok: [node1] => {"msg": "All assertions passed: no 'CUDA out of memory', no 'NCCL WARN'"}
""",
    "alert rules": """
summary: "Xid 79: GPU has fallen off the bus on {{ $labels.instance }}"
expr: count_over_time({job="x"} |= "CUDA out of memory" [5m]) > 0
""",
    "remarks in a file": """
# 0.95 gives "CUDA out of memory" with 64 requests
""",
    "counts of nothing": """
EDAC MC0: 0 UE, 0 CE
nccl_errors=0 cuda_errors=0 oom=0
DCGM_FI_DEV_XID_ERRORS 0
""",
}
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
BUS = "NVRM: Xid (PCI:0000:c1:00): 79, pid=4, name=python3, GPU has fallen off the bus."
REPORTED = [
    (f'ts=2026-03-02T10:00:00Z level=error msg="{OOM}"', "gpu-memory-request"),
    (f'{{"MESSAGE":"{BUS}","_HOSTNAME":"pve1"}}', "xid-fallen-off-bus"),
    (f"ERROR:root:worker failed: RuntimeError('{OOM}')", "gpu-memory-request"),
    ('Err value: Os { code: 28, message: "No space left on device" }', "disk-full"),
    ('panic: failed to create: "no space left on device"', "disk-full"),
    ("It fails with `CUDA error: no kernel image is available for execution on the device`", "no-kernel-image"),
    (f"root@pve1:~# dmesg | grep -i xid\n[12345.6] {BUS}", "xid-fallen-off-bus"),
    ("root@pve1:~# nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch", "driver-library-mismatch"),
    (f"server.log:123:{OOM}", "gpu-memory-request"),
    (f"* {OOM}", "gpu-memory-request"),
    ("Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.", "nan-logits"),
    ("sglang serve: error: ambiguous option: --pp could match --pp-size, --pp-max-micro-batch-size", "flag-ambiguous"),
    ("[pod/sg-0/c] OutOfResources: out of resource: shared memory,\n[pod/sg-0/c] Required: 147456", "triton-fused-moe"),
]  # fmt: skip


@pytest.mark.parametrize("text", TOLD.values(), ids=TOLD)
def test_what_is_told_is_no_problem(text: str) -> None:
    assert [(found.id, found.evidence[0].text) for found in match(text.splitlines()) if not found.problem.harmless] == []


@pytest.mark.parametrize(("text", "expected"), REPORTED)
def test_what_is_reported_is_found(text: str, expected: str) -> None:
    found = match(text.splitlines())
    assert found
    assert found[0].id == expected


@pytest.mark.parametrize(
    "prefix",
    [
        "[pod/sg-0/server] ",
        "[default3]:",
        "[1,3]<stderr>:",
        "3: ",
        "0|sglang   | ",
        "E0302 10:11:12.123456 99123 worker.cpp:683] ",
        "2026-03-02 10:11:12.123 | ERROR    | launcher:main:88 - ",
    ],
)
def test_a_message_wrapped_below_a_prefix_is_one(prefix: str) -> None:
    found = match([f"{prefix}RuntimeError: CUDA out of", f"{prefix}memory. Tried to allocate 2.00 GiB"])
    assert [item.id for item in found] == ["gpu-memory-request"]
