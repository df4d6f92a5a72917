"""The command check-launch: where it reads launches from, what it ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpunode_tools.cli.check_launch import command

COMPOSE = """
services:
  worker:
    image: sglang
    environment:
      - SGLANG_ENABLE_DEEP_GEMM=1
    command:
      - python3
      - -m
      - sglang.launch_server
      # where the model lies
      - --model-path=${MODEL:-zai-org/GLM-5.1-FP8}
      - --tp-size=${TP:-8}
      # comment between items
      - --enable_metrics
  proxy:
    image: nginx
    command: nginx -g "daemon off;"
"""
KUBERNETES = """
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: sglang
      env:
        - {name: SGL_ENABLE_JIT_DEEPGEMM, value: "0"}
      command: ["/bin/bash", "-c"]
      args:
        - |
          set -e
          python3 -m sglang.launch_server \\
            --model-path deepseek-ai/DeepSeek-V3.2 \\
            --tp 8 --nnodes 2 --node-rank $POD_INDEX \\
            --dist-init-addr master:5000 --attention-backend flashinfer --kv-cache-dtype bf16 2>&1 | tee log
"""
UNIT = """
[Service]
Environment="SGLANG_ENABLE_SPEC_V2=1" OMP_NUM_THREADS=8
ExecStart=/opt/sglang/bin/python -m sglang.launch_server \\
    --model-path /models/x \\
    --tp-size 8
"""
DOCKER = """
docker run --gpus '"device=0,1"' -e NCCL_P2P_LEVEL=4 --shm-size 32g -p 5000:5000 image:latest \\
  python3 -m sglang.launch_server --model-path x \\
  # a remark
  --tp-size 2 &
"""
WRAPPER = "[Service]\nExecStart=/usr/local/bin/start-sglang.sh\n"


def run(*arguments: str, text: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments, input=text)
    return result.exit_code, result.stdout


def findings(*arguments: str, text: str | None = None) -> tuple[int, dict[str, str], dict[str, object]]:
    code, out = run("--output", "json", *arguments, text=text)
    data = json.loads(out)
    return code, {finding["id"]: finding["subject"] for finding in data["findings"]}, data


def test_flags_after_two_dashes() -> None:
    code, found, data = findings("--sglang", "0.5.23", "--gpu", "sm120", "--", "--model-path", "x", "--pp", "2")
    assert (code, found["flag-ambiguous"], data["verdict"]) == (1, "--pp", "fail")
    assert data["launches"][0]["flags"] == {"--model-path": ["x"]}


def test_a_whole_command_line_after_two_dashes() -> None:
    code, out = run("--gpu", "sm120", "--", "python3", "-m", "sglang.launch_server", "--model-path", "x", "--tp-size", "8")
    assert code == 0
    assert out.startswith("PASS  sglang 0.5.23 on sm120, 1 launch(es)")


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        (COMPOSE, 1, {"flag-misspelt": "--enable_metrics", "environment-no-effect": "SGLANG_ENABLE_DEEP_GEMM"}),
        (KUBERNETES, 3, {"launch-variable": "--node-rank", "environment-renamed": "SGL_ENABLE_JIT_DEEPGEMM"}),
        (UNIT, 0, {"environment-no-effect": "SGLANG_ENABLE_SPEC_V2"}),
        (DOCKER, 0, {}),
        (WRAPPER, 3, {"launch-not-found": "launch"}),
        ("", 3, {"launch-not-found": "launch"}),
        ("sglang serve --model-path x --tp-size 2 > log 2>&1 &\n", 0, {}),
        ('bash -c "python -m sglang.launch_server --model-path x --tp-sise 2"\n', 1, {"flag-misspelt": "--tp-sise"}),
    ],
    ids=["compose", "kubernetes", "unit", "docker", "wrapper", "empty", "serve", "quoted"],
)  # fmt: skip
def test_files_of_other_tools(text: str, code: int, expected: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "launch"
    file.write_text(text)
    for source in (["--file", str(file)], [str(file)]):
        got, found, _ = findings("--sglang", "0.5.23", "--gpu", "sm120", *source)
        assert got == code
        assert expected.items() <= found.items()
    assert findings("--sglang", "0.5.23", "-", text=text)[0] == code


def container(*arguments: str, more: str = "") -> str:
    words = ["python3", "-m", "sglang.launch_server", "--model-path", "x", *arguments]
    return f"services:\n  a:\n    image: lmsysorg/sglang\n    command: {json.dumps(words)}\n{more}"


RESERVED = "    deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu], %s}]}}}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (container("--tp-size", "8", more=RESERVED % "count: 4"), {"--tp-size"}),
        (container("--tp-size", "2", more=RESERVED % "device_ids: ['0']"), {"--tp-size"}),
        (container("--tp-size", "8", more=RESERVED % "count: all"), set()),
        (container("--tp-size", "8", more="    resources: {limits: {nvidia.com/gpu: 4}}\n"), {"--tp-size"}),
        (container("--tp-size", "4", more="    resources: {limits: {nvidia.com/gpu: '4'}}\n"), set()),
        (container("--tp-size 4"), {"--tp-size"}),
        ("a: {image: lmsysorg/sglang, args: [--model-path, x, --tp-sizes, '8']}\n", {"--tp-sizes"}),
        ("a: {image: vllm/vllm-openai, args: [--model, x, --max-model-len, '8']}\n", {"launch"}),
        ("a: {command: [sglang, serve, --model-path, $(M), --tp-sise, '1'], env: [{name: M, value: x}]}\n", {"--tp-sise"}),
        ("a:\n  command: >\n    sglang serve --model-path x \\\n    --tp-size 2\n", {"--tp-size"}),
        ("a:\n  command: |\n    sglang serve --model-path x \\\n    --tp-size 2\n", set()),
        ("a: {environment: [M=x], command: 'sh -c \"sglang serve --model-path $${M} --tp-sise 2\"'}\n", {"--tp-sise"}),
        ("a: {command: [sglang, serve, --model-path, '{{ .Values.m }}', --tp-size, '{{ .Values.tp }}']}\n", {"--tp-size"}),
        ("model-path: x\ntp-size: 8\nenable-metrics: true\ncuda-graph-config: {decode: {max_bs: 8}}\ndisable-radix-cache: false\n", set()),
        ("model-path: x\ntp-size: 8\nenable_metrics: true\n", {"--enable_metrics"}),
        ("a:\n  entrypoint: python3 -m sglang.launch_server\n  command: >-\n    --model-path x\n    --tp-sise 8\n", {"--tp-sise"}),
    ],
)  # fmt: skip
def test_containers_as_people_describe_them(text: str, expected: set[str]) -> None:
    _, found, _ = findings("--sglang", "0.5.23", "-", text=text)
    assert set(found.values()) == expected


def test_secrets_stay_out_of_the_report() -> None:
    text = "HF_TOKEN=hf_secret python3 -m sglang.launch_server --model-path x --api-key sk-secret --tp-size 1\n"
    for form in ("text", "json"):
        code, out = run("--output", form, "-", text=text)
        assert code == 0
        assert "secret" not in out


def test_defines_settle_variables() -> None:
    assert findings("--sglang", "0.5.13", "--define", "POD_INDEX=0", "-", text=KUBERNETES)[0] == 0


def test_all_releases_ask_whether_one_takes_it() -> None:
    code, out = run("--sglang", "all", "--", "--model-path", "x", "--nsa-decode-backend", "tilelang")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 20
    assert lines[0].split()[:2] == ["0.5.8.post1", "pass"]
    assert lines[-1].split()[:2] == ["0.5.23", "fail"]


def test_a_sibling_stands_in_for_a_release_without_a_table() -> None:
    code, _, data = findings("--sglang", "0.5.8", "--", "--model-path", "x")
    assert (code, data["sglang"]) == (0, "0.5.8.post1")


@pytest.mark.parametrize(
    "arguments", [(), ("--sglang", "9.9", "--", "--tp-size", "8"), ("--file", "/nonexistent"), ("--define", "x", "--", "--a")]
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments)[0] == 2
