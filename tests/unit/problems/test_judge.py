"""The order of an answer: root cause before consequence, by clock or place; the special form before the general."""

from __future__ import annotations

from gpunode.problems import diagnosis, findings, match

XID = "NVRM: Xid (PCI:0000:c1:00): 79, pid=4411, name=python3, GPU has fallen off the bus."
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."


def roots(*lines: str) -> list[tuple[str, str]]:
    return [(item.id, item.because_of) for item in match(lines)]


def test_an_oom_that_follows_an_xid_is_the_xids() -> None:
    assert roots(XID, OOM) == [("xid-fallen-off-bus", ""), ("gpu-memory-request", "xid-fallen-off-bus")]


def test_an_oom_before_an_xid_is_its_own() -> None:
    assert sorted(roots(OOM, "later", XID)) == [("gpu-memory-request", ""), ("xid-fallen-off-bus", "")]


def test_clocks_decide_across_sources() -> None:
    def answer(kernel: str, journal: str) -> dict[str, str]:
        found = diagnosis()
        found.read("journal", f"2026-11-30T{journal}+0000 node sglang[1]: {OOM}\n")
        found.read("kernel log", f"2026-11-30T{kernel}+0000 node kernel: {XID}\n")
        return {item.id: item.because_of for item in found.matches()}

    assert answer("10:00:00", "10:00:04")["gpu-memory-request"] == "xid-fallen-off-bus"
    assert answer("10:00:03", "10:00:00")["gpu-memory-request"] == "xid-fallen-off-bus", "clocks of two logs are not that exact"
    assert answer("11:00:00", "10:00:00")["gpu-memory-request"] == ""


def test_a_chain_stands_under_its_first_cause() -> None:
    found = roots(
        "pcieport 0000:40:01.1: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)",
        XID,
        "NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        "torch.AcceleratorError: CUDA error: unspecified launch failure",
        "[TP0] Scheduler hit an exception: Traceback (most recent call last):",
    )
    assert found[0] == ("pcie-fatal", "")
    assert all(reason for _, reason in found[1:])
    assert {name for name, _ in found} >= {"xid-fallen-off-bus", "xid-recovery-action", "cuda-launch-failure", "server-ended"}


def test_an_exception_is_never_the_root_of_what_explains_it() -> None:
    assert roots("[TP0] Scheduler hit an exception: Traceback (most recent call last):", OOM)[0] == ("gpu-memory-request", "")


def test_errors_come_before_warnings_and_harmless_last() -> None:
    found = match(
        [
            "[TP0] Ignore import error when loading sglang.srt.models.glm_ocr: No module named 'x'",
            "KV cache pool is full. Retract requests. #retracted_reqs: 4",
            OOM,
        ]
    )
    assert [item.problem.severity for item in found] == ["error", "warning", "info"]
    assert [finding.severity for finding in findings(found)] == ["error", "warning"]
    assert [finding.severity for finding in findings(found, harmless=True)] == ["error", "warning", "info"]
    assert findings(found)[0].subject == "gpu-memory-request"


def test_the_same_message_with_two_causes() -> None:
    disk = roots("xet_get(", "RuntimeError: IO Error: No space left on device (os error 28)")
    shared = roots('File "/usr/lib/python3.12/multiprocessing/heap.py", line 81', "OSError: [Errno 28] No space left on device")
    boot = roots("update-initramfs: Generating /boot/initrd.img-7.0.14", "zstd: No space left on device")
    assert [disk[0][0], shared[0][0], boot[0][0]] == ["disk-full", "shared-memory-full", "boot-partition-full"]
