"""Flags of one launch against each other: parallel sizes, nodes, GPUs, speculation, backends of another GPU."""

from __future__ import annotations

import shlex

import pytest

from gpunode.findings import ERROR, WARNING, Finding
from gpunode.sglang.launch_check import check_launch


def judge(line: str, version: str, gpu: str = "", environment: dict[str, str] | None = None) -> list[Finding]:
    return check_launch(["--model-path", "x", *shlex.split(line)], environment or {}, version, gpu)


def found(severity: str, line: str, version: str, gpu: str = "") -> set[tuple[str, str]]:
    return {(finding.id, finding.subject) for finding in judge(line, version, gpu) if finding.severity == severity}


TWO = "--nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:5000"
EAGLE = "--speculative-algorithm EAGLE --max-running-requests 64"


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        ("--tp-size 8 --attn-dp-size 3", "0.5.23", ("flag-conflict", "--attn-dp-size")),
        ("--tp-size 8 --dp-size 3 --enable-dp-attention", "0.5.9", ("flag-conflict", "--dp-size")),
        ("--tp-size 8 --attn-dp-size 8 --dp-size 2", "0.5.23", ("flag-conflict", "--dp-size")),
        ("--tp-size 8 --ep-size 3", "0.5.23", ("flag-conflict", "--ep-size")),
        ("--tp-size 4 --ep-size 8", "0.5.9", ("flag-conflict", "--ep-size")),
        ("--tp-size 8 --ep-size 4 --moe-runner-backend flashinfer_cutlass", "0.5.9", ("flag-conflict", "--ep-size")),
        ("--tp-size 8 --nnodes 3 --node-rank 0 --dist-init-addr a:1", "0.5.9", ("flag-conflict", "--nnodes")),
        (f"--tp-size 4 --dp-size 2 {TWO}", "0.5.9", ("flag-conflict", "--dp-size")),
        ("--tp-size 16 --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1", "0.5.9", ("flag-value", "--dist-init-addr")),
        ("--mem-fraction-static 90", "0.5.23", ("flag-value", "--mem-fraction-static")),
        ("--mem-fraction-static 0", "0.5.23", ("flag-value", "--mem-fraction-static")),
        ("--chunked-prefill-size 1000 --page-size 64", "0.5.23", ("flag-conflict", "--chunked-prefill-size")),
        ("--tp-size 8 --dp-size 8 --enable-dp-attention --chunked-prefill-size 256 --page-size 64", "0.5.9",
         ("flag-conflict", "--chunked-prefill-size")),
        ("--port 300000", "0.5.23", ("flag-value", "--port")),
        ("--served-model-name glm-5:latest", "0.5.23", ("flag-value", "--served-model-name")),
        (f"{EAGLE} --speculative-num-steps 3", "0.5.23", ("flag-missing", "--speculative-eagle-topk")),
        (f"{EAGLE} --speculative-num-draft-tokens 4", "0.5.9", ("flag-missing", "--speculative-num-steps")),
        ("--speculative-algorithm EAGLE3 --max-running-requests 64", "0.5.23", ("flag-missing", "--speculative-draft-model-path")),
        (f"{EAGLE} --pp-size 2 --tp-size 4", "0.5.20", ("flag-conflict", "--pp-size")),
        (f"{EAGLE} --pp-size 2 --tp-size 4", "0.5.23", ("flag-conflict", "--pp-size")),
    ],
)  # fmt: skip
def test_what_sglang_refuses(line: str, version: str, expected: tuple[str, str]) -> None:
    assert found(ERROR, line, version) == {expected}


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("--tp-size 8 --attn-dp-size 8", "0.5.23"),
        ("--tp-size 8 --dp-size 8 --enable-dp-attention", "0.5.23"),
        ("--tp-size 4 --dp-size 2", "0.5.9"),
        ("--tp-size 16 --ep-size 4 --moe-a2a-backend deepep", "0.5.23"),
        ("--tp-size $TP --ep-size 8", "0.5.23"),
        ("--tp-size 8 --ep-size 8 --moe-runner-backend flashinfer_cutlass", "0.5.9"),
        (f"--tp-size 8 --dp-size 8 --enable-dp-attention {TWO}", "0.5.9"),
        (f"--tp-size 8 --pp-size 2 {TWO}", "0.5.9"),
        ("--tp-size 16 --nnodes 2 --node-rank 1 --dist-init-addr [fd00::1]:5000", "0.5.9"),
        ("--chunked-prefill-size -1 --page-size 64", "0.5.23"),
        ("--chunked-prefill-size 1000 --page-size 64 --disaggregation-mode decode", "0.5.23"),
        (f"{EAGLE} --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4", "0.5.23"),
        (f"{EAGLE} --pp-size 2 --tp-size 4 --disaggregation-mode prefill", "0.5.23"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 16", "0.5.23"),
        ("--speculative-algorithm EAGLE3 --speculative-draft-model-path y", "0.5.23"),
    ],
)
def test_what_sglang_takes(line: str, version: str) -> None:
    assert found(ERROR, line, version) == set()


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        ("--tp-size 8 --enable-dp-attention", "0.5.9", ("flag-no-effect", "--enable-dp-attention")),
        ("--tp-size 16 --nnodes 2 --dist-init-addr a:1", "0.5.9", ("flag-missing", "--node-rank")),
        ("--speculative-num-steps 3 --speculative-eagle-topk 1", "0.5.9", ("flag-no-effect", "--speculative-num-steps")),
        (f"{EAGLE} --enable-mixed-chunk", "0.5.9", ("flag-conflict", "--enable-mixed-chunk")),
        ("--disable-cuda-graph --cuda-graph-bs-decode 1 2", "0.5.23", ("flag-conflict", "--disable-cuda-graph")),
        ("--disable-cuda-graph --cuda-graph-config '{}'", "0.5.23", ("flag-conflict", "--disable-cuda-graph")),
    ],
)  # fmt: skip
def test_what_does_nothing_is_a_warning(line: str, version: str, expected: tuple[str, str]) -> None:
    assert expected in found(WARNING, line, version)
    assert found(ERROR, line, version) == set()


@pytest.mark.parametrize(
    ("line", "version", "gpu", "expected"),
    [
        ("--attention-backend cutlass_mla", "0.5.9", "sm120", "mla-backend-of-another-gpu"),
        ("--attention-backend cutlass_mla", "0.5.9", "sm90", "mla-backend-of-another-gpu"),
        ("--attention-backend cutlass_mla", "0.5.9", "sm100", ""),
        ("--decode-attention-backend flashmla", "0.5.23", "sm121", "mla-backend-of-another-gpu"),
        ("--attention-backend flashmla", "0.5.23", "sm90", ""),
        ("--fp8-gemm-backend deep_gemm", "0.5.16", "sm120", "fp8-gemm-backend"),
        ("--fp8-gemm-backend deep_gemm", "0.5.17", "sm120", ""),
        ("--fp8-gemm-backend flashinfer_trtllm", "0.5.23", "sm120", "fp8-gemm-backend"),
        ("--fp8-gemm-backend flashinfer_trtllm", "0.5.23", "sm100", ""),
        ("--fp4-gemm-backend flashinfer_trtllm", "0.5.23", "sm120", "fp4-gemm-backend"),
        ("--moe-runner-backend flashinfer_cutlass --quantization fp8", "0.5.23", "sm120", "cutlass-moe-quantization"),
        ("--moe-runner-backend flashinfer_cutlass --quantization modelopt_fp4", "0.5.23", "sm120", ""),
    ],
)  # fmt: skip
def test_backends_of_another_gpu(line: str, version: str, gpu: str, expected: str) -> None:
    assert [name for name, _ in found(ERROR, line, version, gpu)] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("line", "version", "visible", "short"),
    [
        ("--tp-size 4", "0.5.23", "2,3", True),
        ("--tp-size 2 --dp-size 2", "0.5.9", "0,1", True),
        ("--tp-size 2 --pp-size 2", "0.5.9", "0,1,2", True),
        ("--tp-size 2", "0.5.9", "0", True),
        ("--tp-size 2 --dp-size 2 --enable-dp-attention", "0.5.9", "0,1", False),
        (f"--tp-size 8 {TWO}", "0.5.9", "0,1,2,3", False),
        ("--tp-size 8", "0.5.9", "all", False),
        ("--tp-size $TP", "0.5.9", "0,1", False),
        ("--tp-size 8", "0.5.9", "$GPUS", False),
    ],
)
def test_no_more_ranks_than_gpus(line: str, version: str, visible: str, short: bool) -> None:
    for variable in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        findings = judge(line, version, "", {variable: visible})
        assert any("invalid device ordinal" in finding.summary for finding in findings) is short


@pytest.mark.parametrize(
    ("line", "expected", "remedy"),
    [
        ("--enable-ep-moe", ("flag-removed", "--enable-ep-moe"), "Use --ep-size."),
        ("--enable-flashinfer-cutlass-moe", ("flag-removed", "--enable-flashinfer-cutlass-moe"), "Use --moe-runner-backend"),
        ("--num-shard 4", ("flag-unknown", "--num-shard"), "Use --tp-size."),
        ("--ctx-size 4096", ("flag-unknown", "--ctx-size"), "Use --context-length."),
        ("--max_batch_size 8", ("flag-unknown", "--max_batch_size"), "Use --max-running-requests."),
        ("--speculative-algorithm MTP --max-running-requests 8", ("flag-value", "--speculative-algorithm"), "Write NEXTN."),
        ("--tp-size 0", ("flag-value", "--tp-size"), "Write --tp-size 1"),
        ("--context-length -1", ("flag-value", "--context-length"), "Write --context-length 1"),
        ("--port 30000 --nccl-port 30000", ("flag-conflict", "--nccl-port"), "Take another."),
        ("''", ("launch-stray-word", '""'), "Leave the variable out"),
        ("-- --tp-size 4", ("launch-stray-word", "--"), "Remove it."),
        ("--model-path zai/GLM-5.2-NVFP4", ("shared-experts-fusion", "model"), "Add --disable-shared-experts-fusion"),
    ],
)
def test_one_error_with_its_remedy(line: str, expected: tuple[str, str], remedy: str) -> None:
    (finding,) = [finding for finding in judge(line, "0.5.17") if finding.severity == ERROR]
    assert (finding.id, finding.subject) == expected
    assert finding.remedy.startswith(remedy)


def test_an_algorithm_that_a_plugin_may_bring_is_unknown() -> None:
    findings = [finding for finding in judge("--speculative-algorithm OURS", "0.5.23") if finding.subject == "--speculative-algorithm"]
    assert [finding.severity for finding in findings] == ["unknown", "warning"]


def test_a_checkpoint_without_its_draft_layer_is_told() -> None:
    line = "--model-path lukealonso/GLM-5-NVFP4 --speculative-algorithm EAGLE"
    assert ("mtp-weights-missing", "model") in found(WARNING, line, "0.5.23")
    assert ("mtp-weights-missing", "model") not in found(WARNING, f"{line} --speculative-draft-model-path y", "0.5.23")
