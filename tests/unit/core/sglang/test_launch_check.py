"""A launch is judged before it starts: flags, values, contradictions, what fails on which GPU in which release."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
import yaml

from gpunode.findings import ERROR, UNKNOWN, Finding, exit_code
from gpunode.sglang.flags import UnknownVersionError
from gpunode.sglang.flags_data import VERSIONS
from gpunode.sglang.launch_check import check_launch
from gpunode.sglang.launch_text import extract
from gpunode.sglang.profiles import NAMES, profile, version_of

GLM5 = "--model-path lukealonso/GLM-5-NVFP4"


def judge(line: str, version: str = "0.5.23", gpu: str = "sm120", **more: object) -> list[Finding]:
    return check_launch(shlex.split(line), {}, version, gpu, **more)  # type: ignore[arg-type]


def errors(line: str, version: str = "0.5.23", gpu: str = "sm120", **more: object) -> list[tuple[str, str]]:
    return [(finding.id, finding.subject) for finding in judge(line, version, gpu, **more) if finding.severity == ERROR]


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        (f"{GLM5} --pp 2", "0.5.23", ("flag-ambiguous", "--pp")),
        (f"{GLM5} --enable_metrics", "0.5.23", ("flag-misspelt", "--enable_metrics")),
        (f"{GLM5} --moe-runer-backend triton", "0.5.23", ("flag-misspelt", "--moe-runer-backend")),
        (f"{GLM5} --nsa-decode-backend tilelang", "0.5.20", ("flag-removed", "--nsa-decode-backend")),
        (f"{GLM5} --cuda-graph-max-bs 64", "0.5.20", ("flag-removed", "--cuda-graph-max-bs")),
        (f"{GLM5} --dsa-decode-backend tilelang", "0.5.12", ("flag-too-new", "--dsa-decode-backend")),
        (f"{GLM5} --kv-cache-dtype fp8", "0.5.23", ("flag-value", "--kv-cache-dtype")),
        (f"{GLM5} --tp-size eight", "0.5.23", ("flag-value", "--tp-size")),
        (f"{GLM5} --mem-fraction-static 92%", "0.5.23", ("flag-value", "--mem-fraction-static")),
        (f"{GLM5} --trust-remote-code=true", "0.5.23", ("flag-value", "--trust-remote-code")),
        (f"{GLM5} --tp-size", "0.5.23", ("flag-value", "--tp-size")),
        (f"{GLM5} --model-loader-extra-config '{{broken}}'", "0.5.23", ("flag-value", "--model-loader-extra-config")),
        (f"{GLM5} --reasoning-parser glm54", "0.5.23", ("flag-value", "--reasoning-parser")),
        (f"{GLM5} stray", "0.5.23", ("launch-stray-word", "stray")),
        (f"{GLM5} --nnodes 2 --node-rank 0", "0.5.23", ("flag-missing", "--dist-init-addr")),
        (f"{GLM5} --nnodes 2 --node-rank 2 --dist-init-addr a:1", "0.5.23", ("flag-conflict", "--node-rank")),
        ("--tp-size 8", "0.5.23", ("flag-missing", "--model-path")),
    ],
)
def test_what_the_parser_would_refuse_is_an_error(line: str, version: str, expected: tuple[str, str]) -> None:
    assert expected in errors(line, version, "")


@pytest.mark.parametrize(
    ("line", "version", "gpu", "expected"),
    [
        (f"{GLM5} --enable-flashinfer-allreduce-fusion", "0.5.14", "sm120", "allreduce-fusion-refused"),
        (f"{GLM5} --flashinfer-allreduce-fusion-backend trtllm", "0.5.23", "sm120", "allreduce-fusion-refused"),
        (f"{GLM5} --kv-cache-dtype bf16", "0.5.23", "sm120", "dsa-needs-fp8-kv"),
        (f"{GLM5} --kv-cache-dtype bf16", "0.5.16", "sm120", "sparse-attention-unsupported"),
        (f"{GLM5} --kv-cache-dtype fp8_e4m3 --dsa-decode-backend trtllm", "0.5.23", "sm120", "trtllm-attention"),
        ("--model-path x --attention-backend trtllm_mha", "0.5.18", "sm120", "trtllm-attention"),
        ("--model-path x --attention-backend trtllm_mha --kv-cache-dtype fp8_e4m3", "0.5.23", "sm121", "trtllm-attention"),
        ("--model-path x --attention-backend trtllm_mla", "0.5.23", "sm90", "trtllm-attention"),
        ("--model-path x --attention-backend fa3", "0.5.23", "sm120", "fa3-hopper-only"),
        ("--model-path x --quantization modelopt_fp4", "0.5.12.post1", "sm90", "nvfp4-needs-blackwell"),
        (f"{GLM5} --moe-runner-backend flashinfer_trtllm", "0.5.23", "sm120", "trtllm-moe"),
        ("--model-path zai-org/GLM-4.5-Air-FP8", "0.5.8.post1", "sm89", "triton-moe-shared-memory"),
        ("--model-path moonshotai/Kimi-K2.5", "0.5.8.post1", "sm120", "extend-attention-shared-memory"),
    ],
)
def test_what_fails_on_a_gpu_is_an_error_there_alone(line: str, version: str, gpu: str, expected: str) -> None:
    assert expected in [name for name, _ in errors(line, version, gpu)]
    assert expected not in [name for name, _ in errors(line, version, "")]


@pytest.mark.parametrize(
    ("line", "version", "gpu"),
    [
        ("--model-path x --attention-backend trtllm_mha", "0.5.19", "sm120"),
        ("--model-path x --decode-attention-backend trtllm_mha", "0.5.10", "sm120"),
        ("--model-path x --attention-backend trtllm_mla", "0.5.9", "sm120"),
        ("--model-path x --quantization modelopt_fp4", "0.5.13", "sm90"),
        ("--model-path x --enable-flashinfer-allreduce-fusion", "0.5.14", "sm90"),
        (f"{GLM5} --kv-cache-dtype fp8_e4m3", "0.5.17", "sm120"),
        (f"{GLM5} --attention-backend ${{BACKEND}}", "0.5.9", "sm120"),
    ],
)
def test_what_runs_is_no_error(line: str, version: str, gpu: str) -> None:
    assert errors(line, version, gpu) == []


def test_a_patch_settles_its_fault() -> None:
    line = "--model-path moonshotai/Kimi-K2.5"
    assert errors(line, "0.5.8.post1", patches=["extend-attention-sm120-blocks"]) == []


def test_a_fork_s_flag_is_unknown_until_the_build_is_known() -> None:
    line = f"{GLM5} --enable-pcie-oneshot-allreduce --moe-runner-backend b12x"
    found = [finding for finding in judge(line) if finding.id == "flag-fork-only"]
    assert [finding.severity for finding in found] == [UNKNOWN, UNKNOWN]
    assert exit_code(judge(line)) == 3
    assert [name for name, _ in errors(line, stock=True)] == ["flag-fork-only", "flag-fork-only"]


def test_dynamo_s_flags_are_in_place_at_dynamo_s_worker() -> None:
    line = "--model-path x --dyn-tool-call-parser glm47"
    assert exit_code(judge(line, entry="dynamo.sglang")) == 0
    assert exit_code(judge(line)) == 3


def test_variables_are_unknown_until_they_have_a_value() -> None:
    line = f"{GLM5} --tp-size $TP --max-running-requests ${{MAX:-64}}"
    assert [finding.subject for finding in judge(line) if finding.severity == UNKNOWN] == ["--tp-size"]
    assert exit_code(judge(line, defines={"TP": "8"})) == 0
    assert ("flag-value", "--tp-size") in errors(line, defines={"TP": "all"})


def test_no_flag_at_all_is_unknown() -> None:
    assert [finding.id for finding in check_launch([], {}, "0.5.23", "sm120", entry="run.sh")] == ["launch-hidden"]
    assert exit_code(check_launch([], {}, "0.5.23", "")) == 3


def test_speculation_without_a_cap_says_48() -> None:
    (finding,) = [finding for finding in judge(f"{GLM5} --speculative-algorithm EAGLE") if finding.id == "speculation-caps-requests"]
    assert "48" in finding.summary
    assert "speculation-caps-requests" not in [f.id for f in judge(f"{GLM5} --speculative-algo EAGLE --max-running-requests 256")]


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("SGLANG_ENABLE_DEEP_GEMM", "0.5.23", "environment-no-effect"),
        ("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "0.5.9", "environment-no-effect"),
        ("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "0.5.22", None),
        ("SGLANG_ENABLE_SPEC_V2", "0.5.12", None),
        ("SGLANG_ENABLE_SPEC_V2", "0.5.23", "environment-no-effect"),
        ("SGL_ENABLE_JIT_DEEPGEMM", "0.5.9", "environment-renamed"),
        ("SGLANG_ENABLE_JIT_DEPGEMM", "0.5.23", "environment-no-effect"),
        ("NCCL_P2P_LEVEL", "0.5.23", None),
    ],
)
def test_variables_that_nothing_reads_are_told(name: str, version: str, expected: str | None) -> None:
    found = [finding.id for finding in check_launch(["--model-path", "x"], {name: "1"}, version, "") if finding.subject == name]
    assert found == ([expected] if expected else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_profile_s_own_launch_is_free_of_errors(version: str) -> None:
    chosen = profile(version)
    arguments = ["--model-path", "lukealonso/GLM-5-NVFP4"]
    for name, value in chosen.flags.items():
        arguments += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    patched = ["extend-attention-sm120-blocks", "autotune-flashinfer-cutlass", "transformers-for-glm5"]
    findings = check_launch(arguments, chosen.environment, version, "sm120", stock=True, patches=patched)
    assert [finding for finding in findings if finding.severity in {ERROR, UNKNOWN}] == []
    assert [finding.id for finding in findings if finding.id.startswith("environment")] == []


def test_names_of_profiles() -> None:
    assert version_of("default") == VERSIONS[-1]
    assert profile("glm5-sm120-2026-02").flags["attention-backend"] == "flashinfer"
    assert set(NAMES) == {"default", "glm5-sm120", "glm5-sm120-2026-02"}
    with pytest.raises(UnknownVersionError, match=r"0\.5\.99 is not one of the releases"):
        profile("0.5.99")


SAMPLES = os.environ.get("GPUNODE_SAMPLES")
LINES = sorted(Path(SAMPLES or "/nonexistent").glob("launch/*.txt"))


@pytest.mark.skipif(not LINES, reason="GPUNODE_SAMPLES names no folder with launch/*.txt")
@pytest.mark.parametrize("path", LINES, ids=lambda path: path.stem)
def test_other_people_s_launches_get_the_right_verdict(path: Path) -> None:
    expected = yaml.safe_load(path.with_suffix(".meta.yml").read_text())["expected"]
    gpus = [gpu for gpu in ("sm89", "sm90", "sm103", "sm120") if gpu in (expected["gpu_arch"] or "")] or [""]
    told = str(expected["sglang_version"] or "")
    versions = [version for version in VERSIONS if told in {version, version.partition(".post")[0]}] or list(VERSIONS)
    outcomes = {}
    for version in versions:
        findings = [
            finding
            for launch in extract(path.read_text())
            for finding in check_launch(launch.arguments, expected.get("environment") or {}, version, gpus[0], entry=launch.entry)
        ]
        outcomes[version] = {finding.id for finding in findings if finding.severity == ERROR}
    if expected["outcome"] == "works":
        assert any(not found for found in outcomes.values()), outcomes
    elif expected["outcome"] == "fails" and "kt" not in told:
        assert outcomes[versions[0]], f"nothing was found wrong with it: {expected['reason']}"
