"""`topo -m` and `topo -p2p`: what terminals, copies and cuts do to them; never misread, refused by name."""

from __future__ import annotations

import pytest

from gpunode.parsers.p2p_status import parse_p2p_status
from gpunode.parsers.text import NotUnderstoodError
from gpunode.parsers.topo import parse_topo

TWO = (
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tPHB\tNODE\t0-31\t0\t\tN/A\nGPU1\tPHB\t X \tPIX\t0-31\t0\t\tN/A\nNIC0\tNODE\tPIX\t X \t\t\t\t\n"
)


def test_plain():
    topology = parse_topo(TWO)
    assert topology.matrix == [["X", "PHB"], ["PHB", "X"]]
    assert topology.gpu_nic_matrix == [["NODE"], ["PIX"]]
    assert topology.path(0, 1) == topology.path(1, 0) == "PHB"
    assert topology.path(0, 7) is None
    assert topology.complete
    assert "rows" not in topology.to_dict()


@pytest.mark.parametrize(
    "text",
    [
        TWO.replace("\t", "   "),
        TWO.replace("\n", "\r\n"),
        TWO.replace("\n", "\r"),
        TWO.replace("\tGPU0\tGPU1", "\t\x1b[4mGPU0\tGPU1"),
        "\x1b]0;title\x07" + TWO,
        "\ufeff" + TWO.replace("\t", "\u00a0"),
        "user@host:~# nvidia-smi topo -m" + TWO,
        "GPU Topology of GPU0:\n" + TWO,
        "    " + TWO.replace("\n", "\n    "),
        TWO + "[exit 0]\n",
        TWO + "\n\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n",
        TWO.replace("NIC0\tCPU", "NIC0CPU"),
        TWO.replace("NODE\t0-31", "NODE0-31"),
        TWO.replace("\tGPU0\tGPU1\tNIC0", "\tGPU0GPU1\tNIC0"),
    ],
)
def test_what_terminals_and_people_do_to_it(text):
    topology = parse_topo(text)
    assert topology.matrix == [["X", "PHB"], ["PHB", "X"]]
    assert topology.gpu_nic_matrix == [["NODE"], ["PIX"]]
    assert topology.cpu_affinity == ["0-31", "0-31"]
    assert topology.complete


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no header line with GPU0"),
        ("NVIDIA-SMI has failed", "no header line"),
        ("\tGPU0\tGPU1\n", "no row that belongs to it"),
        ("\tGPU0\tGPU1\nGPU1\tOK\tX\n", "no row that belongs to it"),
        (TWO.replace("PHB", "OK"), "no row that belongs|cell 'OK'"),
        (TWO.replace("PHB\tNODE", "foo\tNODE"), "cell 'foo' in row GPU0"),
        (TWO.replace("GPU0\t X \tPHB\tNODE", "GPU0\t X \tPHB\tNODE\tSYS"), "more than the 3 cells"),
        (TWO.replace("GPU0\t X \tPHB", "GPU0\tPHB\t X "), "row GPU0 reads PHB under GPU0, expected X"),
        (TWO.replace("GPU1\tPHB\t X ", "GPU1\t X \t X "), "row GPU1 reads X under GPU0"),
        (TWO.replace("GPU0\t X \tPHB\tNODE\t0-31\t0\t\tN/A", "GPU0\t X \tPHB"), "short of its 3 cells, yet more rows follow"),
        (TWO.replace("GPU1\tPHB", "GPU0\t X \tPHB\tNODE\nGPU1\tPHB"), "two rows named GPU0"),
        (TWO.replace("\tGPU0\tGPU1\tNIC0", "\tGPU1\tGPU0\tNIC0"), "no header line"),
        (TWO.replace("CPU Affinity", "CPU Affinity Colour"), "no header line"),
        (TWO.replace("\tGPU1\tNIC0", "\tGPU1\tGPU\tNIC0"), "no header line"),
        ("| | GPU0 | GPU1 |\n| GPU0 | X | NV4 |\n", "re-typed"),
        ("\t" + "\t".join(f"GPU{number}" for number in range(99)) + "\n", "no header line"),
    ],
)
def test_refused_by_name(text, why):
    with pytest.raises(NotUnderstoodError, match=why) as refusal:
        parse_topo(text)
    assert str(refusal.value).startswith("nvidia-smi topo -m: ")


def test_cut_in_a_cell_does_not_read_nv1_for_nv18():
    text = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tNV18\tNV18\t0-31\nGPU1\tNV18\t X \tNV1"
    topology = parse_topo(text)
    assert (topology.rows, topology.complete) == (["GPU0"], False)
    assert topology.to_dict()["rows"] == ["GPU0"]
    assert topology.notes == ["the text is cut: no row for GPU1, GPU2"]


def test_cut_after_the_gpus_of_a_row_keeps_them():
    topology = parse_topo("\tGPU0\tGPU1\tNIC0\tNIC1\nGPU0\tX\tNV4\tSYS\tSYS\nGPU1\tNV4\tX\tSY")
    assert topology.matrix == [["X", "NV4"], ["NV4", "X"]]
    assert topology.gpu_nic_matrix == [["SYS", "SYS"]]
    assert not topology.complete


@pytest.mark.parametrize(
    ("tail", "cpu", "numa"),
    [
        ("0-31\t0\t\tN/A", ["0-31", "0-31"], ["0", "0"]),
        ("0-31\t0\t\tN/", ["0-31", "0-31"], ["0", "0"]),
        ("0-31\t0", ["0-31", "0-31"], ["0"]),
        ("0-3", ["0-31"], ["0"]),
        ("", ["0-31"], ["0"]),
    ],
)
def test_cut_in_the_affinity_of_the_last_row(tail, cpu, numa):
    topology = parse_topo(f"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tPHB\t0-31\t0\t\tN/A\nGPU1\tPHB\t X \t{tail}")
    assert (topology.cpu_affinity, topology.numa_affinity) == (cpu, numa)
    assert topology.complete == (tail.endswith("N/A"))


def test_last_affinity_of_a_cut_text_may_be_longer():
    topology = parse_topo("\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\tX\tPHB\tPHB\t0-31\nGPU1\tPHB\tX\tPHB\t0-3\n")
    assert (topology.cpu_affinity, topology.complete) == (["0-31"], False)


def test_empty_cpu_affinity_of_a_container():
    topology = parse_topo("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t\tN/A\t\tN/A\n")
    assert (topology.cpu_affinity, topology.numa_affinity, topology.gpu_numa_id) == ([""], ["N/A"], ["N/A"])


@pytest.mark.parametrize(
    "rows",
    [
        "GPU0\t X \tSYS\t\tN/A\t\tN/A\nGPU1\tSYS\t X \t\tN/A\t\tN/A\n",
        "GPU0     X      SYS                     N/A             N/A\nGPU1    SYS      X                      N/A             N/A\n",
    ],
)
def test_empty_cpu_affinity_by_tabs_and_by_blanks(rows):
    header = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    topology = parse_topo((header if "\t" in rows else header.expandtabs(8)) + rows)
    assert (topology.cpu_affinity, topology.numa_affinity, topology.gpu_numa_id) == (["", ""], ["N/A", "N/A"], ["N/A", "N/A"])
    assert topology.complete


def test_cpu_and_numa_affinity_both_empty():
    topology = parse_topo("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tSYS\t\t\t\tN/A\nGPU1\tSYS\t X \t\t\t\tN/A\n")
    assert (topology.cpu_affinity, topology.numa_affinity, topology.gpu_numa_id) == (["", ""], ["", ""], ["N/A", "N/A"])


def test_word_below_no_heading_is_not_guessed():
    topology = parse_topo(
        "        GPU0    GPU1    CPU Affinity    NUMA Affinity\nGPU0     X      SYS           0\nGPU1    SYS      X      0-31    0\n"
    )
    assert topology.cpu_affinity == [None, "0-31"]
    cut = parse_topo(
        "        GPU0    GPU1    CPU Affinity    NUMA Affinity\nGPU0     X      SYS     0-31\nGPU1    SYS      X      0-31    0\n"
    )
    assert cut.cpu_affinity == [None, "0-31"]


def test_affinity_that_is_not_understood_leaves_the_paths():
    topology = parse_topo("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tPHB\t0-31\tzero\tone\nGPU1\tPHB\tX\t0-31, 64-95\t0\n")
    assert topology.cpu_affinity == [None, "0-31,64-95"]
    assert topology.matrix[0] == ["X", "PHB"]


def test_many_nics_announce_themselves():
    banner = "76 NICs found in the topology, only displaying 56 in the matrix.\n"
    assert parse_topo("nvidia-smi topo -m\n" + banner + TWO).notes == ["76 NICs found, 56 shown"]


def test_asymmetric_paths_are_noted():
    assert parse_topo("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tSYS\tX\n").notes == ["GPU0 to GPU1 reads NV4, back SYS"]


def test_adapters_by_the_names_of_older_drivers():
    topology = parse_topo("GPU0 mlx5_0 mlx5_bond_1 CPU Affinity\nGPU0 X PIX SYS 0-19\nmlx5_0 PIX X SYS\nmlx5_bond_1 SYS SYS X\n")
    assert topology.nics == ["mlx5_0", "mlx5_bond_1"]
    assert topology.gpu_nic_matrix == [["PIX", "SYS"]]
    assert topology.complete


def test_legend_of_nics_and_its_end():
    text = TWO + "\nLegend:\n\n  X    = Self\n  NV#  = bonded\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    topology = parse_topo(text)
    assert topology.complete
    assert topology.to_dict()["nic_names"] == {"NIC0": "mlx5_0"}
    assert not parse_topo(TWO + "\nLegend:\n\n  X    = Self\n").complete


STATUS = " \tGPU0\tGPU1\tGPU2\t\n GPU0\tX\tOK\tGNS\t\n GPU1\tOK\tX\tOK\t\n GPU2\tGNS\tOK\tX\t\n"


def test_status():
    status = parse_p2p_status(STATUS)
    assert status.status(0, 2) == "GNS"
    assert status.status(0, 9) is None
    assert status.status(9, 0) is None
    assert status.complete


def test_status_with_rows_left_out():
    status = parse_p2p_status(" GPU0 GPU1 GPU2\nGPU0 X OK OK\n...\nGPU2 OK OK X\n")
    assert (status.rows, status.complete) == (["GPU0", "GPU2"], False)


def test_status_of_one_gpu():
    assert parse_p2p_status(" \t\x1b[4mGPU0\t\x1b[0m\n GPU0\tX\t\n").matrix == [["X"]]


@pytest.mark.parametrize("text", ["", TWO, "Invalid device\n", " GPU0 NIC0\nGPU0 X OK\nNIC0 OK X\n"])
def test_status_refused_by_name(text):
    with pytest.raises(NotUnderstoodError, match="nvidia-smi topo -p2p w"):
        parse_p2p_status(text, "w")


def test_both_tables_in_one_text_are_told_apart():
    both = TWO + "\n" + STATUS
    assert parse_topo(both).gpus == ["GPU0", "GPU1"]
    assert parse_p2p_status(both).gpus == ["GPU0", "GPU1", "GPU2"]
