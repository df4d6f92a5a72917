"""Profiles: a release of sglang with its pins and what a GLM-5-NVFP4 server on eight RTX PRO 6000 Blackwell wants to be told by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .flags import UnknownVersionError, flags_of, index_of
from .flags_data import VERSIONS
from .profiles_data import PINS

DEFAULT = VERSIONS[-1]
"""The newest release that is known."""

NAMES = {"default": DEFAULT, "glm5-sm120": DEFAULT, "glm5-sm120-2026-02": "0.5.9"}
"""Names that stand for a release. The last one is the era of the first GLM-5 recipes: dense MLA, bf16 KV cache, patched autotune."""

SPARSE_ON_SM120 = "0.5.17"
"""First release whose sparse attention runs on SM120 (sgl-project/sglang#26928)."""
IPC_ALLREDUCE = "0.5.22"
"""First release whose flashinfer has pcie_ipc (flashinfer-python 0.7.1)."""
AUTO_NUMA = "0.5.10"
"""First release that binds ranks to NUMA nodes when SGLANG_AUTO_NUMA_BIND is set (environ.py; on by default from 0.5.20 on)."""
OWN_TRANSFORMERS = "0.5.10"
"""First release whose own pin of transformers knows glm_moe_dsa."""
CUDA = {"0.5.8.post1": "12.9", "0.5.9": "12.9"}
"""CUDA of torch's default wheels; everything newer is built for CUDA 13 (cuda-python and the [cu13] extras in METADATA)."""


@dataclass(frozen=True)
class Profile:
    """A release, its pins, and the launch that suits GLM-5-NVFP4 on 8x SM120.

    ``flags`` and ``environment`` are defaults that an inventory overrides; ``reasons`` tells why each variable has its value.
    ``overrides`` are requirements that replace the release's own pins. ``notes`` say what a person should know before choosing it.
    """

    version: str
    python: str
    cuda: str
    pins: dict[str, str]
    flags: dict[str, Any]
    environment: dict[str, str]
    reasons: dict[str, str]
    overrides: list[str]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for filters and reports."""
        return dict(self.__dict__)


def version_of(name: str) -> str:
    """The release that a profile's name stands for; a release is its own name. Raises UnknownVersionError."""
    version = NAMES.get(name, name)
    try:
        index_of(version)
    except UnknownVersionError as error:
        raise UnknownVersionError(f"{error}; or a name: {', '.join(NAMES)}") from None
    return version


def profile(name: str = "default") -> Profile:
    """The profile of a release or a name; raises UnknownVersionError with everything that can be chosen."""
    version = version_of(name)
    index = index_of(version)
    sparse = index >= index_of(SPARSE_ON_SM120)
    pins = PINS[version]
    notes = []
    if not sparse:
        notes.append("Dense MLA: the model's indexer is ignored, 75.9 % against 89.3 % correct on a long-context task.")
    if index < index_of(OWN_TRANSFORMERS):
        notes.append("Pins transformers 4.57.1, which does not know glm_moe_dsa; the patch transformers-for-glm5 sets >=5.2,<5.4.")
    if index <= index_of("0.5.10.post1"):
        notes.append("flashinfer's FP4 GEMM has a race: NaN from about 64 concurrent requests on.")
    return Profile(
        version=version,
        python=pins["python"],
        cuda=CUDA.get(version, "13.0"),
        pins={name: pin for name, pin in pins.items() if name != "python"},
        flags=_flags(version, sparse=sparse),
        environment=_environment(version, sparse=sparse),
        reasons={setting.name: setting.reason for setting in SETTINGS},
        overrides=[],
        notes=notes,
    )


def _flags(version: str, *, sparse: bool) -> dict[str, Any]:
    known = flags_of(version)
    graph = "cuda-graph-max-bs-decode" if "--cuda-graph-max-bs-decode" in known else "cuda-graph-max-bs"
    flags: dict[str, Any] = {
        "tp-size": 8,
        "trust-remote-code": True,
        "quantization": "modelopt_fp4",
        # Sparse attention reads an fp8_e4m3 cache on SM120; dense MLA before it gave garbled answers with one.
        "kv-cache-dtype": "fp8_e4m3" if sparse else "bf16",
        "moe-runner-backend": "flashinfer_cutlass",
        "reasoning-parser": "glm45",
        "tool-call-parser": "glm47",
        "mem-fraction-static": 0.92 if sparse else 0.9,
        # A deliberate cap: larger decode graphs ran out of memory on 96 GB, and autotuning covers batches up to it.
        "max-running-requests": 256,
        graph: 256,
        # More than two GPUs without NVLink: sglang switches it off by itself, with a warning at each start.
        "disable-custom-all-reduce": True,
        "enable-metrics": True,
    }
    if not sparse:
        flags["attention-backend"] = "flashinfer"
    return flags


@dataclass(frozen=True)
class Setting:
    """An environment variable of the server with the reason for its value.

    ``since`` is the first release that gets it; ``dense`` ones are for releases whose sparse attention does not run on SM120.
    """

    name: str
    value: str
    reason: str
    since: str = VERSIONS[0]
    dense: bool = False


SETTINGS = (
    Setting("OMP_NUM_THREADS", "8", "Kernel launches and NCCL need few threads each; more oversubscribe the cores of a NUMA node."),
    Setting("NCCL_P2P_LEVEL", "SYS", "P2P across NUMA nodes too: by default NCCL stops at the host bridge."),
    Setting("NCCL_IB_DISABLE", "1", "No InfiniBand in this node."),
    Setting("NCCL_MIN_NCHANNELS", "8", "22 to 37 GB/s bus bandwidth on dual-socket hosts with eight channels."),
    Setting("SAFETENSORS_FAST_GPU", "1", "Weights are read onto the GPU without a copy in host memory."),
    Setting("HF_HUB_OFFLINE", "1", "What is served is what was proved complete; no start waits for a hub."),
    Setting(
        "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "1", "All-reduce over PCIe IPC: 35 to 48 tokens/s single stream on eight cards.", IPC_ALLREDUCE
    ),
    Setting("SGLANG_ENABLE_JIT_DEEPGEMM", "0", "DeepGEMM of these releases has no SM120 kernels.", dense=True),
    Setting(
        "SGLANG_AUTO_NUMA_BIND", "1", "Each rank keeps to the cores and the memory of its GPU's NUMA node, which it asks the driver for.",
        AUTO_NUMA,
    ),
)  # fmt: skip
"""What the server is told on dual-socket hosts with eight cards (local-inference-lab/rtx6kpro on NCCL; environ.py of the wheels)."""


def _environment(version: str, *, sparse: bool) -> dict[str, str]:
    index = index_of(version)
    return {setting.name: setting.value for setting in SETTINGS if index >= index_of(setting.since) and not (setting.dense and sparse)}
