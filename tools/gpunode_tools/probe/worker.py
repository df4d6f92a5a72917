"""The probe's worker: measures GPU peer-to-peer pairs through libcuda.so.1, one JSON line an event.

It is streamed to where the driver is and needs a Python (3.9 or later) and the driver there, nothing else: no toolkit, no compiler, no
file. Kernels are PTX text for sm_70 and later, compiled by the driver itself. A watcher (watcher.py) gives it the work, watches its
deadlines and kills it when a copy never ends; so it may block anywhere, and it keeps no promise about cleaning up: the kernel does that
when the process ends.

Of a pair (src, dst), src is the GPU that acts: ``copy_gbps`` is its copy engine writing into dst's memory, ``sm_read_gbps`` and
``read_latency_us`` are its kernels reading dst's memory, ``sm_write_gbps`` its kernels writing there.
"""

from __future__ import annotations

import array
import ctypes
import hashlib
import json
import mmap
import os
import random
import statistics
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MIB = 1 << 20
BUFFER = 256 * MIB  # a copy's fixed cost is then below 0.5 % on NVLink (0.69 ms a copy)
SLOW_CHUNK = 64 * MIB  # on PCIe a copy of 64 MiB takes over a millisecond: more would only cost time
LIGHT_BUFFER = 8 * MIB  # on GPUs that are in use
CHECK = 32 * MIB  # bytes proved at the destination: 16 pages of the largest size, 1 ms a direction over PCIe
SMALL_CHECK = MIB  # bytes proved for kernels' writes and for each stream of a concurrent pattern
CHASE = 2 * MIB  # what nvbandwidth's latency test walks over
CHASE_STRIDE = 128  # one sector group: no hop finds its data beside the last one's
CHASE_HOPS = 4000
SCRATCH = 64 << 10
RESERVE = 64 * MIB  # left free beside our buffers
BUSY_USED = 2048 * MIB  # more than any context of ours: somebody else's memory, so the GPU is in use
BUSY_MIN_FREE = 700 * MIB  # a context takes about 500 MiB; below this it could take the last memory of a server
AGREE = 0.02  # three samples within 2 % end a measurement; clocks and links that still wake up differ by more
SAMPLES_MAX = 9
SAMPLE_S = 0.004
PEERS_MAX = 8  # CUDA: at most eight peer connections a device
PREFILL = 0xA5
RESIDENT_ROUNDS = 400
RESIDENT_WAIT_NS = 2_000_000_000  # a round takes microseconds; a kernel that waits this long gives up by itself
HOST_KEY = 256  # numbers of patterns: pairs below, GPUs' copies from and to the host from here on
RESTART_EXIT = 75  # EX_TEMPFAIL: the contexts are lost, start another worker

OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE = 2, 3, 100
PEER_UNSUPPORTED, PEER_ENABLED, PEER_NOT_ENABLED, TOO_MANY_PEERS, NOT_SUPPORTED = 217, 704, 705, 711, 801
JIT_MISSING = {
    218: "the driver refused the PTX",
    221: "the PTX compiler library (libnvidia-ptxjitcompiler.so.1) is not installed here",
    222: "the driver is too old for the PTX",
}
ATTR_SM_COUNT, ATTR_BUS, ATTR_DEVICE, ATTR_DOMAIN, ATTR_MAJOR, ATTR_MINOR = 16, 33, 34, 50, 75, 76
P2P_RANK, P2P_ATOMICS = 1, 3

# What cuInit and the first calls can answer, in words. Everything else is shown by name and number.
INIT_HELP = {
    3: "CUDA could not be initialised: on kernels with HMM active nvidia-uvm can refuse, or /dev/nvidia-uvm is not usable here",
    100: "the driver sees no GPU here: device nodes missing or not permitted, or all GPUs hidden by CUDA_VISIBLE_DEVICES",
    101: "a GPU was named that does not exist",
    46: "a GPU is held exclusively by another process or is in prohibited compute mode",
    802: "the system is not ready: GPUs with NVSwitch need nvidia-fabricmanager running, of the driver's version",
    803: "the user-space driver (libcuda) and the kernel module have different versions",
    804: "this libcuda is a forward-compatibility build that does not support this GPU",
    999: "the driver gave no reason: often /dev/nvidia-uvm is missing or stale, or a GPU fell off the bus; see the kernel log",
}

PTX = """
.version 7.0
.target sm_70
.address_size 64

// Dependent loads: each offset comes from the one before. The mask keeps whatever was read inside the buffer: wrong data must end in a
// wrong last offset, out[0], not in a fault that costs the context.
.visible .entry gpunode_chase(.param .u64 p_base, .param .u64 p_out, .param .u64 p_mask, .param .u32 p_hops)
{
  .reg .u64 %base, %at, %off, %out, %mask; .reg .u32 %i, %n; .reg .pred %more;
  ld.param.u64 %base, [p_base]; ld.param.u64 %out, [p_out]; ld.param.u64 %mask, [p_mask]; ld.param.u32 %n, [p_hops];
  mov.u32 %i, 0; mov.u64 %off, 0;
NEXT:
  and.b64 %off, %off, %mask; add.u64 %at, %base, %off;
  ld.volatile.global.u64 %off, [%at];
  add.u32 %i, %i, 1; setp.lt.u32 %more, %i, %n; @%more bra NEXT;
  st.global.u64 [%out], %off;
  ret;
}

// Copy `p_n` vectors of 16 bytes with all threads; eight loads in flight a thread.
.visible .entry gpunode_copy(.param .u64 p_dst, .param .u64 p_src, .param .u64 p_n)
{
  .reg .u64 %d, %s, %n, %i, %step, %step8, %last, %a, %b, %off, %stepb; .reg .u32 %t, %c, %k; .reg .pred %p;
  .reg .b32 %x<32>;
  ld.param.u64 %d, [p_dst]; ld.param.u64 %s, [p_src]; ld.param.u64 %n, [p_n];
  mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %k, %ntid.x;
  mad.lo.u32 %t, %c, %k, %t; cvt.u64.u32 %i, %t;
  mov.u32 %c, %nctaid.x; mul.lo.u32 %k, %c, %k; cvt.u64.u32 %step, %k;
  shl.b64 %step8, %step, 3; shl.b64 %stepb, %step, 4;
  sub.u64 %last, %step8, %step;
WIDE:
  add.u64 %off, %i, %last; setp.ge.u64 %p, %off, %n; @%p bra TAIL;
  shl.b64 %off, %i, 4; add.u64 %a, %s, %off; add.u64 %b, %d, %off;
  ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%a]; add.u64 %a, %a, %stepb;
  ld.global.v4.b32 {%x4, %x5, %x6, %x7}, [%a]; add.u64 %a, %a, %stepb;
  ld.global.v4.b32 {%x8, %x9, %x10, %x11}, [%a]; add.u64 %a, %a, %stepb;
  ld.global.v4.b32 {%x12, %x13, %x14, %x15}, [%a]; add.u64 %a, %a, %stepb;
  ld.global.v4.b32 {%x16, %x17, %x18, %x19}, [%a]; add.u64 %a, %a, %stepb;
  ld.global.v4.b32 {%x20, %x21, %x22, %x23}, [%a]; add.u64 %a, %a, %stepb;
  ld.global.v4.b32 {%x24, %x25, %x26, %x27}, [%a]; add.u64 %a, %a, %stepb;
  ld.global.v4.b32 {%x28, %x29, %x30, %x31}, [%a];
  st.global.v4.b32 [%b], {%x0, %x1, %x2, %x3}; add.u64 %b, %b, %stepb;
  st.global.v4.b32 [%b], {%x4, %x5, %x6, %x7}; add.u64 %b, %b, %stepb;
  st.global.v4.b32 [%b], {%x8, %x9, %x10, %x11}; add.u64 %b, %b, %stepb;
  st.global.v4.b32 [%b], {%x12, %x13, %x14, %x15}; add.u64 %b, %b, %stepb;
  st.global.v4.b32 [%b], {%x16, %x17, %x18, %x19}; add.u64 %b, %b, %stepb;
  st.global.v4.b32 [%b], {%x20, %x21, %x22, %x23}; add.u64 %b, %b, %stepb;
  st.global.v4.b32 [%b], {%x24, %x25, %x26, %x27}; add.u64 %b, %b, %stepb;
  st.global.v4.b32 [%b], {%x28, %x29, %x30, %x31};
  add.u64 %i, %i, %step8; bra WIDE;
TAIL:
  setp.ge.u64 %p, %i, %n; @%p bra DONE;
  shl.b64 %off, %i, 4; add.u64 %a, %s, %off; add.u64 %b, %d, %off;
  ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%a]; st.global.v4.b32 [%b], {%x0, %x1, %x2, %x3};
  add.u64 %i, %i, %step; bra TAIL;
DONE:
  ret;
}

// One block. Each round: every thread writes salt ^ (round << 32 | thread) into the peer's data, then thread 0 raises the peer's flag
// and waits for the acknowledgement that the consumer writes into our memory. out = {rounds, start ns, end ns}.
.visible .entry gpunode_producer(.param .u64 p_data, .param .u64 p_flag, .param .u64 p_ack, .param .u64 p_out,
                                 .param .u64 p_salt, .param .u32 p_rounds, .param .u64 p_wait)
{
  .reg .u64 %data, %flag, %ack, %out, %salt, %wait, %v, %w, %t0, %t1, %begin, %at;
  .reg .u32 %r, %n, %t, %got; .reg .pred %p, %first, %late;
  ld.param.u64 %data, [p_data]; ld.param.u64 %flag, [p_flag]; ld.param.u64 %ack, [p_ack]; ld.param.u64 %out, [p_out];
  ld.param.u64 %salt, [p_salt]; ld.param.u32 %n, [p_rounds]; ld.param.u64 %wait, [p_wait];
  mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0;
  cvt.u64.u32 %w, %t; shl.b64 %at, %w, 3; add.u64 %at, %data, %at;
  mov.u64 %begin, %globaltimer; mov.u32 %r, 1;
ROUND:
  cvt.u64.u32 %v, %r; shl.b64 %v, %v, 32; or.b64 %v, %v, %w; xor.b64 %v, %v, %salt;
  st.volatile.global.u64 [%at], %v;
  membar.sys; bar.sync 0;
  setp.ne.u32 %late, %t, %t;
  @!%first bra MEET;
  st.volatile.global.u32 [%flag], %r;
  mov.u64 %t0, %globaltimer;
WAIT:
  ld.volatile.global.u32 %got, [%ack]; setp.ge.u32 %p, %got, %r; @%p bra MEET;
  mov.u64 %t1, %globaltimer; sub.u64 %t1, %t1, %t0; setp.gt.u64 %late, %t1, %wait; @%late bra MEET;
  bra WAIT;
MEET:
  bar.red.or.pred %late, 0, %late;
  @%late bra END;
  add.u32 %r, %r, 1; setp.le.u32 %p, %r, %n; @%p bra ROUND;
END:
  @!%first bra QUIT;
  sub.u32 %r, %r, 1; cvt.u64.u32 %v, %r; mov.u64 %t1, %globaltimer;
  st.global.u64 [%out], %v; st.global.u64 [%out+8], %begin; st.global.u64 [%out+16], %t1;
QUIT:
  ret;
}

// The other side: thread 0 waits for the flag in its own memory, all threads prove their word, thread 0 acknowledges in the peer's
// memory. out = {rounds, first round with wrong data or 0}.
.visible .entry gpunode_consumer(.param .u64 p_data, .param .u64 p_flag, .param .u64 p_ack, .param .u64 p_out,
                                 .param .u64 p_salt, .param .u32 p_rounds, .param .u64 p_wait)
{
  .reg .u64 %data, %flag, %ack, %out, %salt, %wait, %v, %w, %t0, %t1, %at, %seen;
  .reg .u32 %r, %n, %t, %got, %bad; .reg .pred %p, %first, %late, %wrong;
  ld.param.u64 %data, [p_data]; ld.param.u64 %flag, [p_flag]; ld.param.u64 %ack, [p_ack]; ld.param.u64 %out, [p_out];
  ld.param.u64 %salt, [p_salt]; ld.param.u32 %n, [p_rounds]; ld.param.u64 %wait, [p_wait];
  mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0; mov.u32 %bad, 0;
  cvt.u64.u32 %w, %t; shl.b64 %at, %w, 3; add.u64 %at, %data, %at;
  mov.u32 %r, 1;
ROUND:
  setp.ne.u32 %late, %t, %t;
  @!%first bra MEET;
  mov.u64 %t0, %globaltimer;
WAIT:
  ld.volatile.global.u32 %got, [%flag]; setp.ge.u32 %p, %got, %r; @%p bra MEET;
  mov.u64 %t1, %globaltimer; sub.u64 %t1, %t1, %t0; setp.gt.u64 %late, %t1, %wait; @%late bra MEET;
  bra WAIT;
MEET:
  bar.red.or.pred %late, 0, %late;
  @%late bra END;
  membar.sys;
  ld.volatile.global.u64 %seen, [%at];
  cvt.u64.u32 %v, %r; shl.b64 %v, %v, 32; or.b64 %v, %v, %w; xor.b64 %v, %v, %salt;
  setp.ne.u64 %wrong, %seen, %v;
  bar.red.or.pred %wrong, 0, %wrong;
  setp.eq.and.u32 %wrong, %bad, 0, %wrong;
  @%wrong mov.u32 %bad, %r;
  @!%first bra AHEAD;
  membar.sys;
  st.volatile.global.u32 [%ack], %r;
AHEAD:
  add.u32 %r, %r, 1; setp.le.u32 %p, %r, %n; @%p bra ROUND;
END:
  @!%first bra QUIT;
  sub.u32 %r, %r, 1; cvt.u64.u32 %v, %r; st.global.u64 [%out], %v;
  cvt.u64.u32 %v, %bad; st.global.u64 [%out+8], %v;
QUIT:
  ret;
}
"""


class Lines:
    """Events as JSON lines on a file descriptor; whole lines from any thread."""

    def __init__(self, fd: int = 1) -> None:
        self.fd = fd
        self.lock = threading.Lock()

    def emit(self, event: str, **data: Any) -> None:
        line = json.dumps({"event": event, **data}, separators=(",", ":")).encode() + b"\n"
        with self.lock:
            while line:
                line = line[os.write(self.fd, line) :]


class CudaError(Exception):
    """A driver call that did not return CUDA_SUCCESS."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call, self.code, self.name = call, code, name


class Unusable(Exception):  # noqa: N818 - a state of a GPU, not a mistake
    """A GPU that this process cannot or must not use. ``status`` is what its pairs become."""

    def __init__(self, status: str, reason: str, error: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.error = status, reason, error


_U64, _U32, _PTR, _INT, _SIZE = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_U32,),
    "cuDriverGetVersion": (_PTR,),
    "cuGetErrorName": (_INT, _PTR),
    "cuDeviceGetCount": (_PTR,),
    "cuDeviceGet": (_PTR, _INT),
    "cuDeviceGetName": (_PTR, _INT, _INT),
    "cuDeviceGetUuid_v2": (_PTR, _INT),
    "cuDeviceTotalMem_v2": (_PTR, _INT),
    "cuDeviceGetAttribute": (_PTR, _INT, _INT),
    "cuDeviceCanAccessPeer": (_PTR, _INT, _INT),
    "cuDeviceGetP2PAttribute": (_PTR, _INT, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_PTR, _INT),
    "cuCtxSetCurrent": (_PTR,),
    "cuCtxEnablePeerAccess": (_PTR, _U32),
    "cuCtxDisablePeerAccess": (_PTR,),
    "cuMemGetInfo_v2": (_PTR, _PTR),
    "cuMemAlloc_v2": (_PTR, _SIZE),
    "cuMemHostRegister_v2": (_PTR, _SIZE, _U32),
    "cuMemHostGetDevicePointer_v2": (_PTR, _PTR, _U32),
    "cuMemcpyHtoDAsync_v2": (_U64, _PTR, _SIZE, _PTR),
    "cuMemcpyDtoHAsync_v2": (_PTR, _U64, _SIZE, _PTR),
    "cuMemcpyPeerAsync": (_U64, _PTR, _U64, _PTR, _SIZE, _PTR),
    "cuMemsetD8Async": (_U64, ctypes.c_ubyte, _SIZE, _PTR),
    "cuStreamCreate": (_PTR, _U32),
    "cuStreamSynchronize": (_PTR,),
    "cuStreamWaitEvent": (_PTR, _PTR, _U32),
    "cuStreamWaitValue32_v2": (_PTR, _U64, _U32, _U32),
    "cuEventCreate": (_PTR, _U32),
    "cuEventRecord": (_PTR, _PTR),
    "cuEventElapsedTime": (_PTR, _PTR, _PTR),
    "cuModuleLoadData": (_PTR, ctypes.c_char_p),
    "cuModuleGetFunction": (_PTR, _PTR, ctypes.c_char_p),
    "cuLaunchKernel": (_PTR, _U32, _U32, _U32, _U32, _U32, _U32, _U32, _PTR, _PTR, _PTR),
}


class Cuda:
    """The driver API, each call checked. ``missing`` holds the symbols that this libcuda lacks."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.missing: set[str] = set()
        for name, types in _SIGNATURES.items():
            try:
                function = getattr(self.lib, name)
            except AttributeError:
                self.missing.add(name)
                continue
            function.argtypes, function.restype = types, _INT

    def name_of(self, code: int) -> str:
        text = ctypes.c_char_p()
        if "cuGetErrorName" in self.missing or self.lib.cuGetErrorName(code, ctypes.byref(text)) or not text.value:
            return "unknown error"
        return text.value.decode("ascii", "replace")

    def __call__(self, name: str, *args: Any) -> None:
        if name in self.missing:
            raise CudaError(name, NOT_SUPPORTED, "not in this libcuda")
        code = getattr(self.lib, name)(*args)
        if code:
            raise CudaError(name, code, self.name_of(code))

    def get(self, kind: Any, name: str, *args: Any) -> Any:
        """Call a function whose first parameter receives a value of ctypes type ``kind``, and return that value."""
        value = kind()
        self(name, ctypes.byref(value), *args)
        return value.value

    def attribute(self, attribute: int, device: int) -> int:
        return int(self.get(_INT, "cuDeviceGetAttribute", attribute, device))


def error_dict(error: CudaError, step: str) -> dict[str, Any]:
    return {"call": error.call, "code": error.code, "name": error.name, "step": step}


def read_text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib would cost 10 ms at the start
            return file.read().strip()
    except OSError:
        return None


def link_chain(bus_id: str) -> list[dict[str, Any]]:
    """Each PCIe function from the GPU up to its root port with current and maximum link speed (GT/s) and width, as sysfs says now."""
    real = os.path.realpath("/sys/bus/pci/devices/" + bus_id)
    chain = []
    for part in reversed(real.split("/")):
        if part.count(":") != 2 or "." not in part:
            continue
        base = "/sys/bus/pci/devices/" + part + "/"
        row: dict[str, Any] = {"bus_id": part}
        for key in ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width"):
            words = (read_text(base + key) or "").split()
            try:
                row[key] = float(words[0]) if key.endswith("speed") else int(words[0])
            except (IndexError, ValueError):
                row[key] = None
        if any(value is not None for key, value in row.items() if key != "bus_id"):  # nothing to read: nothing to report
            chain.append(row)
    return chain


def link_limit_gbps(chain: Iterable[dict[str, Any]]) -> float | None:
    """What the narrowest link of the chain can carry one way at best, GB/s; None when sysfs did not say."""
    limits = []
    for row in chain:
        speed, width = row["max_link_speed"], row["max_link_width"]
        if speed and width and width < 255:
            coding = 0.8 if speed < 8 else 128 / 130
            limits.append(speed * width * coding / 8)
    return round(min(limits), 2) if limits else None


class Nvml:
    """Free memory without a context, where NVML is to be had. Made in a thread: it opens the GPUs while CUDA does."""

    class Memory(ctypes.Structure):
        _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))

    def __init__(self) -> None:
        """Raises OSError where the library is missing or does not start."""
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        status = self.lib.nvmlInit_v2()
        if status:
            raise OSError(f"nvmlInit_v2 answered {status}")

    def free(self, bus_id: str) -> int | None:
        """Free bytes, or None where NVML does not say."""
        handle, memory = _PTR(), self.Memory()
        if self.lib.nvmlDeviceGetHandleByPciBusId_v2(bus_id.encode(), ctypes.byref(handle)) or (
            self.lib.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        ):
            return None
        return int(memory.free)


class HostMemory:
    """Host buffers: the table of patterns, what comes back, and the gate that holds streams until all is enqueued.

    Pair number k expects ``table[shift(k) : shift(k) + n]``: random bytes at a shift of its own, so that what arrived tells source,
    destination and offset apart, and costs nothing to make.
    """

    STEP = 4160  # no multiple of a page or of a link's packet

    def __init__(self, check: int, pairs: int) -> None:
        self.check = check
        size = check + self.STEP * (pairs + 1)
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.table = mmap.mmap(-1, size, private)
        self.back = mmap.mmap(-1, check, private)
        self.gate = mmap.mmap(-1, mmap.PAGESIZE, private)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            for region in (self.table, self.back):
                region.madvise(mmap.MADV_HUGEPAGE)
        self.table.write(hashlib.shake_128(os.urandom(16)).digest(size))
        self.back.write(bytes(check))
        self.libc = ctypes.CDLL(None)
        self.libc.memcmp.argtypes = (_PTR, _PTR, _SIZE)
        order = list(range(1, CHASE // CHASE_STRIDE))
        random.Random(1).shuffle(order)  # noqa: S311 - an order, no secret
        self.chase_path = [0, *(CHASE_STRIDE * cell for cell in order)]  # one cycle in random order, which begins at 0
        self.chase_cells = array.array("Q", bytes(CHASE))
        for offset, following in zip(self.chase_path, self.chase_path[1:] + self.chase_path[:1]):
            self.chase_cells[offset // 8] = following
        self.gate_value = 0
        self.gate_address = 0
        self.lock = threading.Lock()

    @staticmethod
    def address(region: mmap.mmap) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(region))

    def register(self, cuda: Cuda) -> None:
        """Pin the buffers for all contexts, once, from the first context that stands."""
        with self.lock:
            if self.gate_address:
                return
            for region in (self.table, self.back, self.gate):
                cuda("cuMemHostRegister_v2", self.address(region), len(region), 3)  # portable and mapped
            self.gate_address = cuda.get(_U64, "cuMemHostGetDevicePointer_v2", self.address(self.gate), 0)

    def pattern(self, key: int) -> int:
        """Address of the pattern of pair number ``key``."""
        return self.address(self.table) + self.STEP * (key + 1)

    def verdict(self, key: int, size: int, at: int = 0) -> str:
        """What ``back`` holds, compared with pattern ``key`` from offset ``at``: ok, unchanged, zeros, or where it differs."""
        got, want = self.address(self.back), self.pattern(key) + at
        if self.libc.memcmp(got, want, size) == 0:
            return "ok"
        data = self.back[:size]
        if data.count(bytes([PREFILL])) == size:
            return "unchanged"
        if data.count(0) == size:
            return "zeros"
        block = 4096
        bad = [o for o in range(0, size, block) if self.libc.memcmp(got + o, want + o, min(block, size - o))]
        return f"differs in {len(bad)} of {-(-size // block)} blocks of 4 KiB, first at offset {bad[0]}"

    def close_gate(self) -> int:
        self.gate_value += 1
        return self.gate_value

    def open_gate(self) -> None:
        self.gate[0:4] = self.gate_value.to_bytes(4, "little")


class Gpu:
    """One GPU: its identity, and once ``setup`` is done its context, buffers, streams and kernels."""

    def __init__(self, cuda: Cuda, ordinal: int) -> None:
        self.cuda, self.ordinal = cuda, ordinal
        self.device = cuda.get(_INT, "cuDeviceGet", ordinal)
        name = ctypes.create_string_buffer(256)
        cuda("cuDeviceGetName", name, 256, self.device)
        self.name = name.value.decode("utf-8", "replace")
        domain, bus, slot = (cuda.attribute(a, self.device) for a in (ATTR_DOMAIN, ATTR_BUS, ATTR_DEVICE))
        self.bus_id = f"{domain:04x}:{bus:02x}:{slot:02x}.0"
        raw = (ctypes.c_ubyte * 16)()
        cuda("cuDeviceGetUuid_v2", raw, self.device)
        digits = bytes(raw).hex()
        self.mig = " MIG " in self.name
        prefix = "MIG" if self.mig else "GPU"
        self.uuid = f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        self.memory = int(cuda.get(_SIZE, "cuDeviceTotalMem_v2", self.device))
        self.sms = cuda.attribute(ATTR_SM_COUNT, self.device)
        self.compute = f"{cuda.attribute(ATTR_MAJOR, self.device)}.{cuda.attribute(ATTR_MINOR, self.device)}"
        self.chain = link_chain(self.bus_id)
        self.limit = link_limit_gbps(self.chain)
        self.index = ordinal  # the number in results: it stays when a GPU before this one disappears
        self.no_kernels = ""  # why kernels cannot run here
        self.loaded = False  # the link was read under load
        self.kernels: dict[str, Any] = {}

    def identity(self) -> dict[str, Any]:
        numa = read_text(f"/sys/bus/pci/devices/{self.bus_id}/numa_node")
        return {
            "index": self.index,
            "bus_id": self.bus_id,
            "uuid": self.uuid,
            "name": self.name,
            "memory_mib": self.memory // MIB,
            "compute": self.compute,
            "mig": self.mig,
            "numa_node": int(numa) if numa and numa.lstrip("-").isdigit() else None,
            "pcie_limit_gbps": self.limit,
        }

    def current(self) -> None:
        self.cuda("cuCtxSetCurrent", self.context)

    def setup(self, host: HostMemory, light: bool | str, free_before: int | None) -> dict[str, Any]:
        """Make context, buffers, streams, kernels. Runs in a thread of its own. Raises Unusable."""
        began = time.monotonic()
        cuda = self.cuda
        if light and free_before is not None and free_before < BUSY_MIN_FREE:
            raise Unusable("skipped", f"GPU{self.index} has {free_before // MIB} MiB free; measuring needs {BUSY_MIN_FREE // MIB} MiB")
        try:
            self.context = cuda.get(_PTR, "cuDevicePrimaryCtxRetain", self.device)
            self.current()
            free, total = _SIZE(), _SIZE()
            cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            self.light = light is True or (light == "auto" and total.value - free.value > BUSY_USED)
            room = free.value - RESERVE - CHASE - SCRATCH
            self.size = min(LIGHT_BUFFER if self.light else BUFFER, room // 3 // (2 * MIB) * 2 * MIB)
            if self.size < LIGHT_BUFFER:
                raise Unusable("skipped", f"GPU{self.index} is out of memory: {free.value // MIB} MiB free beside the context")
            self.send, self.recv, self.chase, self.scratch = (
                cuda.get(_U64, "cuMemAlloc_v2", size) for size in (self.size, self.size, CHASE, SCRATCH)
            )
            host.register(cuda)
            self.stream = cuda.get(_PTR, "cuStreamCreate", 1)  # not ordered with the default stream
            self.more_streams: list[Any] = []
            self.events = [cuda.get(_PTR, "cuEventCreate", 0) for _ in range(2)]
            self.waits = cuda.get(_PTR, "cuEventCreate", 2)  # for order only, without a time
            self.load_kernels()
            self.lay_chase(host)
        except CudaError as error:
            if error.code == OUT_OF_MEMORY:
                reason = f"GPU{self.index} is out of memory ({error.call})"
                raise Unusable("skipped", reason, error_dict(error, "context")) from error
            reason = f"GPU{self.index} cannot be used: {error}"
            if error.code in INIT_HELP:
                reason += f"; {INIT_HELP[error.code]}"
            raise Unusable("error", reason, error_dict(error, "context")) from error
        return {
            "gpu": self.index,
            "free_mib": free.value // MIB,
            "total_mib": total.value // MIB,
            "buffer_mib": self.size // MIB,
            "light": self.light,
            "no_kernels": self.no_kernels,
            "setup_ms": round((time.monotonic() - began) * 1000),
        }

    def load_kernels(self) -> None:
        try:
            module = self.cuda.get(_PTR, "cuModuleLoadData", PTX.encode() + b"\0")
        except CudaError as error:
            if error.code not in JIT_MISSING:
                raise
            self.no_kernels = f"{JIT_MISSING[error.code]}: {error.name} ({error.code})"
            return
        for name in ("chase", "copy", "producer", "consumer"):
            self.kernels[name] = self.cuda.get(_PTR, "cuModuleGetFunction", module, b"gpunode_" + name.encode())

    def lay_chase(self, host: HostMemory) -> None:
        """Write one cycle through the chase buffer in random order."""
        address, _ = host.chase_cells.buffer_info()
        self.cuda("cuMemcpyHtoDAsync_v2", self.chase, address, CHASE, self.stream)
        self.sync()

    def sync(self) -> None:
        self.cuda("cuStreamSynchronize", self.stream)

    def stream_number(self, number: int) -> Any:
        """The main stream, or one of those that concurrent patterns need. The context must be current."""
        while len(self.more_streams) < number:
            self.more_streams.append(self.cuda.get(_PTR, "cuStreamCreate", 1))
        return self.more_streams[number - 1] if number else self.stream

    def launch(self, kernel: str, blocks: int, threads: int, *args: Any) -> None:
        """Launch on the main stream; the context must be current. Arguments are ctypes values in the kernel's order."""
        pointers = (_PTR * len(args))(*(ctypes.cast(ctypes.pointer(arg), _PTR) for arg in args))
        self.cuda("cuLaunchKernel", self.kernels[kernel], blocks, 1, 1, threads, 1, 1, 0, self.stream, pointers, None)


class Bench:
    """Measurements on GPUs that are set up."""

    def __init__(self, cuda: Cuda, host: HostMemory, lines: Lines) -> None:
        self.cuda, self.host, self.lines = cuda, host, lines
        self.connections: dict[frozenset[int], list[tuple[Gpu, Gpu]]] = {}  # oldest first; value: directions enabled
        self.gated = "cuStreamWaitValue32_v2" not in cuda.missing

    # Peer access

    def connect(self, src: Gpu, dst: Gpu) -> None:
        """Let kernels and copies of ``src`` reach ``dst``'s memory, within the limit of eight partners a GPU."""
        key = frozenset((src.ordinal, dst.ordinal))
        directions = self.connections.pop(key, [])
        if not directions:
            for end in (src, dst):
                mine = [other for other in self.connections if end.ordinal in other]
                for other in mine[: max(0, len(mine) - PEERS_MAX + 1)]:
                    self.disconnect(other)
        self.connections[key] = directions
        if (src, dst) in directions:
            return
        src.current()
        try:
            self.cuda("cuCtxEnablePeerAccess", dst.context, 0)
        except CudaError as error:
            if error.code == TOO_MANY_PEERS and len(self.connections) > 1:
                for other in [other for other in self.connections if other != key]:
                    self.disconnect(other)
                self.cuda("cuCtxEnablePeerAccess", dst.context, 0)
            elif error.code != PEER_ENABLED:
                raise
        directions.append((src, dst))

    def disconnect(self, key: frozenset[int]) -> None:
        for src, dst in self.connections.pop(key, []):
            src.current()
            self.cuda("cuCtxDisablePeerAccess", dst.context)

    # Timing

    def timed(self, gpu: Gpu, enqueue: Callable[[], None], gated: bool = True) -> float:
        """Seconds that the work enqueued on ``gpu``'s stream takes, from events around it, held back until all of it is enqueued."""
        gpu.current()
        held = gated and self.hold(gpu)
        try:
            self.cuda("cuEventRecord", gpu.events[0], gpu.stream)
            enqueue()
            gpu.current()
            self.cuda("cuEventRecord", gpu.events[1], gpu.stream)
        finally:
            if held:
                self.host.open_gate()
        gpu.sync()
        return self.seconds(*gpu.events)

    def seconds(self, begin: Any, end: Any) -> float:
        return max(float(self.cuda.get(ctypes.c_float, "cuEventElapsedTime", begin, end)) / 1000, 1e-9)

    def hold(self, gpu: Gpu) -> bool:
        """Close the gate before what follows on this GPU's stream; False where the driver has no such operation."""
        if self.gated:
            value = self.host.close_gate()
            gpu.current()
            try:
                self.cuda("cuStreamWaitValue32_v2", gpu.stream, self.host.gate_address, value, 0)
            except CudaError as error:
                self.host.open_gate()
                if error.code != NOT_SUPPORTED:
                    raise
                self.gated = False
        return self.gated

    def start(self, begin: Any, leader: Gpu, followers: list[tuple[Gpu, Any]]) -> None:
        """Record the start on the leader's stream and let no other stream begin before it.

        A gate before every stream is no common start: a GPU looks at a waiting stream again only when its engine is free, so the
        stream that keeps the time may begin after the others are done.
        """
        leader.current()
        self.cuda("cuEventRecord", begin, leader.stream)
        for gpu, stream in followers:
            gpu.current()
            self.cuda("cuStreamWaitEvent", stream, begin, 0)

    @staticmethod
    def settle(sample: Callable[[], float]) -> float:
        """The median of three consecutive samples that agree, or of the last three when none do."""
        values: list[float] = []
        while len(values) < SAMPLES_MAX:
            values.append(sample())
            last = values[-3:]
            if len(last) == 3 and max(last) - min(last) <= AGREE * statistics.median(last):
                break
        return statistics.median(values[-3:])

    def rate(self, gpu: Gpu, size: int, enqueue: Callable[[int], None], gated: bool = True) -> tuple[float, int, int]:
        """GB/s of ``enqueue(bytes)`` on ``gpu``'s stream, with the bytes a copy and the copies a sample that were right for it."""
        first = min(size, LIGHT_BUFFER)
        self.timed(gpu, lambda: enqueue(first), gated)
        speed = first / self.timed(gpu, lambda: enqueue(first), gated)
        chunk = size if speed > 100e9 else min(size, SLOW_CHUNK if speed > 1e9 else LIGHT_BUFFER)
        copies = max(2, min(16, round(SAMPLE_S * speed / chunk)))

        def sample() -> float:
            def work() -> None:
                for _ in range(copies):
                    enqueue(chunk)

            return chunk * copies / self.timed(gpu, work, gated) / 1e9

        return self.settle(sample), chunk, copies

    def peer_copy(self, src: Gpu, dst: Gpu, size: int, stream: Any = None, to: int = 0, start: int = 0) -> None:
        stream = stream or src.stream
        self.cuda("cuMemcpyPeerAsync", dst.recv + to, dst.context, src.send + start, src.context, size, stream)

    # The parts of a pair

    def prepare(self, src: Gpu, dst: Gpu, key: int, size: int) -> None:
        """Put the pair's pattern into src's send buffer and something else into dst's receive buffer."""
        src.current()
        self.cuda("cuMemcpyHtoDAsync_v2", src.send, self.host.pattern(key), size, src.stream)
        dst.current()
        self.cuda("cuMemsetD8Async", dst.recv, PREFILL, size, dst.stream)
        dst.sync()
        src.current()
        src.sync()

    def arrived(self, gpu: Gpu, at: int, key: int, size: int) -> str:
        """What stands at ``at`` in ``gpu``'s memory, read by that GPU itself through the host."""
        gpu.current()
        self.cuda("cuMemcpyDtoHAsync_v2", self.host.address(self.host.back), at, size, gpu.stream)
        gpu.sync()
        return self.host.verdict(key, size)

    def load_link(self, gpu: Gpu) -> None:
        """Report the PCIe links between this GPU and its root port once, just after they carried a copy."""
        if not gpu.loaded:
            gpu.loaded = True
            chain = link_chain(gpu.bus_id)
            if chain:
                self.lines.emit("link", gpu=gpu.index, bus_id=gpu.bus_id, chain=chain)

    def latency(self, src: Gpu, dst: Gpu) -> tuple[float, bool]:
        """Microseconds a dependent load of src from dst's memory, and whether the walk ended where it must."""
        src.current()
        base, out, mask = _U64(dst.chase), _U64(src.scratch), _U64(CHASE - 8)

        def walk(hops: int) -> float:
            return self.timed(src, lambda: src.launch("chase", 1, 1, base, out, mask, _U32(hops))) / hops * 1e6

        hops = CHASE_HOPS if walk(CHASE_HOPS // 4) < 5 else CHASE_HOPS // 8
        value = self.settle(lambda: walk(hops))
        last = _U64()
        self.cuda("cuMemcpyDtoHAsync_v2", ctypes.addressof(last), src.scratch, 8, src.stream)
        src.sync()
        return value, last.value == self.host.chase_path[hops % len(self.host.chase_path)]

    def kernel_copy(self, gpu: Gpu, to: int, start: int, size: int) -> None:
        gpu.launch("copy", gpu.sms * 4, 256, _U64(to), _U64(start), _U64(size // 16))

    def both_ways(self, src: Gpu, dst: Gpu, chunk: int, copies: int) -> float:
        """GB/s of both directions together, from the common start until the slower one is done."""
        begin, end = src.events

        def sample() -> float:
            held = self.hold(src)
            try:
                self.start(begin, src, [(dst, dst.stream)])
                for _ in range(copies):
                    src.current()
                    self.peer_copy(src, dst, chunk)
                    dst.current()
                    self.peer_copy(dst, src, chunk)
                dst.current()
                self.cuda("cuEventRecord", dst.waits, dst.stream)
                src.current()
                self.cuda("cuStreamWaitEvent", src.stream, dst.waits, 0)
                self.cuda("cuEventRecord", end, src.stream)
            finally:
                if held:
                    self.host.open_gate()
            src.sync()
            return 2 * chunk * copies / self.seconds(begin, end) / 1e9

        sample()
        return self.settle(sample)

    def resident(self, src: Gpu, dst: Gpu, salt: int) -> tuple[bool, str, float | None]:
        """Rounds of data, flag and acknowledgement between two kernels that both stay alive: (ok, what was seen, us a round)."""
        data, flag, ack, result = dst.recv, dst.scratch + 4096, src.scratch + 4096, 8192
        for gpu in (src, dst):
            gpu.current()
            self.cuda("cuMemsetD8Async", gpu.scratch, 0, SCRATCH, gpu.stream)
            gpu.sync()
        common = (_U64(salt), _U32(RESIDENT_ROUNDS), _U64(RESIDENT_WAIT_NS))
        dst.current()
        dst.launch("consumer", 1, 256, _U64(data), _U64(flag), _U64(ack), _U64(dst.scratch + result), *common)
        src.current()
        src.launch("producer", 1, 256, _U64(data), _U64(flag), _U64(ack), _U64(src.scratch + result), *common)
        out: dict[Gpu, Any] = {}
        for gpu in (src, dst):
            gpu.current()
            out[gpu] = (_U64 * 3)()
            self.cuda("cuMemcpyDtoHAsync_v2", ctypes.addressof(out[gpu]), gpu.scratch + result, 24, gpu.stream)
            gpu.sync()
        sent, begin, end = out[src]
        seen, bad, _ = out[dst]
        if bad:
            return False, f"wrong data in round {bad} of {RESIDENT_ROUNDS}", None
        if seen < RESIDENT_ROUNDS:
            return False, f"GPU{dst.index} saw {seen} of {RESIDENT_ROUNDS} rounds, then nothing for {RESIDENT_WAIT_NS // 10**9} s", None
        if sent < RESIDENT_ROUNDS:
            return False, f"GPU{src.index} saw {sent} of {RESIDENT_ROUNDS} acknowledgements, then nothing more", None
        return True, f"{seen} rounds", round((end - begin) / 1000 / RESIDENT_ROUNDS, 3)


def concurrent_patterns(pairs: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """What is copied at once: all pairs (in rounds in which no GPU has more than eight partners), each GPU to all, all to each GPU."""
    gpus = sorted({index for pair in pairs for index in pair})
    place = {index: number for number, index in enumerate(gpus)}
    near = PEERS_MAX // 2 if len(gpus) > PEERS_MAX + 1 else len(gpus)  # distance on the ring; both directions count as one partner

    def distance(pair: tuple[int, int]) -> int:
        steps = abs(place[pair[0]] - place[pair[1]])
        return min(steps, len(gpus) - steps)

    def turn(pair: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        # An engine that copies one after the other goes round: at each moment every GPU receives from another one.
        return (place[pair[1]] - place[pair[0]]) % len(gpus), pair

    rounds: dict[int, list[tuple[int, int]]] = {}
    for pair in sorted(pairs, key=turn):
        rounds.setdefault((distance(pair) - 1) // near, []).append(pair)
    tasks: list[dict[str, Any]] = [
        {"name": "all-to-all" if len(rounds) == 1 else f"all-to-all {number + 1}/{len(rounds)}", "pairs": rounds[number]}
        for number in sorted(rounds)
    ]
    if len(gpus) > 2:
        for index in gpus:
            tasks.append({"name": f"one-to-all from GPU{index}", "pairs": [p for p in pairs if p[0] == index][:PEERS_MAX]})
            tasks.append({"name": f"all-to-one to GPU{index}", "pairs": [p for p in pairs if p[1] == index][:PEERS_MAX]})
    return [task for task in tasks if len(task["pairs"]) > 1]


class Run:
    """One worker's work: the pairs, then the patterns, that the watcher asks for."""

    def __init__(self, options: dict[str, Any], lines: Lines) -> None:
        self.options, self.lines = options, lines
        self.full = options.get("measure") == "full"
        self.pairs: list[tuple[int, int]] = []
        self.patterns: list[dict[str, Any]] = []
        self.gpus: dict[int, Gpu] = {}
        self.ready: dict[int, Future[dict[str, Any]]] = {}
        self.told: set[int] = set()
        self.alone: list[int] = []  # GPUs whose copies from and to the host are still to be measured
        self.bad = {(int(a), int(b)) for a, b in options.get("bad", [])}  # pairs that take no part in patterns

    def start(self) -> bool:
        """Initialise CUDA and report the GPUs; contexts begin in the background. False after a ``fatal`` event."""
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        os.environ["CUDA_CACHE_DISABLE"] = "1"  # leave no file behind
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"  # a kernel loaded at its first launch could wait for the very stream that is held
        light = self.options.get("light", "auto")
        pool = ThreadPoolExecutor(max_workers=18)
        check = LIGHT_BUFFER if light is True else CHECK
        host = pool.submit(HostMemory, check, HOST_KEY + 32)
        nvml = pool.submit(Nvml) if light else None
        self.lines.emit("init", step="cuInit")
        try:
            cuda = Cuda()
        except OSError as error:
            summary = f"the NVIDIA driver's library cannot be loaded: {error}"
            self.lines.emit("fatal", where="libcuda.so.1", code=None, name="", summary=summary)
            return False
        try:
            cuda("cuInit", 0)
            version = cuda.get(_INT, "cuDriverGetVersion")
            count = cuda.get(_INT, "cuDeviceGetCount")
            found = [Gpu(cuda, ordinal) for ordinal in range(count)]
        except CudaError as error:
            help_text = INIT_HELP.get(error.code, "the driver refused")
            summary = f"{error}: {help_text}"
            self.lines.emit("fatal", where=error.call, code=error.code, name=error.name, summary=summary)
            return False
        known = self.options.get("bus_ids")  # from the first worker, when this is a later one
        if known is not None:
            for gpu in found:
                gpu.index = known.index(gpu.bus_id) if gpu.bus_id in known and not gpu.mig else gpu.ordinal
        self.gpus = {gpu.index: gpu for gpu in found}
        self.lines.emit(
            "gpus",
            cuda_version=f"{version // 1000}.{version % 1000 // 10}",
            visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
            gpus=[gpu.identity() for gpu in found],
        )
        if not found:
            self.lines.emit("fatal", where="cuDeviceGetCount", code=NO_DEVICE, name="", summary=INIT_HELP[NO_DEVICE])
            return False
        self.plan()
        used = (
            {*self.alone}
            | {index for pair in self.pairs for index in pair}
            | {i for task in self.patterns for pair in task["pairs"] for i in pair}
        )
        free: dict[str, int | None] = {}
        if nvml:
            try:
                free = {gpu.bus_id: nvml.result(timeout=5).free(gpu.bus_id) for gpu in found}
            except Exception:  # noqa: BLE001 - NVML is a courtesy here; without it the context tells
                free = {}
        self.host_memory = host.result()
        self.bench = Bench(cuda, self.host_memory, self.lines)
        self.ready = {
            index: pool.submit(gpu.setup, self.host_memory, light, free.get(gpu.bus_id))
            for index, gpu in self.gpus.items()
            if index in used
        }
        return True

    def plan(self) -> None:
        """Settle on pairs and patterns: those that were asked for, else all. Pairs of the first GPUs come first: they are ready first."""
        pairs = self.options.get("pairs")
        if pairs is None:
            self.pairs = sorted(((a, b) for a in self.gpus for b in self.gpus if a != b), key=lambda pair: (max(pair), pair))
        else:
            self.pairs = [(int(a), int(b)) for a, b in pairs]
        alone = self.options.get("alone")
        self.alone = list(alone) if alone is not None else sorted({i for pair in self.pairs for i in pair} & set(self.gpus) or self.gpus)
        patterns = self.options.get("patterns")
        self.patterns = patterns if patterns is not None else concurrent_patterns(self.pairs) if self.full else []
        self.lines.emit("plan", pairs=self.pairs, patterns=self.patterns, alone=self.alone)

    def await_gpus(self, indexes: Iterable[int]) -> list[Gpu]:
        """The GPUs once they are set up. Raises Unusable for one that is not there or does not work."""
        gpus = []
        for index in indexes:
            if index not in self.gpus:
                known = self.options.get("bus_ids") or []
                if index < len(known):
                    raise Unusable("error", f"GPU{index} ({known[index]}) is gone: the driver no longer lists it")
                raise Unusable("error", f"there is no GPU{index}: the driver lists {len(self.gpus)}")
            report = self.ready[index].result()
            if index not in self.told:
                self.told.add(index)
                self.lines.emit("context", **report)
            gpus.append(self.gpus[index])
        return gpus

    def host_copies(self, index: int) -> bool:
        """Measure one GPU's copies from and to the host and report them; False when the contexts are lost."""
        self.alone.remove(index)
        self.lines.emit("start", gpu=index)
        result: dict[str, Any] = {"gpu": index}
        alive = True
        try:
            (gpu,) = self.await_gpus((index,))
            self.lines.emit("step", gpu=index, step="host copies", so_far=result)
            bench, host = self.bench, self.host_memory
            size = min(gpu.size, host.check)
            pattern, back = host.pattern(HOST_KEY + index % 32), host.address(host.back)
            host.back[:size] = bytes([PREFILL]) * size
            down = bench.rate(gpu, size, lambda n: self.bench.cuda("cuMemcpyHtoDAsync_v2", gpu.recv, pattern, n, gpu.stream))[0]
            up = bench.rate(gpu, size, lambda n: self.bench.cuda("cuMemcpyDtoHAsync_v2", back, gpu.recv, n, gpu.stream))[0]
            bench.load_link(gpu)
            seen = host.verdict(HOST_KEY + index % 32, size)
            result.update(to_gpu_gbps=round(down, 2), from_gpu_gbps=round(up, 2), data_ok=seen == "ok", limit_gbps=gpu.limit)
            result["status"] = "ok" if seen == "ok" else "corrupt"
            if seen != "ok":
                result["reason"] = f"wrong data after a copy to the GPU and back ({seen})"
        except Unusable as error:
            result.update(status=error.status, reason=str(error), error=error.error)
        except CudaError as error:
            result.update(status="error", reason=f"{error} in a copy between host and GPU{index}", error=error_dict(error, "host copies"))
            alive = error.code == OUT_OF_MEMORY
        self.lines.emit("host", host=result)
        return alive

    def pair(self, a: int, b: int) -> bool:
        """Measure one ordered pair and report it; False when the contexts are lost and another worker must go on."""
        result: dict[str, Any] = {"src": a, "dst": b}
        step = "context"

        def begin(name: str) -> None:
            nonlocal step
            step = name
            self.lines.emit("step", src=a, dst=b, step=name, so_far=result)

        self.lines.emit("start", src=a, dst=b)
        began = time.monotonic()
        alive = True
        try:
            src, dst = self.await_gpus((a, b))
            begin("access")
            result["light"] = src.light or dst.light
            self.measure(src, dst, result, begin)
        except Unusable as error:
            result.update(status=error.status, reason=str(error), error=error.error)
        except CudaError as error:
            result.update(status="error", reason=f"{error} in step {step}", error=error_dict(error, step))
            alive = error.code == OUT_OF_MEMORY
        result["elapsed_ms"] = round((time.monotonic() - began) * 1000, 1)
        if result["status"] != "ok":
            self.bad.add((a, b))
        self.lines.emit("pair", pair=result)
        return alive

    def measure(self, src: Gpu, dst: Gpu, result: dict[str, Any], begin: Callable[[str], None]) -> None:
        cuda, bench = src.cuda, self.bench
        key = src.index * 16 + dst.index if max(src.index, dst.index) < 16 else (src.index * 31 + dst.index) % 256
        size = min(src.size, dst.size)
        check = min(size, self.host_memory.check)
        access = bool(cuda.get(_INT, "cuDeviceCanAccessPeer", src.device, dst.device))
        atomics = bool(cuda.get(_INT, "cuDeviceGetP2PAttribute", P2P_ATOMICS, src.device, dst.device)) if access else False
        if access:
            try:
                bench.connect(src, dst)
            except CudaError as error:
                if error.code != PEER_UNSUPPORTED:
                    raise
                access, result["reason"] = False, f"cuDeviceCanAccessPeer said yes, but enabling access failed: {error}"
        limits = [gpu.limit for gpu in (src, dst) if gpu.limit]
        result.update(can_access=access, native_atomics=atomics, limit_gbps=min(limits) if limits and not atomics else None)

        begin("copy")
        bench.prepare(src, dst, key, check)
        # Without peer access the driver stages through the host and may block while enqueueing: then nothing may hold the stream.
        copy, chunk, copies = bench.rate(src, size, lambda n: bench.peer_copy(src, dst, n), gated=access)
        result["copy_gbps"] = round(copy, 2)
        bench.load_link(src)
        bench.load_link(dst)

        begin("data")
        checks = {"copy": bench.arrived(dst, dst.recv, key, min(check, chunk))}
        result.update(checks=checks, data_ok=checks["copy"] == "ok")
        kernels = access and not src.no_kernels
        if src.no_kernels:
            result["no_kernels"] = src.no_kernels
        if kernels:
            self.with_kernels(src, dst, result, begin, key)
        if self.full and access:
            if kernels:
                begin("sm-read")
                result["sm_read_gbps"] = round(bench.rate(src, size, lambda n: bench.kernel_copy(src, src.recv, dst.send, n))[0], 2)
                begin("sm-write")
                result["sm_write_gbps"] = round(bench.rate(src, size, lambda n: bench.kernel_copy(src, dst.recv, src.send, n))[0], 2)
            self.with_both(src, dst, result, begin, (key, size, chunk, copies))
        result["data_ok"] = all(value == "ok" for value in checks.values())
        wrong = [f"{name}: {seen}" for name, seen in checks.items() if seen != "ok"]
        if wrong:
            result["reason"] = "wrong data at the destination (" + "; ".join(wrong) + ")"
        result["status"] = "corrupt" if wrong else "ok" if access else "no-access"

    def with_kernels(self, src: Gpu, dst: Gpu, result: dict[str, Any], begin: Callable[[str], None], key: int) -> None:
        """Read latency, and the checks that need kernels: what src's kernels read from dst and write into it."""
        bench, checks = self.bench, result["checks"]
        if checks["copy"] == "unchanged":
            # Does src see its own bytes where dst has none? Then the mapping is a mirror, and any test that reads back through src passes.
            src.current()
            bench.kernel_copy(src, src.recv, dst.recv, SMALL_CHECK)
            src.sync()
            if bench.arrived(src, src.recv, key, SMALL_CHECK) == "ok":
                checks["copy"] = "mirrored"
        begin("latency")
        latency, right = bench.latency(src, dst)
        result["read_latency_us"] = round(latency, 3)
        checks["sm_read"] = "ok" if right else "wrong data read"
        begin("sm-write-check")
        bench.prepare(src, dst, key, SMALL_CHECK)
        bench.kernel_copy(src, dst.recv, src.send, SMALL_CHECK)
        src.sync()
        checks["sm_write"] = bench.arrived(dst, dst.recv, key, SMALL_CHECK)

    def with_both(self, src: Gpu, dst: Gpu, result: dict[str, Any], begin: Callable[[str], None], shape: tuple[int, int, int, int]) -> None:
        """What needs both directions (bidirectional copies, resident kernels), and the staged path for comparison."""
        bench, cuda = self.bench, self.bench.cuda
        key, size, chunk, copies = shape
        if cuda.get(_INT, "cuDeviceCanAccessPeer", dst.device, src.device):
            begin("bidirectional")
            bench.connect(dst, src)
            result["bidirectional_gbps"] = round(bench.both_ways(src, dst, chunk, copies), 2)
            if not src.no_kernels and not dst.no_kernels:
                begin("resident")
                salt = int.from_bytes(os.urandom(4), "little") << 24 | key
                fine, seen, round_us = bench.resident(src, dst, salt)
                result.update(resident_ok=fine, resident_detail=seen, resident_round_us=round_us)
                result["checks"]["resident"] = "ok" if fine else seen
        begin("staged")
        bench.disconnect(frozenset((src.ordinal, dst.ordinal)))
        src.current()
        result["staged_gbps"] = round(bench.rate(src, size, lambda n: bench.peer_copy(src, dst, n), gated=False)[0], 2)
        bench.connect(src, dst)

    def pattern(self, task: dict[str, Any]) -> bool:
        """Copy along several pairs at once: GB/s of all together, with the data proved at every destination."""
        name, asked = task["name"], [(int(a), int(b)) for a, b in task["pairs"]]
        pairs = [pair for pair in asked if pair not in self.bad]
        self.lines.emit("start", pattern=name)
        result: dict[str, Any] = {"name": name, "pairs": len(pairs), "left_out": [pair for pair in asked if pair in self.bad]}
        alive = True
        try:
            if len(pairs) < 2:
                raise Unusable("skipped", "fewer than two pairs work")
            involved = {index: self.await_gpus((index,))[0] for pair in pairs for index in pair}
            self.lines.emit("step", pattern=name, step="copy", so_far=result)
            result.update(self.concurrent(involved, pairs))
            result["status"] = "ok" if result["data_ok"] else "corrupt"
        except Unusable as error:
            result.update(status=error.status, reason=str(error), error=error.error)
        except CudaError as error:
            result.update(status="error", reason=f"{error} in {name}", error=error_dict(error, "copy"))
            alive = error.code == OUT_OF_MEMORY
        self.lines.emit("pattern", pattern=result)
        return alive

    def concurrent(self, gpus: dict[int, Gpu], pairs: list[tuple[int, int]]) -> dict[str, Any]:
        bench, cuda, host = self.bench, self.bench.cuda, self.host_memory
        sources: dict[int, list[int]] = {}
        for a, b in pairs:
            sources.setdefault(b, []).append(a)
        size = min(gpu.size for gpu in gpus.values())
        part = size // max(len(s) for s in sources.values()) // MIB * MIB
        piece = min(part, SLOW_CHUNK)
        check = min(piece, SMALL_CHECK)
        for index, gpu in gpus.items():
            bench.prepare(gpu, gpu, index * 17 % 256, check)
        routes = []
        outgoing = dict.fromkeys(gpus, 0)
        for a, b in pairs:
            bench.connect(gpus[a], gpus[b])
            gpus[a].current()
            routes.append((gpus[a], gpus[b], gpus[a].stream_number(outgoing[a]), sources[b].index(a) * part))
            outgoing[a] += 1
        for _, dst, _, to in routes:
            dst.current()
            cuda("cuMemsetD8Async", dst.recv + to, PREFILL, check, dst.stream)
            dst.sync()
        leader = routes[0][0]
        followers = [(src, stream) for src, _, stream, _ in routes[1:]]
        done = []
        for src, _, _, _ in routes:
            src.current()
            done.append(cuda.get(_PTR, "cuEventCreate", 2))
        copies = 2

        def sample() -> float:
            held = bench.hold(leader)
            try:
                bench.start(leader.events[0], leader, followers)
                for _ in range(copies):
                    for src, dst, stream, to in routes:
                        src.current()
                        bench.peer_copy(src, dst, piece, stream, to)
                for (src, _, stream, _), event in zip(routes, done):
                    src.current()
                    cuda("cuEventRecord", event, stream)
                leader.current()
                for event in done:
                    cuda("cuStreamWaitEvent", leader.stream, event, 0)
                cuda("cuEventRecord", leader.events[1], leader.stream)
            finally:
                if held:
                    host.open_gate()
            leader.sync()
            return len(routes) * piece * copies / bench.seconds(*leader.events) / 1e9

        first = sample()
        copies = max(2, min(16, round(SAMPLE_S * 2 * first * 1e9 / (piece * len(routes)))))
        total = bench.settle(sample)
        wrong = [
            {"src": src.index, "dst": dst.index, "found": seen}
            for src, dst, _, to in routes
            if (seen := bench.arrived(dst, dst.recv + to, src.index * 17 % 256, check)) != "ok"
        ]
        return {"total_gbps": round(total, 2), "data_ok": not wrong, "wrong": wrong}

    def work(self) -> int:
        for a, b in self.pairs:
            for index in (a, b):
                if index in self.alone and not self.host_copies(index):
                    return RESTART_EXIT
            if not self.pair(a, b):
                return RESTART_EXIT
        for index in list(self.alone):
            if not self.host_copies(index):
                return RESTART_EXIT
        for task in self.patterns:
            if not self.pattern(task):
                return RESTART_EXIT
        self.lines.emit("finished")
        return 0


def main(options: dict[str, Any], fd: int = 1) -> int:
    """Measure what ``options`` asks for, events as JSON lines on ``fd``; 0 done, 1 nothing could be measured, 75 go on in a new process."""
    run = Run(options, Lines(fd))
    return run.work() if run.start() else 1


if __name__ == "__main__":
    status = main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
    sys.stdout.flush()
    os._exit(status)  # threads in a driver that hangs must not keep the process
