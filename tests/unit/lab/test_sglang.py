"""The sglang stand-in: flags from source, framing, quirks, and the throughput of its scheduler."""

from __future__ import annotations

import asyncio
import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from lab.sglang import checkpoint, config_file, flags, metrics, models, wheel
from lab.sglang.engine import Engine, Request
from lab.sglang.speed import TUNED, UNTUNED

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = '''
CHOICES = ["auto", "fp8"]
class ServerArgs:
    """sglang's way to declare flags."""
    model_path: A[str, Arg(help="weights", aliases=["--model"])]
    tp_size: A[int, Arg(help="ranks", aliases=["--tensor-parallel-size"])] = 1
    trust_remote_code: A[bool, "custom code", NS("model")] = False
    max_running_requests: A[Optional[int], "cap"] = None
    kv: A[str, Arg(help="kind", choices=CHOICES + ["bf16"])] = "auto"
    hidden: A[int, Arg(help="", no_cli=True)] = 3
    runtime: A[int, Derived(doc="")] = 0
    buckets: A[Optional[List[int]], "edges"] = None

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--config", type=str, help="file")
        parser.add_argument("--old-name", type=int, action=DeprecatedAliasStoreAction, new_flag="--kv", dest="kv")
        parser.add_argument("--gone", action=DeprecatedAction, error_message="--gone is gone; use --kv")
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "sglang" / "srt"
    folder.mkdir(parents=True)
    (folder / "server_args.py").write_text(FIELDS)
    return tmp_path / "sglang"


def test_flags_come_from_the_source(package: Path) -> None:
    parser = flags.parser(package, "sglang serve")
    args = parser.parse_args(["--model", "/m", "--tp", "8", "--trust-remote-code", "--buckets", "1", "2", "--kv", "bf16"])
    assert (args.model_path, args.tp_size, args.trust_remote_code, args.buckets, args.kv) == ("/m", 8, True, [1, 2], "bf16")
    assert args.max_running_requests is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nope"], "unrecognized arguments: --nope"),
        (["--hidden", "4"], "unrecognized arguments: --hidden 4"),
        (["--runtime", "4"], "unrecognized arguments"),
        (["--kv", "int3"], "invalid choice: 'int3'"),
        (["--gone"], "--gone is gone; use --kv"),
        (["--tp-size", "x"], "invalid int value"),
    ],
)
def test_flags_fail_as_argparse_fails(package: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        flags.parser(package, "sglang serve").parse_args(["--model-path", "/m", *arguments])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_deprecated_flag_warns_and_is_stored(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = flags.parser(package, "sglang serve").parse_args(["--model-path", "/m", "--old-name", "4"])
    assert args.kv == 4
    assert "'--old-name' is deprecated" in capsys.readouterr().err


def test_config_file_goes_in_front(package: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text('# secrets\napi-key: "s: e#c\\"r"\ntrust-remote-code: true\nbuckets:\n  - 1\n  - 2\nkv: fp8  # small\n')
    parser = flags.parser(package, "sglang serve")
    merged = config_file.merge(["--config", str(file), "--model-path", "/m", "--kv", "bf16"], parser)
    assert merged == [
        "--api-key",
        's: e#c"r',
        "--trust-remote-code",
        "--buckets",
        "1",
        "2",
        "--kv",
        "fp8",
        "--model-path",
        "/m",
        "--kv",
        "bf16",
    ]


def test_wheel_is_reproducible_and_recorded(tmp_path: Path) -> None:
    first = wheel.build(tmp_path / "a").read_bytes()
    path = wheel.build(tmp_path / "b")
    assert path.read_bytes() == first
    with zipfile.ZipFile(path) as archive:
        assert archive.read("gpunode_lab_sglang.pth") == b"import gpunode_lab_sglang\n"
        compile(archive.read("gpunode_lab_sglang.py"), "hook", "exec")


def test_checkpoint_is_found_by_its_repository_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = checkpoint.create(tmp_path)
    assert checkpoint.create(tmp_path) == snapshot
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder, config = models.find({"model_path": checkpoint.REPO})
    assert folder == snapshot
    assert config["n_routed_experts"] == 256
    header = int.from_bytes((folder / "model-00001-of-00008.safetensors").read_bytes()[:8], "little")
    assert (8 + header) % 8 == 0
    (folder / "model-00003-of-00008.safetensors").unlink()
    with pytest.raises(SystemExit, match=r"model-00003-of-00008\.safetensors"):
        models.find({"model_path": checkpoint.REPO})
    with pytest.raises(SystemExit, match="not a valid model identifier"):
        models.find({"model_path": "nobody/nothing"})


def test_memory_follows_cache_type_and_fraction() -> None:
    config = checkpoint.CONFIG
    _, _, bf16 = models.memory(config, {"tp_size": 8, "mem_fraction_static": 0.92}, 95.6)
    _, _, fp8 = models.memory(config, {"tp_size": 8, "mem_fraction_static": 0.92, "kv_cache_dtype": "fp8_e4m3"}, 95.6)
    assert 300_000 < bf16 < 400_000  # 314,304 were seen on the real cards at this fraction
    assert fp8 > 1.5 * bf16
    with pytest.raises(SystemExit, match=r"mem_fraction_static=0\.5"):
        models.memory(config, {"tp_size": 8, "mem_fraction_static": 0.5}, 95.6)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.0"), (4649960, "4.64996e+06"), (1e6, "1e+06"), (0.08, "0.08"), (float("nan"), "NaN"), (408269, "408269.0")],
)
def test_numbers_are_written_as_the_prometheus_client_writes_them(value: float, text: str) -> None:
    assert metrics.number(value) == text


async def _closed_loop(engine: Engine, streams: int, rounds: int, prompt: int = 256, out: int = 128) -> float:
    """Total tokens/s of model time: everything that runs, until each slot has done its rounds."""
    left = streams * rounds
    done = asyncio.Event()
    started = 0

    def submit() -> None:
        nonlocal started
        started += 1

        def emit(_count: int, reason: str | None) -> None:
            nonlocal left
            if reason:
                left -= 1
                if started < streams * rounds:
                    submit()
                if not left:
                    done.set()

        engine.submit(Request(str(started), prompt, [], out, emit))

    for _ in range(streams):
        submit()
    task = asyncio.create_task(engine.run())
    begin = engine.model_s
    await done.wait()
    task.cancel()
    return streams * rounds * (prompt + out) / (engine.model_s - begin)


def _rate(streams: int, *, cap: int, tuned: bool = False, rounds: int = 3, **more: int) -> float:
    async def go() -> float:
        engine = Engine(
            TUNED if tuned else UNTUNED,
            cap=cap,
            kv_tokens=more.get("kv_tokens", 10**6),
            chunk=8192,
            time_scale=1e9,
            radix=False,
            accept=1.0,
            log_every=10**9,
        )
        return await _closed_loop(engine, streams, rounds)

    return asyncio.run(go())


@pytest.mark.parametrize(("streams", "real"), [(32, 438), (64, 757), (128, 806), (256, 880), (512, 913)])
def test_a_cap_of_64_saturates_as_the_real_deployment_did(streams: int, real: float) -> None:
    assert _rate(streams, cap=64, rounds=2) == pytest.approx(real, rel=0.03)


def test_raised_cap_and_autotune_reach_the_later_figure() -> None:
    assert _rate(512, cap=512, tuned=True) == pytest.approx(3740, rel=0.03)


def test_raised_cap_alone_gains_little() -> None:
    assert _rate(512, cap=512, rounds=2) < 1.1 * _rate(64, cap=64, rounds=2)


def test_cache_that_fits_ten_requests_runs_ten() -> None:
    assert _rate(64, cap=64, kv_tokens=3840, rounds=2) < 0.5 * _rate(64, cap=64, rounds=2)


def test_checkpoint_config_is_valid_json_of_the_right_shape() -> None:
    config = json.loads(checkpoint.files()["config.json"])
    assert (config["model_type"], config["num_hidden_layers"], config["num_experts_per_tok"], config["moe_intermediate_size"]) == (
        "glm_moe_dsa",
        78,
        8,
        2048,
    )
