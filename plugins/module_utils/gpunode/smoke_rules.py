"""Findings of a smoke result: failed requests, thresholds, a client at its limit, counts that do not agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .findings import ERROR, INFO, PASS, UNKNOWN, WARN, WARNING, Finding
from .findings import verdict as overall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CLIENT_CPU: Final = 0.80
"""Share of one core from which reads queue behind each other: at 0.85 the median between tokens is 1 % off."""
CLIENT_LATE_E2E: Final = 0.02
"""Mean lateness of reads, as a share of a request's time: a closed loop loses that much throughput to its client."""
CLIENT_LATE_MS: Final = 10.0
CLIENT_LATE_ITL: Final = 0.5
"""A tenth of the reads later than this, and than this share of the time between tokens, moves the medians of latencies."""
CLIENT_TAIL_MS: Final = 10.0
"""Lateness (p99) from which the highest percentiles hold the client's share too; told, for it needs only a busy machine."""
COUNTERS_DIFFER: Final = 0.02
"""The server's counters and the client must agree within this; they count the same tokens."""
STEADY_SHARE: Final = 0.30
"""A steady state shorter than this share of the level says little."""

REMEDIES: Final = {
    "connection-refused": "is the server running? systemctl status sglang in the container, and the port in its unit",
    "connection-reset": "the server or something between broke the connection: journalctl -u sglang in the container",
    "connection-closed": "the server closed streams before they were complete: journalctl -u sglang in the container",
    "tls": "the certificate does not verify: use the name it was made for, or name its authority with --ca-file",
    "redirect": "a redirect is not followed: give the final address",
    "not-a-stream": "something else answers at this address: look at it with curl",
    "stream-error": "the server reported an error inside a stream: journalctl -u sglang in the container",
    "stalled": "a stream fell silent: gpunode diagnose on the server's journal; --stall-timeout sets the limit",
    "no-first-token": "no first token in time: the queue is longer than --request-timeout allows, or the scheduler hangs",
    "early-stop": "the server stops before the length asked for: it ignores ignore_eos; use --natural-stop to accept it",
    "usage-mismatch": "the server counts wrongly: its token counts cannot be used; report it with the version",
    "http-401": "the server wants its API key: --api-key-file",
    "http-429": "the server or a gateway limits the rate: measure the server itself",
}


def client_bound(level: Mapping[str, Any]) -> str:
    """Return why the client may be the bottleneck of a level, else an empty text."""
    client = level.get("client") or {}
    share, mean, high = client.get("cpu_share"), client.get("late_reads_ms_mean"), client.get("late_reads_ms_p90")
    itl = (level.get("itl_ms") or {}).get("p50") or 0.0
    whole = (level.get("e2e_ms") or {}).get("p50") or 0.0
    if share is not None and share >= CLIENT_CPU:
        return f"the client used {share:.0%} of a core"
    if mean is not None and whole and mean > CLIENT_LATE_E2E * whole:
        return f"the client came {mean:.1f} ms late to its reads in the mean, where a request takes {whole:.0f} ms"
    if high is not None and high > max(CLIENT_LATE_MS, CLIENT_LATE_ITL * itl):
        return f"the client came {high:.0f} ms late to a tenth of its reads"
    return ""


def failed_requests(result: Mapping[str, Any], allowed: Mapping[str, float]) -> list[Finding]:
    """One finding for each kind of error; those allowed by name up to their ratio are warnings."""
    found = []
    totals: dict[str, int] = {}
    where: dict[str, list[str]] = {}
    requested = 0
    for level in result.get("levels", []):
        requested += level.get("requested", 0) + level.get("warmup_requests", 0)
        for source in ("errors", "warmup_errors"):
            for kind, count in (level.get(source) or {}).items():
                totals[kind] = totals.get(kind, 0) + count
                where.setdefault(kind, []).append(f"{count} at {level['concurrency']}{' (warm-up)' if source == 'warmup_errors' else ''}")
    for kind, count in sorted(totals.items(), key=lambda item: -item[1]):
        if kind == "interrupted":
            continue
        ratio = count / max(requested, 1)
        limit = allowed.get(kind, allowed.get("any", 0.0))
        within = ratio <= limit
        examples = (result.get("error_examples") or {}).get(kind) or []
        told = f"{', '.join(where[kind])} streams" + (f"; first: {examples[0]}" if examples else "")
        found.append(
            Finding(
                "request-failed" if kind not in {"early-stop", "usage-mismatch"} else kind,
                WARNING if within else ERROR,
                kind,
                f"{count} of {requested} requests failed: {kind}" + (f" (allowed: {limit:.1%})" if within else ""),
                told,
                REMEDIES.get(kind, "journalctl -u sglang in the container shows what the server said"),
            )
        )
    return found


def thresholds(result: Mapping[str, Any], limits: Mapping[str, float | None], *, warn_only: bool = False) -> list[Finding]:
    """Thresholds missed, as errors or, with ``warn_only``, as warnings; one that was not measured is unknown.

    Limits: min_total_tps, min_single_stream_tps (output tokens a second at concurrency 1), max_ttft_ms (p99 of every level).
    Total throughput counts at the best level.
    """
    severity = WARNING if warn_only else ERROR
    levels = [level for level in result.get("levels", []) if level.get("completed")]
    best = max(levels, key=lambda level: level.get("steady_total_tps") or level.get("total_tps") or 0, default=None)
    single = next((level for level in levels if level["concurrency"] == 1), None)
    found: list[Finding] = []
    for identifier, what, limit, level, keys in (
        ("total-tps-low", "total throughput", limits.get("min_total_tps"), best, ("steady_total_tps", "total_tps")),
        (
            "single-stream-tps-low",
            "output of a single stream",
            limits.get("min_single_stream_tps"),
            single,
            ("steady_output_tps", "output_tps"),
        ),
    ):
        if limit is None:
            continue
        value = next((level[key] for key in keys if level.get(key)), None) if level else None
        if level is None or value is None:
            text = f"{what} was to be at least {limit:g} tokens/s and was not measured"
            remedy = "add the level with --concurrency"
            found.append(Finding(identifier, UNKNOWN, "server", text, "no completed level tells it", remedy, required=True))
        elif value < limit:
            where = f"{level['concurrency']} streams"
            remedy = "see the plateau's cause; gpunode check-launch looks at the server's flags"
            found.append(
                Finding(identifier, severity, where, f"{what} is {value:.1f} tokens/s, below {limit:g}", f"measured at {where}", remedy)
            )
    most = limits.get("max_ttft_ms")
    for level in levels if most is not None else ():
        value = (level.get("ttft_ms") or {}).get("p99")
        if value is not None and most is not None and value > most:
            told = f"p50 {level['ttft_ms']['p50']:.0f} ms, p99 {value:.0f} ms"
            where = f"{level['concurrency']} streams"
            text = f"time to first token (p99) is {value:.0f} ms, above {most:g}"
            found.append(Finding("ttft-high", severity, where, text, told, "fewer streams, or a higher request cap"))
    return found


def state(result: Mapping[str, Any]) -> list[Finding]:
    """What the run says of itself: nothing completed, cut short, client at its limit, counters that differ, a short steady state."""
    found: list[Finding] = []
    levels = result.get("levels", [])
    if not any(level.get("completed") for level in levels):
        told = result.get("stopped") or "no request was completed"
        found.append(
            Finding(
                "nothing-measured",
                UNKNOWN,
                "server",
                "no level was completed",
                str(told),
                "curl the server's /health and /v1/models",
                required=True,
            )
        )
    if result.get("stopped"):
        asked = ", ".join(map(str, result.get("load", {}).get("concurrency", [])))
        told = f"{len(levels)} of the levels {asked} were measured"
        found.append(
            Finding(
                "cut-short",
                UNKNOWN,
                "run",
                f"the run was cut short: {result['stopped']}",
                told,
                "run the missing levels again",
                required=True,
            )
        )
    for level in levels:
        where = f"{level['concurrency']} streams"
        why = level.get("client_bound")
        if why:
            remedy = "give the client more cores or measure fewer streams; the figures of this level are not the server's"
            found.append(
                Finding(
                    "client-bound",
                    UNKNOWN,
                    where,
                    f"the client is the bottleneck: {why}",
                    "the client watched its own CPU and reads",
                    remedy,
                    required=True,
                )
            )
        tail = (level.get("client") or {}).get("late_reads_ms_p99") or 0.0
        if not why and tail > CLIENT_TAIL_MS:
            text = f"the highest percentiles hold up to {tail:.0f} ms of the client's own lateness"
            found.append(Finding("client-late", INFO, where, text, "lateness of reads, p99", "measure from a machine with an idle core"))
        difference = level.get("counters_differ")
        if difference is not None and abs(difference) > COUNTERS_DIFFER:
            told = f"server {level['server'].get('generation_tokens')}, client {level['client'].get('generation_tokens')} output tokens"
            remedy = "somebody else uses the server, or one of the two counts wrongly: measure an idle server"
            found.append(
                Finding(
                    "counters-differ",
                    WARNING,
                    where,
                    f"the server counted {difference:+.1%} output tokens against the client",
                    told,
                    remedy,
                )
            )
        steady = level.get("steady") or {}
        if level.get("completed") and steady.get("share") is not None and steady["share"] < STEADY_SHARE:
            text = f"the steady state was only {steady['share']:.0%} of the level"
            found.append(Finding("steady-short", INFO, where, text, "all slots were busy for that long", "ask for more requests per level"))
    if result.get("simulated"):
        found.append(
            Finding(
                "simulated", INFO, "server", "a stand-in answered: these figures are simulated", "x-gpunode-simulated or /server_info", ""
            )
        )
    return found


def plateau(result: Mapping[str, Any]) -> list[Finding]:
    """The plateau as a finding: informative, since where a server stops scaling is no fault by itself; a collapse is a warning."""
    found = result.get("plateau") or {}
    if not found.get("detected") and found.get("cause") != "request-cap":
        return []
    fell = found.get("collapse_concurrency")
    if fell is not None:
        text = f"throughput falls from {fell} streams on ({found['cause']})"
    elif found.get("detected"):
        text = f"throughput stops growing at {found['knee_concurrency']} streams ({found['cause']})"
    else:
        text = "no knee was found, but requests already wait at the server's cap (request-cap)"
    return [
        Finding(
            "plateau",
            WARNING if fell is not None else INFO,
            "server",
            text,
            str(found.get("evidence", "")),
            str(found.get("next_step", "")),
        )
    ]


def verdict(findings: Iterable[Finding]) -> str:
    """The verdict of a run; `client-bound` where that is the only thing that keeps it from being one of the others."""
    found = list(findings)
    bound = [finding for finding in found if finding.id == "client-bound"]
    others = [finding for finding in found if finding.id != "client-bound"]
    known = overall(others)
    return "client-bound" if bound and known in {PASS, WARN} else known
