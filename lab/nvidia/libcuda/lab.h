/* The stand-in for libcuda.so.1: what its parts share. A fabric file says which GPUs there are, how they reach each other, and what is
 * broken; bytes really move, in this process's memory, and time passes as the file says. */
#ifndef GPUNODE_LAB_H
#define GPUNODE_LAB_H
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#define MAX_GPUS 16
#define MAX_ALLOCS 256
#define MAX_RECORDS 24
#define PEERS_MAX 8 /* as CUDA: peer connections a device */
#define EXPORT __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

enum {
  OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, DEVICE_UNAVAILABLE = 46, NO_DEVICE = 100, INVALID_DEVICE = 101,
  INVALID_IMAGE = 200, INVALID_CONTEXT = 201, PEER_UNSUPPORTED = 217, JIT_NOT_FOUND = 221, INVALID_HANDLE = 400, NOT_FOUND = 500,
  NOT_READY = 600, ILLEGAL_ADDRESS = 700, PEER_ENABLED = 704, PEER_NOT_ENABLED = 705, TOO_MANY_PEERS = 711, HOST_REGISTERED = 712,
  HOST_NOT_REGISTERED = 713, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801, SYSTEM_NOT_READY = 802, DRIVER_MISMATCH = 803, UNKNOWN = 999
};

enum fault { NONE, CORRUPT, ZEROS, LOST, MIRROR, HANG, STUCK, LATE };
enum after { UNAVAILABLE, INIT_FAILS, ABSENT };

struct link { /* one ordered pair: the first GPU acts, the second one's memory is reached */
  int access, atomics;
  double copy, sm_read, sm_write, both, staged; /* GB/s; both: sum of two directions at once, 0 = no limit */
  double latency;                               /* us of a dependent read */
  enum fault fault;
  double hold; /* seconds for which a stuck process survives SIGKILL */
};

struct gpu {
  char name[128], bus_id[32], uuid[48];
  int domain, bus, slot, numa, minor, sms, major_cc, minor_cc;
  double memory_mib, used_mib;
  long gone_after; /* transfers until it falls off the bus, -1 = never, -2 = it is gone */
  enum after then;
  double port; /* GB/s of its own link to the fabric, each way; shared by what runs at once */
};

struct fabric {
  int loaded, gpus, init_code, cuda_version, nodes_required, jit_missing, no_wait_value;
  int hmm; /* 0 off, 1 on, 2 as /sys/module/nvidia_uvm says */
  double init_ms, context_ms, module_ms, context_mib, host_gbps, local_gbps, socket_gbps, gate_late_ms;
  char state[256]; /* folder in which a GPU that fell off the bus is remembered */
  struct gpu gpu[MAX_GPUS];
  struct link link[MAX_GPUS][MAX_GPUS];
};
extern struct fabric fabric;
CUresult fabric_load(void); /* 0, or what cuInit must answer */
void fabric_lose(int gpu);  /* remember that this GPU is gone */

struct record { /* dst[at, at + size) holds what src (generation) has at from: the same copy again moves nothing */
  struct alloc *src;
  uint64_t generation, from, at, size;
};
struct alloc {
  int gpu;
  uint64_t base, size, high, generation; /* bytes from `high` on were never written and are zero */
  struct record record[MAX_RECORDS];
  unsigned char *mirror[MAX_GPUS]; /* where writes of that GPU end when its mapping is a mirror */
};

struct context {
  int gpu, references, error, peers[MAX_GPUS];
  uint64_t allocated;
  pthread_mutex_t lock;
};
extern struct context contexts[MAX_GPUS];
extern __thread struct context *current;

struct event {
  struct context *context;
  int timed, pending; /* pending: records that have not been reached */
  double time;
};

enum kind { COPY, SET, WAIT_VALUE, RECORD, WAIT_EVENT, KERNEL };
struct op {
  enum kind kind;
  struct op *next;
  double queued;
  uint64_t dst, src, size; /* device or host addresses */
  int dst_gpu, src_gpu;    /* -1 = host */
  void *staging;           /* copy of pageable host memory, freed after use */
  unsigned char value;
  uint32_t wait;
  struct event *event;
  const char *kernel;
  uint64_t arg[8];
};
struct stream {
  struct context *context;
  pthread_t thread;
  pthread_cond_t changed;
  struct op *head, *tail;
  int busy, load_gpu_out, load_gpu_in; /* ops not finished; the route of its copies, counted while any is queued */
  double time;                         /* when the last op ended, on this stream's own clock */
};

double now(void);
void sleep_until(double when);
struct alloc *find_alloc(uint64_t address, uint64_t size);
extern pthread_mutex_t world; /* guards queues, allocations and records; never held while bytes move or time passes */
extern pthread_cond_t world_changed;
extern struct alloc *allocs[MAX_ALLOCS];
struct stream *stream_new(struct context *context);
void stream_push(struct stream *stream, struct op *op);
void stream_wait(struct stream *stream);
CUresult lose_context(int gpu, CUresult error);

/* Bytes, as GPU `actor` (or -1, the host) sees them through its mapping. */
void move_bytes(int actor, struct op *op, int staged);
unsigned char *view(int actor, uint64_t address, uint64_t size, int writing);
void wrote(uint64_t address, uint64_t size);
void corrupt_bytes(unsigned char *data, uint64_t size);
void never_end(struct link *link);
double kernel_run(struct stream *stream, struct op *op, double start);
int kernel_known(const char *name);
double shared_rate(struct stream *stream, int out, int in, double rate);
int count_transfer(int a, int b);
#endif
