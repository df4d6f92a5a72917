"""Whatever comes in ends in a result or a refusal by name, and what is read is never something else than what was printed."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpunode.parsers import driver_files
from gpunode.parsers.dkms import parse_dkms
from gpunode.parsers.kernel_log import parse_kernel_log
from gpunode.parsers.lspci import parse_lspci
from gpunode.parsers.nvbandwidth import parse_nvbandwidth
from gpunode.parsers.nvlink import parse_nvlink
from gpunode.parsers.p2p_status import parse_p2p_status
from gpunode.parsers.p2p_test import parse_p2p_test
from gpunode.parsers.smi_q import parse_smi_q
from gpunode.parsers.text import NotUnderstoodError
from gpunode.parsers.topo import parse_topo

settings.register_profile("unit", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")

PATHS = ["SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV4", "NV12", "NV18"]


@st.composite
def hosts(draw, cells=tuple(PATHS), nics=True):
    """(GPUs, NICs, symmetric matrix of cells over both)."""
    gpus = draw(st.integers(1, 16))
    others = draw(st.integers(0, 76)) if nics else 0
    size = gpus + others
    seed = draw(st.randoms(use_true_random=False))
    matrix = [["X"] * size for _ in range(size)]
    for one in range(size):
        for other in range(one):
            matrix[one][other] = matrix[other][one] = seed.choice(cells if one < gpus else cells[:5])
    return gpus, others, matrix


def topo_lines(gpus, nics, matrix):
    labels = [f"GPU{number}" for number in range(gpus)] + [f"NIC{number}" for number in range(nics)]
    lines = [["", *labels, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]]
    for number, label in enumerate(labels):
        tail = [f"{number}-{number + 31},{number + 64}", str(number % 2), "N/A"] if number < gpus else []
        lines.append([label, *matrix[number], *tail])
    return lines


@given(hosts(), st.data())
def test_topo_with_mangled_blanks_reads_the_same(host, data):
    gpus, nics, matrix = host
    blanks = st.sampled_from(["\t", " ", "    ", "\t ", "\u00a0 ", " \t\t"])
    ends = data.draw(st.sampled_from(["\n", "\r\n", " \n", "\r"]))
    seed = data.draw(st.randoms(use_true_random=False))
    blank = data.draw(blanks)
    lines = [seed.choice([blank, " " + blank]).join(row) for row in topo_lines(gpus, nics, matrix)]
    dressed = ["\x1b[4m" + lines[0] + "\x1b[0m", *lines[1:]]
    topology = parse_topo(ends.join(dressed) + ends)
    assert topology.matrix == [row[:gpus] for row in matrix[:gpus]]
    assert topology.gpu_nic_matrix == ([row[gpus:] for row in matrix[:gpus]] if nics else [])
    assert topology.numa_affinity == [str(number % 2) for number in range(gpus)]
    assert topology.complete


@given(hosts(), st.floats(0, 1))
def test_topo_cut_anywhere_is_never_misread(host, where):
    gpus, nics, matrix = host
    text = "\n".join("\t".join(row) for row in topo_lines(gpus, nics, matrix)) + "\n"
    try:
        topology = parse_topo(text[: int(len(text) * where)])
    except NotUnderstoodError:
        return
    for label, row in zip(topology.rows, topology.matrix, strict=True):
        assert row == matrix[int(label[3:])][: len(topology.gpus)]
    if len(topology.gpus) == gpus and not topology.complete:
        assert topology.notes
    for number, row in enumerate(topology.gpu_nic_matrix):
        assert row == matrix[number][gpus : gpus + len(topology.nics)]
    for number, value in enumerate(topology.numa_affinity):
        assert value == str(number % 2)


@given(hosts(cells=("OK", "NS", "CNS", "GNS", "TNS"), nics=False), st.floats(0, 1), st.sampled_from(["\t", "  ", " \u00a0"]))
def test_status_cut_anywhere_is_never_misread(host, where, blank):
    gpus, _, matrix = host
    labels = [f"GPU{number}" for number in range(gpus)]
    rows = [["", *labels], *([label, *row] for label, row in zip(labels, matrix, strict=True))]
    text = "\n".join(blank.join(row) for row in rows) + "\n"
    assert parse_p2p_status(text).matrix == matrix
    try:
        status = parse_p2p_status(text[: int(len(text) * where)])
    except NotUnderstoodError:
        return
    for label, row in zip(status.rows, status.matrix, strict=True):
        assert row == matrix[int(label[3:])][: len(status.gpus)]


PARSERS = [
    parse_topo,
    parse_p2p_status,
    parse_smi_q,
    parse_lspci,
    parse_kernel_log,
    parse_dkms,
    parse_nvlink,
    parse_p2p_test,
    parse_nvbandwidth,
    driver_files.parse_driver_version,
    driver_files.parse_params,
    driver_files.parse_majors,
    driver_files.parse_aer,
    driver_files.parse_speed,
    driver_files.parse_registry,
    driver_files.parse_gpu_information,
    lambda text: driver_files.parse_modprobe({"/etc/modprobe.d/a.conf": text}),
]
SHORT = "GPU0 GPU1 GPU15 NIC0 NV18 NV X OK SYS PIX Legend: <gpu <nvidia_smi_log> 0-31 N/A ... | 12.34 0 é"
LONG = ("\t", "\n", "\r\n", " : ", "\x1b[4m", "\u202f", "CPU Affinity", "NUMA Affinity", "Driver Version : 5", "Attached GPUs : 3")
LINES = (
    "GPU 00000000:01:00.0",
    "01:00.0 PCI bridge: A",
    "\tACSCtl: ReqRedir+",
    "NVRM: Xid (PCI:0000:01:00): 79, x",
    "NVRM: API mismatch: the client",
    "nvidia/595.1, 7.0: installed",
    "Unidirectional P2P=Enabled",
    "   D\\D  0  1",
    "Running a.",
    "SUM a 1",
    '{"nvbandwidth":',
    "options nvidia a=1",
)
WORDS = st.sampled_from([*SHORT.split(), *LONG, *LINES])


@pytest.mark.parametrize("parser", PARSERS)
@given(st.one_of(st.text(max_size=400), st.lists(WORDS, max_size=60).map(" ".join), st.lists(WORDS, max_size=60).map("".join)))
def test_any_text_ends_in_a_result_or_a_refusal(parser, text):
    refusal = None
    try:
        parser(text)
    except NotUnderstoodError as error:
        refusal = error
    assert refusal is None or (refusal.what and refusal.why)


@given(st.floats(0, 1), st.integers(1, 16))
def test_smi_q_cut_anywhere(where, count):
    blocks = [
        f"GPU 00000000:{number:02X}:00.0\n    Product Name : NVIDIA Model {number}\n    Addressing Mode : HMM\n    Processes : None\n"
        for number in range(count)
    ]
    text = f"Driver Version : 595.58.03\nAttached GPUs : {count}\n" + "".join(blocks)
    try:
        found = parse_smi_q(text[: int(len(text) * where)])
    except NotUnderstoodError:
        return
    assert found.driver_version in {None, "595.58.03"}
    assert found.attached in {None, count}
    assert all(gpu.name in {None, f"NVIDIA Model {number}"} for number, gpu in enumerate(found.gpus))
    assert all(gpu.addressing_mode in {None, "HMM"} for gpu in found.gpus)


@given(st.floats(0, 1), st.integers(2, 16))
def test_p2p_test_cut_anywhere(where, count):
    rows = [[round(10.0 + one + other / 100, 2) for other in range(count)] for one in range(count)]
    lines = ["Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)", "   D\\D " + " ".join(map(str, range(count)))]
    lines += [f"{number} " + " ".join(f"{value:6.2f}" for value in row) for number, row in enumerate(rows)]
    text = "\n".join(lines) + "\n"
    try:
        found = parse_p2p_test(text[: int(len(text) * where)])
    except NotUnderstoodError:
        return
    for matrix in found.matrices.values():
        width = len(matrix.rows[0]) if matrix.rows else 0
        assert matrix.rows == [row[:width] for row in rows[: len(matrix.rows)]]


@given(st.floats(0, 1))
def test_nvbandwidth_json_cut_is_refused_never_half_read(where):
    text = json.dumps({"nvbandwidth": {"testcases": [{"name": "a", "status": "Passed", "bandwidth_matrix": [["1.5"]]}]}})
    cut = text[: int(len(text) * where)]
    if cut != text:
        with pytest.raises(NotUnderstoodError):
            parse_nvbandwidth(cut)


@given(st.text(alphabet="GPU01X NV8\t\n", max_size=300))
def test_paths_are_never_invented(text):
    try:
        topology = parse_topo(text)
    except NotUnderstoodError:
        return
    printed = set(re.findall(r"NV\d+|X", text))
    assert {cell for row in topology.matrix for cell in row} <= printed
