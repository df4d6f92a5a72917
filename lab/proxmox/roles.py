"""Privileges and the roles that Proxmox VE has by itself."""

from __future__ import annotations

# category -> (kept to Administrator and root, given to admins, given to users, given to auditors)
_GROUPS: dict[str, tuple[str, str, str, str]] = {
    "VM": (
        "",
        (
            "Config.Disk Config.CPU Config.Memory Config.Network Config.HWType Config.Options Allocate Clone Migrate Replicate Snapshot "
            "Snapshot.Rollback GuestAgent.FileRead GuestAgent.FileWrite GuestAgent.FileSystemMgmt GuestAgent.Unrestricted"
        ),
        "Config.CDROM Config.Cloudinit Console Backup PowerMgmt",
        "Audit GuestAgent.Audit",
    ),
    "Sys": ("PowerMgmt Modify Incoming AccessNetwork", "Console Syslog", "", "Audit"),
    "Datastore": ("", "Allocate AllocateTemplate", "AllocateSpace", "Audit"),
    "SDN": ("", "Allocate", "Use", "Audit"),
    "Realm": ("Allocate", "AllocateUser", "", ""),
    "User": ("", "Modify", "", ""),
    "Group": ("", "Allocate", "", ""),
    "Pool": ("", "Allocate", "", "Audit"),
    "Mapping": ("", "Modify", "Use", "Audit"),
}


def _words(category: str, *columns: int) -> set[str]:
    return {f"{category}.{word}" for column in columns for word in _GROUPS[category][column].split()}


PRIVILEGES = {"Permissions.Modify"} | {word for category in _GROUPS for word in _words(category, 0, 1, 2, 3)}


def _builtin() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"Administrator": set(PRIVILEGES), "NoAccess": set(), "PVETemplateUser": {"VM.Clone", "VM.Audit"}}
    everything = [_words(category, 1, 2, 3) for category in _GROUPS]
    found["PVEAdmin"] = set().union(*everything) - {"Mapping.Modify"}
    found["PVEAuditor"] = set().union(*(_words(category, 3) for category in _GROUPS))
    for category in ("VM", "Sys", "Datastore", "SDN", "Pool", "Mapping"):
        found[f"PVE{category}Admin"] = _words(category, 1, 2, 3)
        if _GROUPS[category][2]:
            found[f"PVE{category}User"] = _words(category, 2, 3)
    found["PVEPoolUser"] = {"Pool.Audit"}
    found["PVEUserAdmin"] = {"User.Modify", "Group.Allocate", "Realm.AllocateUser"}
    return found


BUILTIN = _builtin()
