"""proxmox-boot-tool: kernels, pins and ESPs of a Proxmox host, with the real tool's verbs, texts and exit statuses."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from lab.host import esp, files, kernels, versions

if TYPE_CHECKING:
    from pathlib import Path

NAME = "/usr/sbin/proxmox-boot-tool"
HOOKS = ("proxmox-auto-removal", "zz-proxmox-boot")
_GRUB_DEVICE = re.compile(r"gnulinux-advanced-(.+?)['\"] \{$", re.MULTILINE)
USAGE = {
    "format": f"  {NAME} format <partition> [--force]",
    "init": f"  {NAME} init <partition> [grub]",
    "reinit": f"  {NAME} reinit",
    "clean": f"  {NAME} clean [--dry-run]",
    "refresh": f"  {NAME} refresh [--hook <name>]",
    "kernel": (
        f"  {NAME} kernel <add|remove> <kernel-version>\n  {NAME} kernel pin <kernel-version> [--next-boot]\n"
        f"  {NAME} kernel unpin [--next-boot]\n  {NAME} kernel list"
    ),
    "status": f"  {NAME} status [--quiet]",
    "help": f"  {NAME} help",
}


class ToolError(Exception):
    """The tool ends with status 1; its text goes to stderr."""


def usage(verb: str = "") -> None:
    """Print the usage of one verb, or of all."""
    if not verb:
        esp.warn(f"USAGE: {NAME} <commands> [ARGS]\n")
    for name, text in USAGE.items():
        if not verb or name == verb:
            esp.warn(text)


class Tool:
    """The verbs over one root file system."""

    def __init__(self, root: Path = files.ROOT) -> None:
        """Take the root; everything the tool reads and writes lies below."""
        self.root = root
        self.with_esps = (root / files.ESP_LIST).is_file()

    def _image(self, release: str, consequence: str, *, offer: bool) -> None:
        names = f"\n\nPossible Proxmox kernel versions are:\n{chr(10).join(kernels.boot_list(self.root))}" if offer else ""
        if not release:
            raise ToolError(f"E: <kernel-version> is mandatory{names}" if offer else "E: <kernel-version> is mandatory\n")
        if not (self.root / f"boot/vmlinuz-{release}").is_file():
            raise ToolError(f"E: no kernel image found in /boot for '{release}', {consequence}.{names}")

    def _manual(self) -> list[str]:
        path = self.root / files.MANUAL_KERNELS
        return path.read_text(encoding="utf-8").split() if path.is_file() else []

    def _write_manual(self, names: set[str]) -> None:
        path = self.root / files.MANUAL_KERNELS
        path.write_text("".join(f"{name}\n" for name in sorted(names)), encoding="utf-8")

    def add(self, release: str) -> None:
        """Add a kernel to those copied to the ESPs."""
        self._image(release, "not adding", offer=False)
        self._write_manual({*self._manual(), release})
        print(f"Added kernel '{release}' to manual kernel list. Use the 'refresh' command to update the ESPs.")

    def remove(self, release: str) -> None:
        """Take a kernel off the list of those added by hand."""
        if not release:
            raise ToolError("E: <kernel-version> is mandatory\n")
        if release in self._manual():
            self._write_manual(set(self._manual()) - {release})
            print(f"Removed kernel '{release}' from manual kernel list. Use the 'refresh' command to update the ESPs.")
        else:
            print(f"Kernel '{release}' not found in manual kernel list.")

    def list(self) -> None:
        """Print the kernels for the ESPs, and the pins."""
        manual = self._manual()
        automatic = [release for release in kernels.boot_list(self.root) if release not in manual]
        print("Manually selected kernels:", *(manual or ["None."]), "", "Automatically selected kernels:", *(automatic or [""]), sep="\n")
        for title, path in (("Pinned kernel", files.PIN), ("Kernel pinned on next-boot", files.NEXT_BOOT_PIN)):
            if release := versions.first_line(self.root / path):
                print(f"\n{title}:\n{release}")

    def pin(self, release: str, *, next_boot: bool) -> None:
        """Make a kernel the default, for good or for the next boot."""
        self._image(release, "not setting default", offer=True)
        path = self.root / (files.NEXT_BOOT_PIN if next_boot else files.PIN)
        before = versions.first_line(path)
        if path.exists() and before != release:
            print(f"Overriding previously pinned version '{before}' with '{release}'")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{release}\n", encoding="utf-8")
        if self.with_esps:
            self._offer_refresh(f"Set kernel '{release}' in /{path.relative_to(self.root)}")
            return
        chosen = versions.first_line(self.root / files.NEXT_BOOT_PIN) or release
        print(f"Setting '{chosen}' as grub default entry and running update-grub.")
        self._grub_default(chosen)

    def unpin(self, *, next_boot: bool) -> None:
        """Drop the pins, or only the one for the next boot."""
        last = versions.first_line(self.root / files.NEXT_BOOT_PIN)
        (self.root / files.NEXT_BOOT_PIN).unlink(missing_ok=True)
        print(f"Removed /{files.NEXT_BOOT_PIN}.")
        if not next_boot:
            last = versions.first_line(self.root / files.PIN) or last
            (self.root / files.PIN).unlink(missing_ok=True)
            print(f"Removed /{files.PIN}.")
        if self.with_esps:
            if last:
                self._offer_refresh(f"Unpinned kernel '{last}'")
            return
        print("Reset default grub entry and running update-grub.")
        self._grub_default(versions.first_line(self.root / files.PIN))

    def _offer_refresh(self, done: str) -> None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            print(f"{done}. Use the 'refresh' command to update the ESPs.")
            return
        print(f"{done}.")
        if input("Refresh the actual boot ESPs now? [yN] ")[:1] in {"y", "Y"}:
            self.refresh("")
        else:
            print("Skip auto-refresh, you can call it any time to enact boot changes.")

    def _grub_default(self, release: str) -> None:
        snippet = self.root / files.GRUB_PIN
        if not release:
            snippet.unlink(missing_ok=True)
        else:
            config = self.root / files.GRUB_CONFIG
            found = _GRUB_DEVICE.search(config.read_text(encoding="utf-8")) if config.is_file() else None
            device = found[1] if found else ""
            snippet.parent.mkdir(parents=True, exist_ok=True)
            entry = f"gnulinux-advanced-{device}>gnulinux-{release}-advanced-{device}"
            snippet.write_text(f'GRUB_DEFAULT="{entry}"\n', encoding="utf-8")
        esp.update_grub()

    def refresh(self, hook: str) -> None:
        """Run the kernel hooks: apt's rules and the ESPs; on a host without ESPs the second says that it skips."""
        if hook and hook not in HOOKS:
            raise ToolError(f"E: '{hook}' is not a valid hook script name.")
        for name in [hook] if hook else HOOKS:
            print(f"Running hook script '{name}'..", flush=True)
            script = self.root / "etc/kernel/postinst.d" / name
            if not script.is_file():
                esp.warn(f"Hook script '{name}' not found or not executable, skipping.")
                continue
            status = subprocess.run([str(script)], check=False).returncode
            if status != 0:
                raise ToolError("")

    def status(self, *, quiet: bool) -> int:
        """Print how the ESPs are set up; 2 where there are none."""
        if not self.with_esps:
            if not quiet:
                esp.warn(f"E: /{files.ESP_LIST} does not exist.")
            return 2
        if quiet:
            return 0
        print(f"System currently booted with {'uefi' if (esp.FIRMWARE / 'efi').is_dir() else 'legacy bios'}")
        for uuid in esp.listed(self.root):
            place = self.root / files.ESPS / uuid
            if not place.is_dir():
                esp.warn(f"WARN: {esp.BY_UUID / uuid} does not exist - clean '/{files.ESP_LIST}'! - skipping")
                continue
            found = ", ".join(sorted(path.name for path in (place / "EFI/proxmox").iterdir()))
            print(f"{uuid} is configured with: uefi (versions: {found})")
        return 0

    def clean(self, *, dry_run: bool) -> None:
        """Take ESPs that no longer exist off the list."""
        if not self.with_esps:
            raise ToolError(f"E: /{files.ESP_LIST} does not exist.")
        path = self.root / files.ESP_LIST
        kept = []
        for uuid in path.read_text(encoding="utf-8").split():
            exists = (self.root / files.ESPS / uuid).is_dir()
            print(f"Checking whether ESP '{uuid}' exists.. {'Found!' if exists else 'Not found!'}")
            if exists or dry_run:
                kept.append(uuid)
        print("Sorting and removing duplicate ESPs..")
        path.write_text("".join(f"{uuid}\n" for uuid in sorted(set(kept))), encoding="utf-8")

    def init(self, partition: str) -> None:
        """Take an ESP into use again; the lab has no disks to partition beyond its two ESPs."""
        uuid = partition.rpartition("/")[2]
        if not (self.root / files.ESPS / uuid).is_dir():
            raise ToolError(f"E: '{partition}' does not exist!")
        print("Installing systemd-boot..\nConfiguring systemd-boot..")
        esp.initialise(self.root, uuid)
        print(f"Adding '{partition}' to list of synced ESPs..")
        self.refresh("")


def _kernel(tool: Tool, words: list[str]) -> int:
    verb, rest = (words[0] if words else ""), words[1:]
    release = rest[0] if rest else ""
    if verb == "add":
        tool.add(release)
    elif verb == "remove":
        tool.remove(release)
    elif verb == "list":
        tool.list()
    elif verb == "pin" and rest[1:] == ["--next-boot"]:
        tool.pin(release, next_boot=True)
        print("Pinned for next boot only.")
    elif verb == "pin" and len(rest) == 1:
        tool.pin(release, next_boot=False)
    elif verb == "unpin" and rest in ([], ["--next-boot"]):
        tool.unpin(next_boot=bool(rest))
    else:
        if not verb:
            esp.warn("E: subcommand is mandatory for 'kernel'.\n")
        elif verb not in {"pin", "unpin"}:
            esp.warn(f"E: invalid 'kernel' subcommand '{verb}'.\n")
        usage("kernel")
        return 1
    return 0


def run(words: list[str], tool: Tool) -> int:
    """Run one command line; returns the exit status."""
    verb, rest = (words[0] if words else ""), words[1:]
    if verb in {"kernel", "kernels"}:
        return _kernel(tool, rest)
    if verb == "refresh" and (not rest or (len(rest) == 2 and rest[0] == "--hook")):
        tool.refresh(rest[1] if rest else "")
    elif verb == "status" and rest in ([], ["--quiet"]):
        return tool.status(quiet=bool(rest))
    elif verb == "clean":
        tool.clean(dry_run="--dry-run" in rest)
    elif verb == "init" and rest:
        tool.init(rest[0])
    elif verb == "reinit" and not rest:
        for uuid in esp.listed(tool.root) if tool.with_esps else []:
            tool.init(f"{esp.BY_UUID}/{uuid}")
    elif verb in {"help", ""}:
        usage()
    elif verb in USAGE:
        usage(verb)
        return 1
    else:
        esp.warn(f"Invalid/unknown command '{verb}'.\n")
        usage()
        return 1
    return 0


def main() -> int:
    """Run the command line."""
    try:
        return run(sys.argv[1:], Tool())
    except ToolError as error:
        if str(error):
            esp.warn(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
