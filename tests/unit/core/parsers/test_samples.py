"""Outputs of real machines, read as their meta files say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from gpunode.parsers.kernel_log import parse_kernel_log
from gpunode.parsers.lspci import parse_lspci
from gpunode.parsers.nvbandwidth import parse_nvbandwidth
from gpunode.parsers.nvlink import parse_nvlink
from gpunode.parsers.p2p_status import parse_p2p_status
from gpunode.parsers.p2p_test import parse_p2p_test
from gpunode.parsers.smi_q import parse_smi_q
from gpunode.parsers.text import NotUnderstoodError
from gpunode.parsers.topo import parse_topo

FOLDER = Path(os.environ["GPUNODE_SAMPLES"]) if os.environ.get("GPUNODE_SAMPLES") else None
METAS = [yaml.safe_load(path.read_text()) | {"path": path} for path in sorted(FOLDER.glob("*.meta.yml"))] if FOLDER else []


def of_kind(*kinds):
    chosen = [meta for meta in METAS if meta["kind"].split(" ")[0] in kinds]
    if not chosen:
        return [pytest.param(None, marks=pytest.mark.skip("GPUNODE_SAMPLES is unset: no outputs of real machines to read"))]
    return [pytest.param(meta, id=meta["path"].name.removesuffix(".meta.yml")) for meta in chosen]


def text_of(meta):
    with meta["path"].with_name(meta["path"].name.replace(".meta.yml", ".txt")).open(newline="") as stream:
        return stream.read()


@pytest.mark.parametrize("meta", of_kind("topo_m"))
def test_topo(meta):
    topology = parse_topo(text_of(meta))
    assert (len(topology.gpus), len(topology.nics)) == (meta["gpu_count"], meta["nic_count"])
    assert topology.columns == meta["columns"]
    assert topology.matrix == meta["gpu_matrix"]
    assert topology.gpu_nic_matrix == meta.get("gpu_nic_matrix", [])
    assert topology.nics == meta.get("nic_labels", [])
    for name in ("cpu_affinity", "numa_affinity", "gpu_numa_id"):
        assert getattr(topology, name) == meta.get(name, []), name
    assert topology.complete == meta["complete"]
    if "nic_legend" in meta:
        assert list(topology.nic_names.values()) == meta["nic_legend"]


@pytest.mark.parametrize("meta", of_kind("topo_m_as_markdown"))
def test_retyped_table_is_refused_by_name(meta):
    with pytest.raises(NotUnderstoodError, match="nvidia-smi topo -m: a table re-typed"):
        parse_topo(text_of(meta))


@pytest.mark.parametrize("meta", of_kind("topo_p2p"))
def test_p2p_status(meta):
    status = parse_p2p_status(text_of(meta))
    assert status.matrix == meta["gpu_matrix"]
    assert len(status.gpus) == meta["gpu_count"]
    assert status.complete == meta["complete"]
    if isinstance(meta.get("rows_present"), list):
        assert status.rows == [f"GPU{number}" for number in meta["rows_present"]]


NAMES = ("uni_p2p_off", "uni_p2p_on", "bidir_p2p_off", "bidir_p2p_on")


@pytest.mark.parametrize("meta", of_kind("p2pBandwidthLatencyTest"))
def test_p2p_test(meta):
    found = parse_p2p_test(text_of(meta))
    for name in NAMES:
        if name in meta:
            assert found.matrices[name].rows == meta[name]
            assert found.matrices[name].complete
    if meta["complete"]:
        assert all(matrix.complete for matrix in found.matrices.values())
    else:
        assert not found.complete


@pytest.mark.parametrize("meta", of_kind("nvbandwidth_text", "nvbandwidth_json"))
def test_nvbandwidth(meta):
    run = parse_nvbandwidth(text_of(meta))
    assert run.complete == meta["complete"]
    if "test" in meta:
        case = run.tests[meta["test"]]
        assert case.status == meta.get("status", "Passed")
        assert (case.matrix is None) == (meta.get("matrix", 0) is None)
        if "values" in meta:
            assert case.matrix == meta["values"]
    for key, name in (("h2d", "host_to_device_memcpy_ce"), ("d2h", "device_to_host_memcpy_ce")):
        if key in meta:
            assert run.tests[name].matrix == [meta[key]]


@pytest.mark.parametrize("meta", of_kind("lspci_vvv"))
def test_lspci(meta):
    (device,) = parse_lspci(text_of(meta))
    assert device.bdf == f"0000:{meta['bdf']}"
    if "acs_ctl" in meta:
        assert device.acs_ctl == {flag[:-1]: flag[-1] == "+" for flag in meta["acs_ctl"].split()}
        assert device.acs_redirect == meta["acs_redirect"]
    if "lnkcap" in meta:
        assert f"{device.link_cap.speed:g}GT/s x{device.link_cap.width}" == meta["lnkcap"]
        assert device.link_now.speed == float(meta["lnksta"].split("GT/s")[0])
        assert device.numa_node == meta["numa_node"]
        assert device.relaxed_ordering == meta["relaxed_ordering"]
        assert device.driver == meta["driver_in_use"]


@pytest.mark.parametrize("meta", of_kind("nvidia_smi_q"))
def test_smi_q(meta):
    found = parse_smi_q(text_of(meta))
    assert (found.driver_version, found.attached) == (meta["driver"], meta["attached_gpus"])
    assert not found.complete  # one of eight GPUs
    gpu = found.gpus[0]
    assert (gpu.addressing_mode == "HMM") == meta["hmm"]
    assert gpu.addressing_mode == meta["addressing_mode"]
    for key, value in (("bar1_total_mib", gpu.bar1_total_mib), ("mig", gpu.mig), ("ecc", gpu.ecc), ("pcie_gen_current", gpu.gen_current)):
        if key in meta:
            assert value == meta[key]
    if "pcie_width_current" in meta:
        assert f"{gpu.width_current}x" == meta["pcie_width_current"]


@pytest.mark.parametrize("meta", of_kind("dmesg"))
def test_kernel_log(meta):
    log = parse_kernel_log(text_of(meta))
    if "xid" in meta:
        assert [f"{xid.bus_id[:-2]}/{xid.number}" for xid in log.xids] == meta["xid"]
    if "iommu_active" in meta:
        assert log.iommu_active == meta["iommu_active"]
    if "nvrm_version" in meta:
        assert log.nvrm_version == meta["nvrm_version"]
    if "iommu" in meta:
        assert meta["iommu"] in log.cmdline
        assert log.acs_override == meta["acs_override"]
    assert log.not_probed == meta.get("devices_not_probed", 0)


@pytest.mark.parametrize("host", ["host-h200-x1", "host-h200-x2"])
def test_text_and_xml_of_nvidia_smi_agree(samples, host):
    text, xml = (parse_smi_q((samples / host / f"{name}.txt").read_text()) for name in ("smi-q", "smi-q-xml"))
    assert text == xml
    assert text.complete


def test_nvlinks_of_a_real_host(samples):
    assert parse_nvlink((samples / "host-h200-x2/nvlink.txt").read_text()) == {0: [26.562] * 18, 1: [26.562] * 18}


LOGS = {
    "gpud-xid119-gsp-timeout": [119],
    "gpud-xid149-154-nvlink": [149, 154, 154],
    "stas-xid63-row-remap": [63],
    "club3090-io-page-fault-xid154": [154],
    "noconnor-xid69-with-server-trace": [69],
    "neg-joorklee-dmesg-pcie": [],
}


@pytest.mark.parametrize(("name", "numbers"), LOGS.items())
def test_xids_in_logs(samples, name, numbers):
    log = parse_kernel_log((samples / f"logs/{name}.log").read_text())
    assert [xid.number for xid in log.xids] == numbers


def test_gpus_fallen_off_the_bus_in_two_wordings(samples):
    assert parse_kernel_log((samples / "logs/gpud-xid79-fallen-off-bus.log").read_text()).fallen == ["0000:05:00.0", "0000:18:00.0"]


@pytest.mark.parametrize(
    ("name", "versions"),
    [("nvrm-api-mismatch-container", ("570.148.08", "570.148.06")), ("nvrm-api-mismatch-new-wording", ("595.84", "595.80"))],
)
def test_api_mismatch_in_two_wordings(samples, name, versions):
    assert parse_kernel_log((samples / f"logs/{name}.log").read_text()).api_mismatches == [versions]
