"""The LXC container on Proxmox: creating and starting it, devices, AppArmor, limits, the container runtime inside it."""

from __future__ import annotations

from ..model import CERTAIN, CONTAINER, GENERIC, LIKELY, WARNING, Problem, Sign

_PVE_SOURCE = "https://github.com/proxmox/pve-container/blob/master/src/PVE/LXC.pm"

PROBLEMS = (
    Problem(
        id="container-start-failed",
        layer=CONTAINER,
        title="The container does not start",
        cause="LXC gave up on the container; the lines before this one say at which step.",
        remedy="pct start VMID --debug; journalctl -u pve-container@VMID; for devices ls -l /dev/nvidia* on the host.",
        signs=(
            Sign(r"startup for container '(?P<vmid>\d+)' failed"),
            Sign(r"pve-container@(?P<vmid>\d+)\.service: (?:Failed with result|Control process exited|Main process exited)"),
            Sign(r"unable to start service ct:(?P<vmid>\d+)"),
            Sign(r"Failed to spawn container \"?(?P<vmid>\d+)|__lxc_start: \d+ Failed to (?:initialize|spawn|setup) container"),
            Sign(r"Failed to run lxc\.hook\.\S+ for container"),
        ),
        shows=("TASK ERROR: startup for container '200' failed",),
        unlike=("TASK OK",),
        sources=(_PVE_SOURCE,),
        confidence=GENERIC,
    ),
    Problem(
        id="container-mount-hook",
        layer=CONTAINER,
        title="A mount hook of the container fails",
        cause="A mount hook (NVIDIA's lxc hook, as a rule) does not work in this container: a privileged one, or a toolkit that broke it "
        "(1.17.7 and newer on Proxmox).",
        remedy="Make the container unprivileged, or drop the hook and pass the devices with dev[n] (gpu_container does).",
        signs=(
            Sign(r"Failed to run mount hooks"),
            Sign(r"__safe_mount_beneath_at: \d+ "),
            Sign(r"nvidia-container-cli: .{0,60}permission", near=(r"lxc|hook|conf\.c",), within=20),
            Sign(r"/usr/share/lxc/hooks/nvidia.{0,80}\b(?:exited|failed|error)"),
        ),
        shows=(
            'run_buffer: 314 Script exited with status 1\nlxc_setup: 3388 Failed to run mount hooks\ndo_start: 1218 Failed to setup container "102"',
        ),
        unlike=("lxc.hook.mount: /usr/share/lxc/hooks/nvidia",),
        sources=(
            "https://github.com/Saberwolf64/Proxmox-Nvidia-LXC-/issues/1",
            "https://github.com/NVIDIA/nvidia-container-toolkit/issues/1093",
        ),
        confidence=LIKELY,
        explains=("container-start-failed",),
        refines=("container-start-failed",),
    ),
    Problem(
        id="container-mount-failed",
        layer=CONTAINER,
        title="A file system of the container cannot be mounted",
        cause="The root file system or a mount point is not there when the container starts: a bind source that does not exist (yet), a volume that is not active, "
        "an unreachable file server, or a full thin pool.",
        remedy="pct start VMID --debug names it; check that each source of gpu_container_mounts exists on the host (lvs, zfs list, mount); order the start behind "
        "its mount (gpu_container_startup).",
        signs=(
            Sign(r"Script exited with status (?:19|25|32|116)", near=(r"Failed to run lxc\.hook\.pre-start",), within=4),
            Sign(
                r"(?:directory|path) '?(?P<path>/[^' ]+)'? does not exist",
                near=(r"lxc\.hook\.pre-start|pre-start|startup for container",),
                within=10,
            ),
            Sign(
                r"unable to open (?:file|dir) '(?P<path>[^']+)'",
                near=(r"lxc\.hook\.pre-start|startup for container|mountpoint",),
                within=10,
            ),
            Sign(r"lxc-start[^\n]{0,200}Failed to mount\b"),
            Sign(
                r"mount: [^\n]{0,120}(?:special device \S+ does not exist|can'?t read superblock)", near=(r"lxc|pct|container",), within=10
            ),
        ),
        shows=(
            (
                'run_buffer: 571 Script exited with status 32\nlxc_init: 845 Failed to run lxc.hook.pre-start for container "105"\n'
                "__lxc_start: 2047 Failed to initialize container \"105\"\nTASK ERROR: startup for container '105' failed"
            ),
            "directory '/srv/models' does not exist\nTASK ERROR: startup for container '200' failed",
        ),
        unlike=("mp0: /srv/models,mp=/models,ro=1",),
        sources=("https://pve.proxmox.com/pve-docs/pct.1.html",),
        confidence=LIKELY,
        explains=("container-start-failed",),
        refines=("container-start-failed",),
    ),
    Problem(
        id="container-device-missing",
        layer=CONTAINER,
        title="A device that is passed through is none",
        cause="A dev[n] entry names a node that this host does not have, or that is no device.",
        remedy="Remove the entry, or load its driver so that the node exists before the start (ls -l the path on the host).",
        signs=(
            Sign(r"(?P<path>/dev/\S+) is not a device"),
            Sign(r"Device (?P<path>/dev/(?!nvidia)\S+) does not exist"),
            Sign(r"Path is not defined for passthrough device (?P<path>dev\d+)"),
            Sign(r"Error accessing device (?P<path>/dev/(?!nvidia)\S+)"),
        ),
        shows=("/dev/dri/renderD128 is not a device\nstartup for container '119' failed", "Device /dev/kfd does not exist"),
        unlike=("/dev/dri/renderD128: character special (226/128)",),
        sources=("https://github.com/community-scripts/ProxmoxVE/issues/1727", _PVE_SOURCE),
        confidence=CERTAIN,
        explains=("container-start-failed",),
        refines=("container-start-failed",),
    ),
    Problem(
        id="container-nvml-lost",
        layer=CONTAINER,
        title="The container has lost its GPUs",
        cause="The device cgroup of the container no longer allows the NVIDIA devices: systemd rewrote it (daemon-reload), or they were never allowed.",
        remedy="Restart the container. To prevent it: pass the nodes explicitly (dev[n] in gpu_container_gpus; for docker --device or CDI), or "
        "create the /dev/char links.",
        consequence="nvidia-smi worked before and now fails; running processes go on until they end.",
        signs=(Sign(r"Failed to initialize NVML: Unknown Error"), Sign(r"Failed to initialize NVML: Insufficient Permissions")),
        shows=("Failed to initialize NVML: Unknown Error",),
        unlike=("Failed to initialize NVML: Driver/library version mismatch",),
        sources=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",),
        confidence=LIKELY,
        explains=("cuda-no-device", "cuda-unknown-error"),
    ),
    Problem(
        id="container-device-denied",
        layer=CONTAINER,
        title="The container may not open an NVIDIA device",
        cause="The node is there but opening it is refused: mode or owner (dev[n] makes 0660 root by default), or a cgroup rule with an old major.",
        remedy="Pass it with mode=0666 or the service's group (gpu_container does); with lxc.cgroup2.devices.allow lines compare the majors with "
        "/proc/devices (nvidia-uvm's changes between boots), better replace them by dev[n].",
        signs=(
            Sign(r"/dev/nvidia[\w-]*['\"]?[^\n]{0,40}\b(?:Permission denied|Operation not permitted)"),
            Sign(r"(?:Permission denied|Operation not permitted)[^\n]{0,40}/dev/nvidia"),
            Sign(r"NVML_ERROR_NO_PERMISSION"),
        ),
        shows=('open("/dev/nvidia-uvm", O_RDWR|O_CLOEXEC) = -1 EPERM (Operation not permitted)', "/dev/nvidiactl: Permission denied"),
        unlike=("crw-rw-rw- 1 root root 195, 255 Nov 30 09:00 /dev/nvidiactl",),
        sources=("https://github.com/jammsen/proxmox-setup-scripts/issues/7", _PVE_SOURCE),
        confidence=CERTAIN,
        explains=("cuda-no-device", "cuda-unknown-error", "cuda-not-initialized", "container-nvml-lost"),
    ),
    Problem(
        id="cuda-no-device",
        layer=CONTAINER,
        title="No CUDA device is seen",
        cause="The program's world has no GPU: device nodes missing or hidden (CUDA_VISIBLE_DEVICES), /dev/nvidia-uvm not there, or the driver's "
        "libraries are absent.",
        remedy="In the container: ls -l /dev/nvidia*; nvidia-smi; echo $CUDA_VISIBLE_DEVICES. On the host: nvidia-modprobe -c 0 -u, restart the container.",
        signs=(
            Sign(r"no CUDA-capable device is detected"),
            Sign(r"CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice"),
            Sign(r"No CUDA GPUs are available"),
            Sign(r"Torch not compiled with CUDA enabled"),
            Sign(r"CUDA error: invalid device ordinal|CUDA_ERROR_INVALID_DEVICE\b"),
        ),
        shows=("RuntimeError: No CUDA GPUs are available", "CUDA error: no CUDA-capable device is detected"),
        unlike=("torch.cuda.device_count() = 8",),
        sources=("https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",),
        confidence=GENERIC,
        tags=("cuda-init",),
    ),
    Problem(
        id="libcuda-missing",
        layer=CONTAINER,
        title="The driver's libraries are missing",
        cause="libcuda or libnvidia-ml is not installed where the program runs.",
        remedy="Install the driver's user space in the container, of the host's version and without a module (cuda_userspace); ldconfig -p | grep libcuda.",
        signs=(
            Sign(r"lib(?:cuda|nvidia-ml)\.so(?:\.1)?: cannot open shared object file"),
            Sign(r"load library failed: lib(?:nvidia-ml|cuda)\.so\.1"),
            Sign(r"NVML Shared Library Not Found"),
            Sign(r"couldn'?t find libnvidia-ml\.so library in your system"),
            Sign(r"lib(?:cuda|nvidia-ml)\.so\.1 (?:is )?not found"),
        ),
        shows=(
            "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
            "pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found",
        ),
        unlike=("libcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1",),
        sources=("https://github.com/canonical/lxd/issues/5415",),
        confidence=CERTAIN,
        explains=("cuda-no-device", "cuda-unknown-error"),
    ),
    Problem(
        id="apparmor-mount-denied",
        layer=CONTAINER,
        title="AppArmor denies a mount in the container",
        cause="The container's AppArmor profile does not allow this mount (NFS and CIFS need their own permission).",
        remedy="Allow it: features mount=nfs (privileged container), or mount on the host and bind it in with mp[n] (gpu_container_mounts), which "
        "needs no permission.",
        signs=(
            Sign(r"apparmor=\"DENIED\" operation=\"(?:mount|pivotroot|umount)\"[^\n]{0,300}profile=\"/?(?:usr/bin/)?(?:lxc|pve|incus|lxd)"),
            Sign(r"apparmor=\"DENIED\" operation=\"mount\"[^\n]{0,300}fstype=\"(?P<fstype>nfs\w*|cifs|ceph|fuse\S*)\""),
            Sign(r"mount\.(?:nfs|cifs)\S*: .{0,80}\b(?:Operation not permitted|access denied|Permission denied)"),
        ),
        shows=(
            (
                'audit: type=1400 audit(1548769210.717:50467): apparmor="DENIED" operation="mount" info="failed type match" error=-13 '
                'profile="lxc-container-default-cgns" name="/mnt/models/" pid=3535 comm="mount" fstype="nfs" srcname="192.0.2.1:/srv/models"'
            ),
        ),
        unlike=('apparmor="DENIED" operation="open" profile="/usr/sbin/ntpd" name="/snap/bin/" pid=1368 comm="ntpd" requested_mask="r"',),
        sources=("https://pve.proxmox.com/pve-docs/pct.1.html",),
        confidence=CERTAIN,
    ),
    Problem(
        id="apparmor-denied",
        layer=CONTAINER,
        title="AppArmor denies something to the container",
        cause="The container's AppArmor profile does not allow what a program in it tried.",
        remedy="Where the program needs it: gpu_container_features nesting=1 (systemd, runc), else lxc.apparmor.profile for that container; "
        "many such denials are harmless.",
        severity=WARNING,
        signs=(
            Sign(r"apparmor=\"DENIED\" [^\n]{0,200}profile=\"(?:/usr/bin/)?lxc-\d+_", not_near=(r"comm=\"\(?(?:sd-|systemd)",), within=0),
        ),
        shows=(
            (
                'audit: type=1400 audit(1732960000.101:88): apparmor="DENIED" operation="ptrace" class="ptrace" '
                'profile="lxc-200_</var/lib/lxc>" pid=71 comm="py-spy" requested_mask="read" denied_mask="read"'
            ),
        ),
        unlike=('apparmor="STATUS" operation="profile_load" profile="/usr/bin/lxc-start" name="lxc-200_</var/lib/lxc>"',),
        sources=("https://pve.proxmox.com/pve-docs/chapter-pct.html",),
        confidence=GENERIC,
    ),
    Problem(
        id="nested-docker-apparmor",
        layer=CONTAINER,
        title="Docker in the container is stopped by AppArmor",
        cause="A newer runc reopens procfs descriptors, which the AppArmor profile of the LXC container blocks (containerd.io 1.7.28-2 and newer).",
        remedy="lxc.apparmor.profile: unconfined and /dev/null bound over sys/module/apparmor/parameters/enabled in the container's file, or the older "
        "containerd pinned. Better: run the server without docker, as sglang_server does.",
        signs=(
            Sign(r"open sysctl net\.ipv4\.ip_unprivileged_port_start file.{0,60}permission denied"),
            Sign(r"reopen fd \d+: permission denied"),
            Sign(r"runc create failed.{0,160}(?:apparmor|procfs|/proc/self/attr)"),
        ),
        shows=(
            (
                "Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: "
                "unable to start container process: error during container init: open sysctl net.ipv4.ip_unprivileged_port_start file: reopen fd 8: "
                "permission denied: unknown"
            ),
        ),
        unlike=("sysctl net.ipv4.ip_unprivileged_port_start = 1024",),
        sources=("https://github.com/ironicbadger/blog-ktz",),
        confidence=CERTAIN,
        explains=("docker-gpu-driver-missing",),
    ),
    Problem(
        id="nested-docker-cgroup",
        layer=CONTAINER,
        title="nvidia-container-cli may not change device cgroups",
        cause="Inside an unprivileged LXC container the device cgroup belongs to the host.",
        remedy="Set no-cgroups = true in /etc/nvidia-container-runtime/config.toml of the container and restart docker.",
        signs=(
            Sign(r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed"),
            Sign(r"failed to add device rules"),
            Sign(r"unable to find any existing device filters attached to the cgroup"),
            Sign(r"nvidia-container-cli: container error: cgroup subsystem devices not found"),
        ),
        shows=(
            (
                "nvidia-container-cli: mount error: failed to add device rules: unable to find any existing device filters attached to the cgroup: "
                "bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted: unknown."
            ),
        ),
        unlike=("nvidia-container-cli -k -d /dev/tty info",),
        sources=("https://github.com/NVIDIA/libnvidia-container/issues/154",),
        confidence=CERTAIN,
    ),
    Problem(
        id="docker-gpu-driver-missing",
        layer=CONTAINER,
        title="Docker knows no GPU driver",
        cause="The NVIDIA container toolkit is not installed or not configured for this docker.",
        remedy="apt install nvidia-container-toolkit; nvidia-ctk runtime configure --runtime=docker; systemctl restart docker.",
        signs=(
            Sign(r"could not select device driver .{0,10} with capabilities: \[\[gpu\]\]"),
            Sign(r"nvidia-container-cli: (?:initialization|ldcache|detection|requirement) error"),
            Sign(r"unknown or invalid runtime name: nvidia"),
            Sign(r"unresolvable CDI devices"),
        ),
        shows=('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',),
        unlike=("Runtimes: io.containerd.runc.v2 nvidia runc",),
        sources=("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",),
        confidence=LIKELY,
    ),
    Problem(
        id="pve-oci-privileged",
        layer=CONTAINER,
        title="An OCI image cannot become a privileged container",
        cause="Proxmox VE creates containers from OCI images unprivileged only.",
        remedy="Create it with --unprivileged 1 (gpu_container_unprivileged: true), or use a system template.",
        signs=(
            Sign(r"Detected OCI archive", near=(r"unable to create CT .{0,30}",), within=15),
            Sign(r"unable to create CT \S+ - Invalid argument"),
        ),
        shows=("Detected OCI archive\nunable to create CT 210 - Invalid argument",),
        unlike=("Detected OCI archive\nextracting archive\nTASK OK",),
        sources=("https://github.com/MrBloodrune/claude-skills",),
        confidence=LIKELY,
    ),
    Problem(
        id="pve-root-only",
        layer=CONTAINER,
        title="Proxmox allows this to root@pam alone",
        cause="Device passthrough, bind mounts, hook scripts and feature flags are refused to every API token, that of root included.",
        remedy="Talk to the API on the node as root (pve_lxc's api_backend: local, the default), or with a root@pam password ticket.",
        signs=(
            Sign(r"configuring device passthrough is only allowed for root@pam"),
            Sign(r"(?:mount point type \w+|changing feature flags[^\n]{0,60}|changing the hookscript) is only allowed for root@pam"),
            Sign(r"only root can (?:pass arbitrary filesystem paths|set|use)[^\n]{0,60}"),
            Sign(r"Only root may use this option"),
        ),
        shows=("403 Forbidden: Permission check failed (configuring device passthrough is only allowed for root@pam)",),
        unlike=("Permission check failed (/vms/200, VM.Allocate)",),
        sources=(_PVE_SOURCE, "https://github.com/bpg/terraform-provider-proxmox/issues/609"),
        confidence=CERTAIN,
    ),
    Problem(
        id="pve-permission",
        layer=CONTAINER,
        title="The API user lacks a privilege",
        cause="The user or token has no right to this object.",
        remedy="pveum acl modify PATH --roles ROLE --users USER with the privilege that the message names; a token needs it too unless it was made with "
        "privilege separation off.",
        signs=(
            Sign(r"Permission check failed \((?P<what>/[^)]{1,100}, \S+?)\)"),
            Sign(r"\b401\b.{0,40}(?:No ticket|permission denied - invalid PVE ticket|authentication failure)"),
            Sign(r"permission denied - invalid (?:PVE ticket|csrf token)"),
        ),
        shows=("403 Forbidden: Permission check failed (/vms/200, VM.Allocate)",),
        unlike=("Permission check failed (configuring device passthrough is only allowed for root@pam)",),
        sources=(_PVE_SOURCE,),
        confidence=CERTAIN,
    ),
    Problem(
        id="pve-locked",
        layer=CONTAINER,
        title="The container is locked",
        cause="Another task (backup, migration, creation) holds the container, or one that died left its lock.",
        remedy="Wait for the task (pvesh get /cluster/tasks); when none runs: pct unlock VMID.",
        signs=(
            Sign(r"\b(?:CT|VM) is locked(?: \((?P<lock>\w+)\))?"),
            Sign(r"can'?t lock file '/(?:run|var)/lock/(?:lxc|qemu)\S*' - got timeout"),
            Sign(r"unable to acquire (?:pmxcfs|cfs)?-? ?lock.{0,40}got timeout|cfs-lock .{0,40} error: got lock (?:request )?timeout"),
        ),
        shows=("CT is locked (backup)", "can't lock file '/run/lock/lxc/pve-config-200.lock' - got timeout"),
        unlike=("lock: backup released",),
        sources=(_PVE_SOURCE, "https://github.com/Telmate/terraform-provider-proxmox/issues/1069"),
        confidence=CERTAIN,
    ),
    Problem(
        id="pve-config-refused",
        layer=CONTAINER,
        title="Proxmox refuses an option of the container",
        cause="The option does not exist in the API (raw lxc.* keys do not), is read-only, or its value has another form.",
        remedy="The message names the option. Raw keys go into the container's file (pve_lxc's lxc parameter); unprivileged cannot be changed after "
        "creation; booleans are 0 or 1 over HTTPS.",
        signs=(
            Sign(r"property is not defined in schema and the schema does not allow additional properties"),
            Sign(r"unable to (?:modify|delete) read-only option: '(?P<option>\w+)'"),
            Sign(r"Parameter verification failed"),
            Sign(r"type check \('(?P<type>\w+)'\) failed - got"),
            Sign(r"unknown setting '(?P<option>[^']+)'"),
        ),
        shows=(
            (
                '400 Parameter verification failed.\n{"lxc.cgroup2.devices.allow":"property is not defined in schema and the schema does not allow additional '
                'properties"}'
            ),
            "unable to modify read-only option: 'unprivileged'",
        ),
        unlike=("unprivileged: 1",),
        sources=(_PVE_SOURCE,),
        confidence=LIKELY,
    ),
    Problem(
        id="pve-exists",
        layer=CONTAINER,
        title="The container id is taken",
        cause="A container or virtual machine with this id exists already, possibly made in the same moment by another task.",
        remedy="Choose another gpu_container_vmid, or let pve_lxc adopt the existing one (adopt: true) when it is yours.",
        signs=(
            Sign(r"\b(?:CT|VM) (?P<vmid>\d+) already exists"),
            Sign(r"unable to create (?:CT|VM) (?P<vmid>\d+): config file already exists"),
        ),
        shows=("unable to create CT 200 - CT 200 already exists on node 'pve1'",),
        unlike=("CT 200 already running",),
        sources=("https://github.com/ansible-collections/community.proxmox/issues/58",),
        confidence=CERTAIN,
    ),
    Problem(
        id="pve-storage",
        layer=CONTAINER,
        title="Storage, template or bridge is not there",
        cause="What the container's configuration names does not exist on this node, or may not hold that kind of content.",
        remedy="pvesm status --content rootdir and pveam list local show what there is; set gpu_container_storage, gpu_container_ostemplate and the bridge "
        "accordingly.",
        signs=(
            Sign(r"storage '(?P<storage>[^']+)' does not (?:exist|allow content type|support)"),
            Sign(r"volume '(?P<volume>[^']+)' does not exist"),
            Sign(r"unable to use volume \S+ - content type needs to be"),
            Sign(r"bridge '(?P<bridge>[^']+)' does not exist"),
            Sign(r"(?:unable to parse volume ID|no such logical volume|unable to activate storage)"),
        ),
        shows=("storage 'local' does not allow content type 'rootdir' (Container)", "bridge 'vmbr7' does not exist"),
        unlike=("storage 'local-zfs' is online",),
        sources=(_PVE_SOURCE,),
        confidence=CERTAIN,
        explains=("container-start-failed",),
    ),
    Problem(
        id="lxc-idmap",
        layer=CONTAINER,
        title="The id mapping of the container is not allowed",
        cause="A mapped range is not granted to root in /etc/subuid and /etc/subgid, or overlaps another.",
        remedy="Add the range (root:100000:65536 and each single id) to /etc/subuid and /etc/subgid on the host; gpu_container passes devices without any.",
        signs=(
            Sign(r"(?:newuidmap|newgidmap): .{0,60}\b(?:not allowed|failed|Operation not permitted)"),
            Sign(r"[ug]id range \[.{0,60}\] .{0,40}not allowed"),
            Sign(r"lxc_map_ids: \d+ |Failed to set up id mapping"),
        ),
        shows=("newuidmap: uid range [1000-1001) -> [1000-1001) not allowed\nlxc_map_ids: 3701 newuidmap failed to write mapping",),
        unlike=("lxc.idmap: u 0 100000 65536",),
        sources=("https://pve.proxmox.com/wiki/Unprivileged_LXC_containers",),
        confidence=CERTAIN,
        explains=("container-start-failed",),
        refines=("container-start-failed",),
    ),
    Problem(
        id="lxc-cgroup-v1-key",
        layer=CONTAINER,
        title="The container's file uses cgroup v1 keys",
        cause="lxc.cgroup.* keys have no effect on a host with cgroup v2 and will be an error in a future release.",
        remedy="Replace lxc.cgroup.devices.allow by dev[n] (gpu_container), others by lxc.cgroup2.*.",
        severity=WARNING,
        signs=(Sign(r"lxc\.cgroup\.\S+ is deprecated, this will be a hard error"),),
        shows=("lxc.cgroup.devices.allow is deprecated, this will be a hard error in the future!",),
        unlike=("lxc.cgroup2.devices.allow: c 195:* rwm",),
        sources=(_PVE_SOURCE,),
        confidence=CERTAIN,
    ),
    Problem(
        id="container-nesting",
        layer=CONTAINER,
        title="systemd in the container needs nesting",
        cause="Services with sandboxing cannot set up their name spaces without nesting=1.",
        remedy="pct set VMID --features nesting=1 (gpu_container_features) and restart the container.",
        signs=(
            Sign(r"Failed to set up mount namespacing"),
            Sign(r"Failed at step NAMESPACE spawning"),
            Sign(r"status=226/NAMESPACE"),
            Sign(r"Systemd \d+ detected\. You may need to enable nesting"),
        ),
        shows=("systemd[1]: systemd-networkd.service: Main process exited, code=exited, status=226/NAMESPACE",),
        unlike=("systemd[1]: Started systemd-networkd.service - Network Configuration.",),
        sources=("https://github.com/bpg/terraform-provider-proxmox/pull/2701",),
        confidence=LIKELY,
    ),
    Problem(
        id="shared-memory-full",
        layer=CONTAINER,
        title="/dev/shm is full",
        cause="The shared memory of the container is too small (docker gives 64 MB): worker processes and NCCL exchange data there. The disk is not full.",
        remedy="docker: --shm-size=32g or --ipc=host; in LXC /dev/shm is half of the host's memory and counts against gpu_container_memory_mib: "
        "df -h /dev/shm, set gpu_container_shm_mib.",
        signs=(
            Sign(
                r"No space left on device",
                near=(
                    r"/dev/shm|multiprocessing/(?:heap|shared_memory|synchronize)|shm_open|torch_shm_manager|ftruncate\(self|SharedMemory|psm_[\da-f]",
                ),
                not_near=(r"huggingface|hf_hub|xet|/boot/",),
                within=12,
            ),
            Sign(
                r"(?:unable to|could not|cannot|failed to) (?:open|allocate|resize|create)? ?shared memory (?:object|file|segment|region)?.{0,80}"
            ),
            Sign(r"NCCL WARN .{0,60}\b(?:Error while creating shared memory segment|posix_fallocate failed|shm_?open)"),
            Sign(r"Call to (?:posix_fallocate|shm_open|ftruncate) failed"),
            Sign(r"DataLoader worker .{0,60}\b(?:bus error|killed by signal: Bus error)|insufficient shared memory \(shm\)"),
        ),
        shows=(
            (
                '  File "/usr/lib/python3.10/multiprocessing/heap.py", line 81, in __init__\n    os.ftruncate(self.fd, size)\n'
                "OSError: [Errno 28] No space left on device"
            ),
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-gR5qmR (size 9637888)",
        ),
        unlike=("RuntimeError: Task error: File reconstruction error: IO Error: No space left on device (os error 28)\nxet_get(",),
        sources=(
            "https://github.com/NVIDIA/Megatron-LM/issues/878",
            "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        ),
        confidence=LIKELY,
        explains=("nccl-system-error", "collective"),
        refines=("disk-full", "nccl-system-error"),
    ),
    Problem(
        id="memlock-limit",
        layer=CONTAINER,
        title="Locked memory is limited",
        cause="Pinned host memory or RDMA registration needs more locked memory than the container's limit.",
        remedy="lxc.prlimit.memlock: unlimited in the container's file (gpu_container_memlock) and LimitMEMLOCK=infinity in the unit.",
        signs=(
            Sign(r"ibv_(?:reg_mr|create_cq|create_qp)\S* failed.{0,40}\b(?:Cannot allocate memory|Operation not permitted)"),
            Sign(r"Call to ibv_\w+ failed with error Cannot allocate memory"),
            Sign(r"\bmlock(?:all)?\b.{0,40}(?:Cannot allocate memory|Operation not permitted|failed)"),
            Sign(r"RLIMIT_MEMLOCK.{0,40}\b(?:too (?:low|small)|exceed|insufficient)"),
        ),
        shows=("NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",),
        unlike=("max locked memory (kbytes, -l) unlimited",),
        sources=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",),
        confidence=LIKELY,
    ),
    Problem(
        id="numa-binding-denied",
        layer=CONTAINER,
        title="NUMA binding is refused",
        cause="The container may not set a memory policy, or its cpuset lacks the GPU's node.",
        remedy="Give the container the GPU's CPUs and memory nodes (gpu_container_numa: lxc.cgroup2.cpuset.cpus and .mems), or switch the binding off "
        "(SGLANG_AUTO_NUMA_BIND=0).",
        severity=WARNING,
        signs=(
            Sign(r"(?:set_mempolicy|mbind|numa_\w+|numactl)\b.{0,60}(?:Operation not permitted|Invalid argument|not allowed)"),
            Sign(r"Failed to bind .{0,40}NUMA node"),
        ),
        shows=(
            "numactl: set_mempolicy: Operation not permitted",
            "set_mempolicy: Operation not permitted\nsetting membind: Operation not permitted",
        ),
        unlike=("available: 2 nodes (0-1)",),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=LIKELY,
    ),
    Problem(
        id="open-files-limit",
        layer=CONTAINER,
        title="Too many open files",
        cause="The process or the container reached its limit of open files: many streams at once, or many shards mapped.",
        remedy="LimitNOFILE=1048576 in the server's unit (sglang_server sets it); on the host fs.file-max and fs.inotify limits.",
        signs=(
            Sign(r"\[Errno 24\]|Too many open files"),
            Sign(r"VFS: file-max limit \d+ reached"),
        ),
        shows=("OSError: [Errno 24] Too many open files: '/srv/models/hub/models--x/snapshots/0/model-00012-of-00078.safetensors'",),
        unlike=("Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit",),
        sources=("https://github.com/leptonai/gpud",),
        confidence=CERTAIN,
    ),
    Problem(
        id="process-limit",
        layer=CONTAINER,
        title="No more processes or threads are allowed",
        cause="The container's or unit's limit of tasks is reached.",
        remedy="TasksMax=infinity in the unit, lxc.cgroup2.pids.max in the container's file; OMP_NUM_THREADS=8 keeps thread pools small.",
        signs=(
            Sign(r"fork(?: failed)?: (?:retry: )?Resource temporarily unavailable"),
            Sign(r"can'?t start new thread"),
            Sign(r"pthread_create failed.{0,60}\b(?:Resource temporarily unavailable|error code 11)|libgomp: Thread creation failed"),
            Sign(r"cgroup: fork rejected by pids controller"),
        ),
        shows=(
            "RuntimeError: can't start new thread",
            "cgroup: fork rejected by pids controller in /lxc/200/ns/system.slice/sglang.service",
        ),
        unlike=("Reducing Torch parallelism from 12 threads to 1 to avoid unnecessary CPU contention.",),
        sources=("https://docs.kernel.org/admin-guide/cgroup-v2.html",),
        confidence=CERTAIN,
    ),
    Problem(
        id="glibc-too-old",
        layer=CONTAINER,
        title="The container's C library is too old",
        cause="A wheel was built for a newer operating system than the container has.",
        remedy="Use a newer distribution in the container (Ubuntu 24.04, Debian 12 or 13; sglang from 0.5.11 needs glibc 2.34).",
        signs=(
            Sign(r"version `?'?GLIBC_(?P<glibc>[\d.]+)'? not found"),
            Sign(r"not a supported wheel on this platform", near=(r"manylinux_2_\d+",), within=3),
        ),
        shows=(
            (
                "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by "
                "/srv/venv/lib/python3.11/site-packages/sglang/_core.abi3.so)"
            ),
        ),
        unlike=("ldd (Ubuntu GLIBC 2.39-0ubuntu8.6) 2.39",),
        sources=("https://github.com/ServerlessLLM/ServerlessLLM/issues/164",),
        confidence=CERTAIN,
        explains=("import-failed",),
    ),
    Problem(
        id="libstdcxx-too-old",
        layer=CONTAINER,
        title="The C++ library is too old",
        cause="A library found at run time provides an older libstdc++ than an extension was built with (conda's often shadows the system's).",
        remedy="Use the system's: unset LD_LIBRARY_PATH or put /usr/lib/x86_64-linux-gnu first; or a newer distribution.",
        signs=(Sign(r"version `?'?(?:GLIBCXX|CXXABI)_[\d.]+'? not found"),),
        shows=(
            "ImportError: /opt/conda/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /root/.cache/flashinfer/x.so)",
        ),
        unlike=("GLIBCXX_3.4.30",),
        sources=("https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html",),
        confidence=CERTAIN,
        explains=("import-failed",),
    ),
    Problem(
        id="nccl-imex",
        layer=CONTAINER,
        title="NCCL finds multi-node NVLink but no IMEX channel",
        cause="The container has no IMEX channel device; only multi-node NVLink machines need one.",
        remedy="NCCL_MNNVL_ENABLE=0, or pass /dev/nvidia-caps-imex-channels/channel0 (NVreg_CreateImexChannel0=1 on the host).",
        signs=(Sign(r"MNNVL .{0,60}is available but not working"), Sign(r"Check the IMEX channel configuration")),
        shows=(
            (
                "NCCL WARN MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel configuration "
                "(/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this issue."
            ),
        ),
        unlike=("NCCL INFO MNNVL busId 0x1000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0",),
        sources=("https://github.com/NVIDIA/nccl/issues/1925",),
        confidence=CERTAIN,
        explains=("collective", "nccl-system-error"),
    ),
    Problem(
        id="storage-pool-full",
        layer=CONTAINER,
        title="The storage of the container has no room",
        cause="The thin pool, ZFS pool or folder behind the storage is full or near its limit; Proxmox makes no further volume in it, and writes may fail.",
        remedy="lvs, zpool list or pvesm status show what is used; remove old volumes and backups or choose another gpu_container_storage. Models belong "
        "on a mount of their own, not into the root file system.",
        signs=(
            Sign(r"Cannot create new thin volume, free space in thin pool \S+ reached threshold"),
            Sign(r"(?:Thin pool|dm_thin|thin: )[^\n]{0,80}\b(?:out of (?:data|metadata) space|reached low water mark)"),
            Sign(r"device-mapper: thin: \S+ (?:reached low water mark|switching pool to (?:out-of-data-space|read-only) mode)"),
            Sign(r"cannot create '\S+': out of space"),
        ),
        shows=(
            (
                "TASK ERROR: unable to create CT 101 - lvcreate 'pve/vm-101-disk-0' error: Cannot create new thin volume, free space in thin pool "
                "pve/data reached threshold."
            ),
            "device-mapper: thin: 252:4: switching pool to out-of-data-space mode",
        ),
        unlike=("WARNING: Sum of all thin volume sizes (1.20 TiB) exceeds the size of thin pool pve/data",),
        sources=("https://pve.proxmox.com/wiki/Storage:_LVM_Thin",),
        confidence=CERTAIN,
        explains=("container-start-failed", "disk-full", "disk-failing"),
    ),
)
