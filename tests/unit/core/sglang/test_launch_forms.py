"""Launches as people write them: shells, units, images, templates; and the slips that come with each form."""

from __future__ import annotations

import pytest

from gpunode.findings import ERROR, UNKNOWN, Finding, exit_code
from gpunode.sglang.launch_check import check_launch
from gpunode.sglang.launch_text import NoLaunchError, extract

RUN = "python3 -m sglang.launch_server --model-path /models/x"


def read(text: str, version: str = "0.5.23", gpu: str = "") -> list[Finding]:
    return [
        finding
        for launch in extract(text)
        for finding in check_launch(launch.arguments, launch.environment, version, gpu, entry=launch.entry)
    ]


def told(text: str, version: str = "0.5.23", gpu: str = "") -> set[tuple[str, str]]:
    """What is not fine: ids and subjects of errors and unknowns."""
    return {(finding.id, finding.subject) for finding in read(text, version, gpu) if finding.severity in {ERROR, UNKNOWN}}


ARRAY = """#!/usr/bin/env bash
set -euo pipefail
ARGS=(
  --model-path /models/x   # where the model lies (a quote isn't closed here)
  --tp-size "8"
)
if [ "${SPEC:-0}" = 1 ]; then
  ARGS+=(--speculative-algorithm NEXTN --max-running-requests 64)
fi
"""
COMMAND_ARRAY = 'CMD=(python3 -m sglang.launch_server)\nCMD+=(--model-path x --tp-sise 2)\nexec "${CMD[@]}"\n'
STRINGS = """MODEL=/models/x
TP=${TP:-8}
: "${PORT:=30000}"
EXTRA="--kv-cache-dtype fp8_e4m3 --max-running-requests 64"
EXTRA+=" --enable-metrics"
LOADER='{"enable_multithread_load": true, "num_threads": 8}'
python3 -m sglang.launch_server --model-path $MODEL --tp-size $TP --port "$PORT" $EXTRA --model-loader-extra-config "$LOADER"
"""
UNIT = """[Service]
EnvironmentFile=-/etc/default/sglang
Environment=CUDA_VISIBLE_DEVICES=0,1 "HF_HOME=%S/hf"
ExecStartPre=/bin/sh -c 'until nvidia-smi; do sleep 1; done'
ExecStart=
ExecStart=/opt/sglang/bin/python3 -m sglang.launch_server \\
  --model-path %h/models/x \\
# more for throughput
  --max-running-requests 64 \\
  --tp-size 2
"""
DOCKERFILE = """FROM lmsysorg/sglang:v0.5.23
ENV SGLANG_ENABLE_DEEP_GEMM=1
ENV HF_HOME /models
ENTRYPOINT ["python3", "-m", "sglang.launch_server"]
CMD ["--model-path", "/m", "--tp-sise", "2"]
"""
TEMPLATE = """ExecStart={{ venv }}/bin/python -m sglang.launch_server \\
  --model-path {{ model_path }} \\
{% if requests is defined %}
  --max-running-requests {{ requests | int }} \\
{% endif %}
  --tp-size {{tp}}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ARRAY + 'exec python3 -m sglang.launch_server "${ARGS[@]}"\n', set()),
        (ARRAY + "ARGS+=(--max-model-len 4096)\nexec python3 -m sglang.launch_server ${ARGS[*]}\n", {("flag-unknown", "--max-model-len")}),
        (COMMAND_ARRAY, {("flag-misspelt", "--tp-sise")}),
        (ARRAY + 'python3 -m sglang.launch_server "${ARGS[@]}" "$@"\n', {("launch-variable", "$@")}),
        ("python3 -m sglang.launch_server $ALL_OF_IT\n", {("launch-variable", "$ALL_OF_IT")}),
        (STRINGS, set()),
        (f"MODEL=${{1:?which}}\n{RUN} --tp-size ${{TP:?how many}}\n", {("launch-variable", "--tp-size")}),
        (f"{RUN} --port $(free_port --from 3) --tp-size `nvidia-smi -L | wc -l`\n",
         {("launch-variable", "--port"), ("launch-variable", "--tp-size")}),
        (f"{RUN} --tp-size $((NODES * 8)) ${{KEY:+--api-key $KEY}}\n",
         {("launch-variable", "--tp-size"), ("launch-variable", "${KEY+}")}),
        (f"M=org/x\n{RUN} --served-model-name ${{M##*/}}\n", set()),
        (f"1. Run `{RUN} --tp-size 2` and wait.\n", set()),
        (f"{RUN} --tp-size 8 # eight GPUs\n", set()),
        (f"{RUN} --served-model-name a#b --tp-size 8\n", set()),
        (f"{RUN} \\\n  --tp-size 8 \\\n  # a remark\n  --enable-metrics\n", set()),
        (f"{RUN} \\  # a remark\n  --tp-size 8\n", {("launch-continuation", "line")}),
        (f"{RUN} \\ \n  --tp-size 8\n", {("launch-continuation", "line")}),
        (UNIT, set()),
        (UNIT.replace("--tp-size 2", "--tp-size 2 --port 300%i"), {("launch-variable", "--port")}),
        (UNIT.replace("--tp-size 2", "--tp-size 4"), {("flag-conflict", "--tp-size")}),
        (DOCKERFILE, {("flag-misspelt", "--tp-sise")}),
        ("FROM x\nENTRYPOINT exec sglang serve --model-path x --tp_size 2\n", {("flag-misspelt", "--tp_size")}),
        (TEMPLATE, {("launch-variable", name) for name in ("--model-path", "--max-running-requests", "--tp-size")}),
        (f"[Container]\nImage=lmsysorg/sglang\nExec={RUN} --max-num-seqs 8\n", {("flag-unknown", "--max-num-seqs")}),
        (f"docker run --gpus '\"device=0,1\"' img {RUN} --tp-size 4\n", {("flag-conflict", "--tp-size")}),
        (f"docker run --gpus=4 img {RUN} --tp-size 4\n", set()),
        (f"docker run --gpus all img {RUN} --tp-size 4\n", set()),
        (f"cd /opt && source v/bin/activate && {RUN} --max-num-seqs 8 2>&1 | tee log\n", {("flag-unknown", "--max-num-seqs")}),
        (f"tmux new-session -d -s a '{RUN} --enable_metrics'\n", {("flag-misspelt", "--enable_metrics")}),
        ("python -m sglang_router.launch_server --model-path x --dp-size 2 --router-policy cache_aware\n", set()),
    ],
)  # fmt: skip
def test_forms(text: str, expected: set[tuple[str, str]]) -> None:
    assert told(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        f'echo "Starting sglang.launch_server on port 30000"\n{RUN}\n',
        f'pkill -f sglang.launch_server || true\nsudo pkill -f "python3 -m sglang.launch_server"\n{RUN}\n',
        (f"[Unit]\nDescription=runs sglang.launch_server for GLM\n[Service]\nExecStart={RUN}\n"
        "ExecStop=/bin/pkill -f 'python3 -m sglang.launch_server'\n"),
        f"sglang.launch_server is still supported, but sglang serve is recommended; see launch_server.py.\n    {RUN}\n",
        f"vllm serve x --max-model-len 10\n{RUN}\n",
        "sglang serve org/model\n",
        "python3 -u /sgl-workspace/sglang/python/sglang/launch_server.py --model-path x\n",
    ],
)  # fmt: skip
def test_what_only_names_a_launch_is_none(text: str) -> None:
    assert len(extract(text)) == 1
    assert told(text) == set()


def test_a_dockerfile_sets_the_environment() -> None:
    (launch,) = extract(DOCKERFILE)
    assert launch.environment == {"SGLANG_ENABLE_DEEP_GEMM": "1", "HF_HOME": "/models"}
    with pytest.raises(NoLaunchError):
        extract("FROM nginx\nCMD nginx\n")


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        ("sglang serve Qwen/Qwen3-32B --tp-size 2", "0.5.16", set()),
        ("sglang serve Qwen/Qwen3-32B --tp-size 2", "0.5.15.post1", {("launch-stray-word", "Qwen/Qwen3-32B")}),
        ("python -m sglang.launch_server Qwen/Qwen3-32B", "0.5.23",
         {("launch-stray-word", "Qwen/Qwen3-32B"), ("flag-missing", "--model-path")}),
        ("sglang serve --model-type llm --model-path x", "0.5.10", set()),
        ("sglang serve --model-type=auto x", "0.5.23", set()),
        ("sglang serve --model-type llm --model-path x", "0.5.9", {("flag-unknown", "--model-type")}),
        ("sglang serve FLUX.1 --model-type diffusion --num-gpus 2", "0.5.23", {("launch-other-server", "--model-type")}),
    ],
)  # fmt: skip
def test_sglang_serve_takes_words_of_its_own(line: str, version: str, expected: set[tuple[str, str]]) -> None:
    assert told(line, version) == expected


@pytest.mark.parametrize(
    ("flags", "expected", "remedy"),
    [
        ("-tp 8", ("flag-misspelt", "-tp"), "Write --tp-size."),
        ("\u2014tp-size 8", ("flag-misspelt", "\u2014tp-size"), "Write --tp-size."),
        ("\u2013tp 8", ("flag-misspelt", "\u2013tp"), "Write --tp."),
        ("--TP-Size 8", ("flag-misspelt", "--TP-Size"), "Write --tp-size."),
        ("--json-model-override-args \u2018{}\u2019", ("flag-value", "--json-model-override-args"), "Write plain quotes, ' or \"."),
        ("--trust-remote-code true", ("flag-value", "--trust-remote-code"), "Write --trust-remote-code alone."),
        ("--enable-metrics False", ("flag-value", "--enable-metrics"), "Leave --enable-metrics out."),
        ("'--tp-size 8'", ("launch-one-word", "--tp-size"), "Make two items of it, or write --tp-size=8."),
        ("--gpu-memory-utilization 0.9", ("flag-unknown", "--gpu-memory-utilization"), "Use --mem-fraction-static"),
        ("--max-model-len 4096", ("flag-unknown", "--max-model-len"), "Use --context-length."),
        ("--enforce-eager", ("flag-unknown", "--enforce-eager"), "Use --disable-cuda-graph."),
        ("--kv-cache-dtype fp8", ("flag-value", "--kv-cache-dtype"), "Write fp8_e4m3."),
        ("--dtype bf16", ("flag-value", "--dtype"), "Write bfloat16."),
        ("--quantization nvfp4", ("flag-value", "--quantization"), "Write modelopt_fp4."),
        ("--config=/etc/x.yml", ("flag-value", "--config"), "Write --config FILE"),
        ("--config /etc/x.conf", ("flag-value", "--config"), "Rename the file."),
        ("--model-loader-extra-config threads=8", ("flag-value", "--model-loader-extra-config"), "Mend the JSON"),
        ("--json-model-override-args \"{'a': 1}\"", ("flag-value", "--json-model-override-args"), "Mend the JSON"),
        ("--cuda-graph-config '{\"decod\": {}}'", ("flag-value", "--cuda-graph-config"), "Write --cuda-graph-config"),
        ("--cuda-graph-config '{\"decode\": {\"maxbs\": 8}}'", ("flag-value", "--cuda-graph-config"), "Write --cuda-graph-config"),
        ("--cuda-graph-config '[1]'", ("flag-value", "--cuda-graph-config"), "Write --cuda-graph-config"),
        ("--tp-size 8k", ("flag-value", "--tp-size"), "Write --tp-size NUMBER."),
        ("--context-length 128K", ("flag-value", "--context-length"), "Write --context-length NUMBER."),
    ],
)  # fmt: skip
def test_a_slip_is_one_finding_with_its_remedy(flags: str, expected: tuple[str, str], remedy: str) -> None:
    (finding,) = [finding for finding in read(f"{RUN} {flags}") if finding.severity == ERROR]
    assert (finding.id, finding.subject) == expected
    assert finding.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("flags", "version"),
    [
        ("--context-length 128k", "0.5.10"), ("--context-length 128Ki", "0.5.14"), ("--max-total-tokens 1.5M", "0.5.23"),
        ("--context-length 131_072", "0.5.9"), ("--chunked-prefill-size -1", "0.5.23"), ("--cuda-graph-bs-decode 1 2 4", "0.5.23"),
        ("--cuda-graph-config '{\"decode\": {\"max_bs\": 8}, \"prefill\": {\"backend\": \"disabled\"}}'", "0.5.23"),
        ("--model-loader-extra-config '{\"enable_multithread_load\": true}'", "0.5.9"),
    ],
)  # fmt: skip
def test_values_that_the_release_s_readers_take(flags: str, version: str) -> None:
    assert told(f"{RUN} {flags}", version) == set()


def test_the_last_of_a_repeated_flag_counts() -> None:
    text = f"{RUN} --attention-backend fa3 --tp-size 8 --attention-backend flashinfer"
    assert told(text, gpu="sm120") == set()
    assert [finding.subject for finding in read(text) if finding.id == "flag-repeated"] == ["--attention-backend"]
    assert told(f"{RUN} --attention-backend flashinfer --attention-backend fa3", gpu="sm120") == {("fa3-hopper-only", "sm120")}


def test_a_key_on_the_command_line_is_told_and_not_repeated() -> None:
    findings = read(f"{RUN} --api-key sk-one --api-key sk-two --admin-api-key sk-three")
    assert [finding.subject for finding in findings if finding.id == "key-on-command-line"] == ["--api-key", "--admin-api-key"]
    assert "sk-" not in str([finding.to_dict() for finding in findings])
    assert exit_code(findings) == 0
