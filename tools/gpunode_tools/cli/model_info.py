"""`gpunode model-info`: where a checkpoint lies, what it is, whether it is complete, whether it fits."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpunode.checkpoint.locate import Found, Location


@click.command("model-info", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", metavar="PATH|REPO_ID")
@click.option("--root", "roots", multiple=True, metavar="DIR", help="Look here too: a cache, or a folder of models. Any number of times.")
@click.option(
    "--revision", default="", metavar="REV", help="Branch, tag or commit. Default: what the cache calls main, or the only snapshot."
)
@click.option("--tp", type=click.IntRange(min=1), default=8, show_default=True, metavar="N", help="Tensor parallel size.")
@click.option("--pp", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Pipeline parallel size.")
@click.option("--gpu-memory-mib", type=click.IntRange(min=1), metavar="N", help="Memory of one GPU; with it, say whether the model fits.")
@click.option("--kv-dtype", default="fp8_e4m3", show_default=True, metavar="TYPE", help="--kv-cache-dtype of the server.")
@click.option("--mem-fraction", type=click.FloatRange(0.1, 1), default=0.92, show_default=True, help="--mem-fraction-static of the server.")
@click.option("--context", type=click.IntRange(min=1), metavar="N", help="Tokens that one request may have. Default: the model's own.")
@click.option("--requests", type=click.IntRange(min=1), metavar="N", help="Requests that shall run at once.")
@click.option("--no-shared-expert-fusion", is_flag=True, help="The server runs with --disable-shared-experts-fusion.")
@click.option("--hashes", is_flag=True, help="Read every file and compare it with the hash the hub names it by (minutes for 400 GB).")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of standard output.")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Find a checkpoint, its MoE shape, whether it is complete and fits.

    PATH is a folder of this machine: a checkpoint, a repository of a Hugging Face cache, or a folder that holds some. REPO_ID (org/name) is
    looked for in every Hugging Face cache of this user and below --root.

    Exit codes: 0 complete (and it fits), 1 incomplete or does not fit, 2 wrong usage (also a PATH that is not there,
    or that holds several checkpoints), 3 no such checkpoint, or it cannot be read.
    """
    from gpunode.checkpoint.complete import check
    from gpunode.checkpoint.hashes import verify_hashes
    from gpunode.checkpoint.locate import AmbiguousRevisionError, cache_roots, checkpoints_in, locate
    from gpunode.checkpoint.shape import is_simulated, read_shape
    from gpunode.findings import ERROR, INFO, UNKNOWN, WARNING, Finding, exit_code, verdict

    name = options["model"]
    roots = [Path(root) for root in options["roots"]] + cache_roots(os.environ, Path.home())
    path = _path(name)
    inside: list[Found] = []
    try:
        location = locate(str(path) if path else name, roots, options["revision"])
        if path and location is None:
            inside = checkpoints_in(path, options["revision"])
            location = _choose(path, inside)
    except AmbiguousRevisionError as error:
        raise click.UsageError(str(error)) from None
    findings: list[Finding] = []
    result: dict[str, Any] = {"schema": "gpunode.model/1", "model": name, "path": None, "simulated": False}
    if location is None:
        remedy = "`gpunode model-info DIR` lists what a folder holds; then name the repository with --root DIR, or its folder."
        looked = _nothing_in(path) if path else f"looked in {', '.join(str(root) for root in roots)}"
        findings.append(Finding("model-not-found", UNKNOWN, name, "No such checkpoint was found.", looked, remedy, required=True))
    else:
        if inside:
            chosen = next(found for found in inside if found.location == location)
            kind = "" if len(inside) == 1 else "complete "
            summary = f"The folder is no checkpoint; {chosen.name} is the only {kind}one in it and was used."
            others = [found.name for found in inside if found is not chosen]
            evidence = f"incomplete: {', '.join(others)}" if others else ""
            findings.append(Finding("model-chosen", INFO, name, summary, evidence, ""))
        complete = check(location.path)
        result |= {"path": str(location.path), "revision": location.revision, "layout": location.layout, "complete": complete.complete}
        result["simulated"] = is_simulated(location.path)
        result |= {"shards": complete.shards, "size_bytes": complete.size_bytes}
        findings += [Finding("model-incomplete", ERROR, name, problem, str(location.path), _AGAIN) for problem in complete.problems]
        if options["hashes"]:
            result["hashes_checked"], wrong = verify_hashes(location.path)
            findings += [Finding("model-corrupt", ERROR, name, problem, str(location.path), _AGAIN) for problem in wrong]
        try:
            shape = read_shape(location.path)
        except ValueError as error:
            findings.append(Finding("not-readable", UNKNOWN, name, str(error), "", "", required=True))
        else:
            result["shape"] = shape.to_dict()
            result |= _moe(shape, options)
            findings += _fit(shape, complete.size_bytes, options, result)
            if shape.mtp_declared and shape.mtp_present is False:
                summary = (
                    "config.json declares an MTP layer, and the checkpoint has no weights of it: speculative decoding with it cannot work."
                )
                findings.append(Finding("mtp-weights-missing", WARNING, name, summary, "", "Leave the --speculative-* flags out."))
    result |= {"verdict": verdict(findings), "findings": [finding.to_dict() for finding in findings]}
    if options["output"] == "json":
        click.echo(json.dumps(result, indent=1))
    else:
        _print(result)
    context.exit(exit_code(findings))


MOST_LISTED = 20
"""Checkpoints that an error names: more no longer fit a screen."""
_AGAIN = "Run the download again: it goes on from what is there (role model_store, or `hf download`)."


def _path(name: str) -> Path | None:
    """The folder that is meant; None where ``name`` is a repository id. UsageError for what looks like a path and is no folder here."""
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            return path.resolve()
        if path.is_file():
            if path.name == "config.json":
                return path.absolute().parent  # a snapshot's files are links: what they lead to has other neighbours
            raise click.UsageError(f"{name} is a file: name the folder that holds config.json")
    except PermissionError:
        raise click.UsageError(f"{name} may not be read by this user: run as root, or as the owner of the models") from None
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or name.endswith("/"):
        raise click.UsageError(
            f"{name}: no such folder on this machine. A path within the container (/models/...) is another one on the node: the source of "
            "its mount, such as /var/lib/models (mp0 in `pct config VMID`)"
        )
    return None


def _choose(path: Path, inside: list[Found]) -> Location | None:
    """The only checkpoint in a folder, or the only complete one; None where it holds none. UsageError where several could be meant."""
    from gpunode.checkpoint.complete import check

    if len(inside) < 2:
        return inside[0].location if inside else None
    states = [(found, check(found.location.path).complete) for found in inside]
    whole = [found for found, complete in states if complete]
    if len(whole) == 1:
        return whole[0].location
    names = [found.name for found in inside]
    lines = [
        _how_to_name(found, several=names.count(found.name) > 1) + ("" if complete else "  (incomplete)")
        for found, complete in states[:MOST_LISTED]
    ]
    if len(states) > MOST_LISTED:
        lines.append(f"... and {len(states) - MOST_LISTED} more")
    listed = "".join(f"\n  {line}" for line in lines)
    raise click.UsageError(f"{path} is no checkpoint, it holds {len(inside)}. Name one of them:{listed}")


def _how_to_name(found: Found, *, several: bool) -> str:
    """The command for a checkpoint; ``several`` snapshots of one repository need the revision."""
    if found.location.layout == "folder":
        return f"gpunode model-info {shlex.quote(str(found.location.path))}"
    revision = f" --revision {found.location.revision}" if several else ""
    return f"gpunode model-info --root {shlex.quote(str(found.root))}{revision} {shlex.quote(found.name)}"


def _nothing_in(path: Path) -> str:
    return f"looked in {path}: it has no config.json, no cache (models--org--name) and no folder with config.json and weights"


def _moe(shape: Any, options: dict[str, Any]) -> dict[str, Any]:
    from gpunode.checkpoint.shape import kv_bytes_per_token, moe_shape

    found: dict[str, Any] = {"kv_bytes_per_token": kv_bytes_per_token(shape, options["kv_dtype"], options["tp"])}
    try:
        found["moe"] = dict(zip(("E", "N"), moe_shape(shape, options["tp"], fused=not options["no_shared_expert_fusion"]), strict=True))
    except ValueError as error:
        found |= {"moe": None, "moe_note": str(error)}
    return found


def _fit(shape: Any, size: int, options: dict[str, Any], result: dict[str, Any]) -> list[Any]:
    from gpunode.checkpoint.fit import findings, fit

    if not options["gpu_memory_mib"]:
        return []
    figures = fit(
        shape,
        size,
        gpu_memory_mib=options["gpu_memory_mib"],
        tp=options["tp"],
        pp=options["pp"],
        kv_dtype=options["kv_dtype"],
        mem_fraction=options["mem_fraction"],
        context=options["context"] or 0,
        requests=options["requests"] or 0,
    )
    result["fit"] = figures.to_dict()
    return findings(figures)


def _size(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size / 1e3:,.1f} kB"


def _print(result: dict[str, Any]) -> None:
    from gpunode_tools.report.terminal import SEVERITY_STYLES, VERDICT_STYLES, Paint, plural, wants_colour

    paint = Paint(on=wants_colour(sys.stdout))
    click.echo(f"{paint(result['verdict'].upper(), VERDICT_STYLES[result['verdict']])}  {result['model']}")
    if result["simulated"]:
        click.echo(paint("  simulated: a stand-in's checkpoint, its weights are none", "magenta"))
    if result["path"]:
        revision = f", revision {result['revision']}" if result["revision"] else ""
        click.echo(f"  lies in        {result['path']} ({result['layout']}{revision})")
        click.echo(f"  weights        {_size(result['size_bytes'])} in {plural(result['shards'], 'file')}")
    shape = result.get("shape")
    if shape:
        kind = shape["architecture"] or shape["model_type"]
        click.echo(f"  model          {kind}, {shape['layers']} layers, quantisation {shape['quantization']}")
        if shape["experts"]:
            told = f"E={result['moe']['E']}, N={result['moe']['N']} for each rank" if result["moe"] else result["moe_note"]
            click.echo(
                f"  experts        {shape['experts']} + {shape['shared_experts']} shared, {shape['experts_per_token']} a token; {told}"
            )
        present = {True: "present", False: "absent", None: "not known"}[shape["mtp_present"]]
        click.echo(f"  MTP            {shape['mtp_declared']} declared, weights {present}")
        click.echo(f"  KV cache       {result['kv_bytes_per_token'] / 1000:.1f} kB a token on each GPU, context {shape['context']:,}")
    for finding in result["findings"]:
        click.echo(
            f"{paint(finding['severity'], SEVERITY_STYLES[finding['severity']])}: {finding['summary']} {finding['evidence']}".rstrip()
        )
        if finding["remedy"]:
            click.echo(f"  {finding['remedy']}")
