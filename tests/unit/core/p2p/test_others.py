"""What others measured is judged by the same rules; a waived test of nvbandwidth is lost peer-to-peer."""

from __future__ import annotations

import pytest

from gpunode.others import measured_by_others
from gpunode.parsers.text import NotUnderstoodError

HEAD = "nvbandwidth Version: v0.8\n"
MATRIX = "Running {name}.\n{kind} GPU(row) {arrow} GPU(column) {unit}\n 0 1\n0 N/A {one}\n1 {other} N/A\n\nSUM {name} 1\n"


def nvbandwidth(node, text):
    node.data.update(measured_by_others(text))


def write(one="53.10", other="40.20", arrow="<-"):
    return HEAD + MATRIX.format(
        name="device_to_device_memcpy_write_ce", kind="memcpy CE", arrow=arrow, unit="bandwidth (GB/s)", one=one, other=other
    )


def test_arrow_says_which_way_data_went():
    pairs = {(pair["src"], pair["dst"]): pair["copy_gbps"] for pair in measured_by_others(write())["measured"]}
    assert pairs == {(1, 0): 53.1, (0, 1): 40.2}
    pairs = {(pair["src"], pair["dst"]): pair["copy_gbps"] for pair in measured_by_others(write(arrow="->"))["measured"]}
    assert pairs == {(0, 1): 53.1, (1, 0): 40.2}


def test_latency_in_microseconds(make):
    text = HEAD + MATRIX.format(
        name="device_to_device_latency_sm", kind="memory latency SM", arrow="<->", unit="(ns)", one="827.00", other="14500.00"
    )
    host = make(2)
    nvbandwidth(host, text)
    assert host.only("p2p-staged").subject == "GPU1->GPU0"


def test_waived_is_lost(make):
    host = make(2)
    nvbandwidth(host, HEAD + "Waiving device_to_device_memcpy_write_ce.\n")
    finding = host.only("p2p-no-access")
    assert (finding.severity, finding.subject) == ("error", "all pairs")
    assert host.judge().exit_code == 1


def test_one_gpu_waives_without_harm(make):
    host = make(1)
    nvbandwidth(host, HEAD + "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n 0\n0 26.00\n")
    assert host.judge().exit_code == 0


P2P = """\
Device: 0, NVIDIA X, pciBusID: 21, pciDeviceID: 0, pciDomainID:0
Device: 1, NVIDIA X, pciBusID: 1, pciDeviceID: 0, pciDomainID:0
Device=0 CAN Access Peer Device=1
Device=1 CANNOT Access Peer Device=0
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 900.00  20.00
     1  20.00 900.00
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 900.00   9.90
     1  20.00 900.00
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   1.00  17.20
     1  18.00   1.00
"""


def test_p2p_test_by_the_addresses_of_its_devices(make):
    host = make(2)
    host.data.update(measured_by_others(P2P))
    assert host.only("p2p-no-access").subject == "GPU0->GPU1"  # device 1 is at 01:00.0, GPU0 of the bus
    assert host.only("p2p-staged").subject == "GPU1->GPU0"
    assert "write latency 17.2 us" in host.only("p2p-staged").evidence
    assert host.only("p2p-slower-than-host-copy").subject == "GPU1->GPU0"


def test_matrices_alone():
    data = measured_by_others(P2P[P2P.index("Unidirectional P2P=Enabled") :])
    assert data["measured"][0] == {"src": 0, "dst": 1, "status": "ok", "copy_gbps": 9.9, "write_latency_us": 17.2}


def test_anything_else_is_refused():
    with pytest.raises(NotUnderstoodError, match="nvbandwidth"):
        measured_by_others("hello\n")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("70-p2pblt-5070-5060ti-5x-pcie3x4", {"p2p-no-access"}),
        ("78-p2pblt-rtxpro6000-5090-6x-turin", set()),
        ("79-p2pblt-rtxpro6000-6x-onedecimal", set()),
        ("80-nvbandwidth-text-8x-write-ce", set()),
        ("84-nvbandwidth-waived-2080ti", {"p2p-no-access"}),
    ],
)
def test_samples(samples, make, name, found):
    host = make()
    host.data = measured_by_others((samples / f"{name}.txt").read_text())
    told = {finding.id for finding in host.judge().findings if finding.id.startswith(("p2p", "bandwidth"))}
    assert told == found


def test_the_matrix_tells_of_access_where_the_lines_are_missing():
    text = "P2P Connectivity Matrix\n     D\\D     0     1\n     0\t     1     0\n     1\t     1     1\n"
    text += P2P.split("CANNOT Access Peer Device=0\n")[1]
    pairs = {(pair["src"], pair["dst"]): pair["status"] for pair in measured_by_others(text)["measured"]}
    assert pairs == {(0, 1): "no-access", (1, 0): "ok"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Running device_to_device_memcpy_write_ce.\nERROR: CUDA_ERROR_LAUNCH_FAILED\n", "ERROR: CUDA_ERROR_LAUNCH_FAILED"),
        ("Running device_to_device_memcpy_write_ce.\nInvalid value\n", "it ended in the test device_to_device_memcpy_write_ce"),
        (
            "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n 0 1\n0 26.00 26.00\n",
            "it ran host_to_device_memcpy_ce and no copies between GPUs",
        ),
    ],
)
def test_a_run_without_pairs_says_why(make, text, why):
    host = make(2)
    nvbandwidth(host, HEAD + text)
    assert host.judge().exit_code == 3
    assert host.only("not-readable").evidence == f"nvbandwidth brought no pair: {why}"
