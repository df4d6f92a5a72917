/* The driver API's entry points that the probe's worker uses, with the semantics of NVIDIA's documentation, and three of NVML. */
#include "lab.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#define MAX_REGISTERED 64
#define HANDLE_OF(device) ((device) >= 0 && (device) < fabric.gpus)
#define NEED_INIT() if (!fabric.loaded) return NOT_INITIALIZED
#define NEED_DEVICE(device) NEED_INIT(); if (!HANDLE_OF(device)) return INVALID_DEVICE
#define NEED_CONTEXT() NEED_INIT(); if (!current) return INVALID_CONTEXT; if (current->error) return current->error

struct context contexts[MAX_GPUS];
__thread struct context *current;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static struct { uint64_t base, size; } registered[MAX_REGISTERED];

static const struct { int code; const char *name; } names[] = {
  {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"},
  {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"}, {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"},
  {200, "CUDA_ERROR_INVALID_IMAGE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"}, {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
  {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"}, {400, "CUDA_ERROR_INVALID_HANDLE"}, {500, "CUDA_ERROR_NOT_FOUND"},
  {600, "CUDA_ERROR_NOT_READY"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
  {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"}, {711, "CUDA_ERROR_TOO_MANY_PEERS"}, {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
  {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}, {801, "CUDA_ERROR_NOT_SUPPORTED"},
  {802, "CUDA_ERROR_SYSTEM_NOT_READY"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, {999, "CUDA_ERROR_UNKNOWN"},
};

/* Devices */

EXPORT CUresult cuInit(unsigned flags) {
  if (flags) return INVALID_VALUE;
  pthread_mutex_lock(&start_lock);
  CUresult result = fabric.loaded ? OK : fabric_load();
  pthread_mutex_unlock(&start_lock);
  sleep_until(now() + fabric.init_ms / 1000);
  return result;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
  *version = fabric.loaded ? fabric.cuda_version : 13000;
  return OK;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **text) {
  *text = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].code == error) *text = names[i].name;
  return *text ? OK : INVALID_VALUE;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
  NEED_INIT();
  *count = fabric.gpus;
  return OK;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  NEED_DEVICE(ordinal);
  *device = ordinal;
  return OK;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  NEED_DEVICE(device);
  snprintf(name, (size_t)size, "%s (simulated)", fabric.gpu[device].name);
  return OK;
}

EXPORT CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device) {
  NEED_DEVICE(device);
  int n = 0;
  for (const char *p = fabric.gpu[device].uuid + 4; *p && n < 32; p++)
    if (*p != '-') {
      int digit = *p <= '9' ? *p - '0' : (*p | 32) - 'a' + 10;
      uuid[n / 2] = (unsigned char)(n % 2 ? uuid[n / 2] | digit : digit << 4);
      n++;
    }
  return OK;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  NEED_DEVICE(device);
  *bytes = (size_t)(fabric.gpu[device].memory_mib * 1048576);
  return OK;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  NEED_DEVICE(device);
  struct gpu *g = &fabric.gpu[device];
  switch (attribute) {
    case 16: *value = g->sms; return OK;
    case 33: *value = g->bus; return OK;
    case 34: *value = g->slot; return OK;
    case 50: *value = g->domain; return OK;
    case 75: *value = g->major_cc; return OK;
    case 76: *value = g->minor_cc; return OK;
  }
  return INVALID_VALUE;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  NEED_DEVICE(device);
  NEED_DEVICE(peer);
  *can = device != peer && fabric.link[device][peer].access;
  return OK;
}

EXPORT CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice src, CUdevice dst) {
  NEED_DEVICE(src);
  NEED_DEVICE(dst);
  if (src == dst) return INVALID_DEVICE;
  struct link *l = &fabric.link[src][dst];
  if (attribute < 1 || attribute > 4) return INVALID_VALUE;
  *value = attribute == 1 ? 0 : attribute == 3 ? l->atomics : l->access;
  return OK;
}

/* Contexts */

static double free_mib(int gpu) {
  return fabric.gpu[gpu].memory_mib - fabric.gpu[gpu].used_mib - (contexts[gpu].references ? fabric.context_mib : 0) -
         (double)contexts[gpu].allocated / 1048576;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(void **context, CUdevice device) {
  NEED_DEVICE(device);
  struct context *c = &contexts[device];
  pthread_mutex_lock(&start_lock);
  int first = !c->references;
  CUresult result = c->error ? c->error : fabric.gpu[device].gone_after == -2 ? DEVICE_UNAVAILABLE : OK;
  if (!result && first && free_mib(device) < fabric.context_mib) result = OUT_OF_MEMORY;
  if (!result) {
    c->gpu = device;
    c->references++;
    if (first) pthread_mutex_init(&c->lock, NULL);
  }
  pthread_mutex_unlock(&start_lock);
  if (!result && first) sleep_until(now() + fabric.context_ms / 1000);
  *context = c;
  return result;
}

EXPORT CUresult cuCtxSetCurrent(void *context) {
  NEED_INIT();
  current = context;
  return OK;
}

EXPORT CUresult cuCtxEnablePeerAccess(void *peer, unsigned flags) {
  NEED_CONTEXT();
  if (flags) return INVALID_VALUE;
  int a = current->gpu, b = ((struct context *)peer)->gpu;
  if (a == b || !fabric.link[a][b].access) return PEER_UNSUPPORTED;
  CUresult result = OK;
  pthread_mutex_lock(&start_lock);
  if (current->peers[b]) result = PEER_ENABLED;
  else if (!contexts[b].peers[a]) {
    int mine = 0, theirs = 0;
    for (int i = 0; i < fabric.gpus; i++) {
      mine += contexts[a].peers[i] || contexts[i].peers[a];
      theirs += contexts[b].peers[i] || contexts[i].peers[b];
    }
    if (mine >= PEERS_MAX || theirs >= PEERS_MAX) result = TOO_MANY_PEERS;
  }
  if (!result) current->peers[b] = 1;
  pthread_mutex_unlock(&start_lock);
  return result;
}

EXPORT CUresult cuCtxDisablePeerAccess(void *peer) {
  NEED_CONTEXT();
  int b = ((struct context *)peer)->gpu;
  if (!current->peers[b]) return PEER_NOT_ENABLED;
  current->peers[b] = 0;
  return OK;
}

/* Memory */

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  NEED_CONTEXT();
  double left = free_mib(current->gpu);
  *free_bytes = (size_t)((left > 0 ? left : 0) * 1048576);
  *total = (size_t)(fabric.gpu[current->gpu].memory_mib * 1048576);
  return OK;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  NEED_CONTEXT();
  if (!size) return INVALID_VALUE;
  if (free_mib(current->gpu) * 1048576 < (double)size) return OUT_OF_MEMORY;
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return OUT_OF_MEMORY;
  struct alloc *a = calloc(1, sizeof *a);
  a->gpu = current->gpu, a->base = (uint64_t)(uintptr_t)p, a->size = size;
  pthread_mutex_lock(&world);
  int i = 0;
  while (i < MAX_ALLOCS && allocs[i]) i++;
  if (i < MAX_ALLOCS) allocs[i] = a, current->allocated += size;
  pthread_mutex_unlock(&world);
  *address = a->base;
  return i < MAX_ALLOCS ? OK : OUT_OF_MEMORY;
}

static int is_registered(const void *pointer, size_t size) {
  uint64_t at = (uint64_t)(uintptr_t)pointer;
  int found = 0;
  pthread_mutex_lock(&world);
  for (int i = 0; i < MAX_REGISTERED; i++) found |= registered[i].size && at >= registered[i].base && at + size <= registered[i].base + registered[i].size;
  pthread_mutex_unlock(&world);
  return found;
}

EXPORT CUresult cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags) {
  (void)flags;
  NEED_CONTEXT();
  if (is_registered(pointer, 1)) return HOST_REGISTERED;
  pthread_mutex_lock(&world);
  int i = 0;
  while (i < MAX_REGISTERED && registered[i].size) i++;
  if (i < MAX_REGISTERED) registered[i].base = (uint64_t)(uintptr_t)pointer, registered[i].size = size;
  pthread_mutex_unlock(&world);
  return i < MAX_REGISTERED ? OK : OUT_OF_MEMORY;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned flags) {
  NEED_CONTEXT();
  if (flags || !is_registered(pointer, 1)) return INVALID_VALUE;
  *address = (uint64_t)(uintptr_t)pointer;
  return OK;
}

/* Streams and events */

static struct op *op_new(enum kind kind) {
  struct op *op = calloc(1, sizeof *op);
  op->kind = kind, op->dst_gpu = op->src_gpu = -1;
  return op;
}

/* Work is only taken for streams of the current context: stricter than CUDA is with copies, so that the caller is right everywhere. */
#define NEED_STREAM(stream) NEED_CONTEXT(); if (!(stream) || (stream)->context != current) return INVALID_HANDLE

static int owner(CUdeviceptr address, size_t size) {
  pthread_mutex_lock(&world);
  struct alloc *a = find_alloc(address, size);
  int gpu = a ? a->gpu : -1;
  pthread_mutex_unlock(&world);
  return gpu;
}

EXPORT CUresult cuStreamCreate(struct stream **stream, unsigned flags) {
  NEED_CONTEXT();
  if (flags > 1) return INVALID_VALUE;
  *stream = stream_new(current);
  return *stream ? OK : OUT_OF_MEMORY;
}

EXPORT CUresult cuStreamSynchronize(struct stream *stream) {
  NEED_CONTEXT();
  if (!stream) return INVALID_HANDLE; /* the default stream is not played here */
  stream_wait(stream);
  return stream->context->error;
}

EXPORT CUresult cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags) {
  NEED_CONTEXT();
  if (!stream || !event || flags) return INVALID_VALUE;
  struct op *op = op_new(WAIT_EVENT);
  op->event = event;
  stream_push(stream, op);
  return OK;
}

EXPORT CUresult cuStreamWaitValue32_v2(struct stream *stream, CUdeviceptr address, uint32_t value, unsigned flags) {
  NEED_STREAM(stream);
  if (fabric.no_wait_value) return NOT_SUPPORTED;
  if (flags || address % 4 || (!is_registered((void *)(uintptr_t)address, 4) && owner(address, 4) < 0)) return INVALID_VALUE;
  struct op *op = op_new(WAIT_VALUE);
  op->dst = address, op->wait = value;
  stream_push(stream, op);
  return OK;
}

EXPORT CUresult cuEventCreate(struct event **event, unsigned flags) {
  NEED_CONTEXT();
  *event = calloc(1, sizeof **event);
  (*event)->context = current, (*event)->timed = !(flags & 2), (*event)->time = -1;
  return OK;
}

EXPORT CUresult cuEventRecord(struct event *event, struct stream *stream) {
  NEED_STREAM(stream);
  if (!event || event->context != stream->context) return INVALID_HANDLE;
  struct op *op = op_new(RECORD);
  op->event = event;
  stream_push(stream, op);
  return OK;
}

EXPORT CUresult cuEventElapsedTime(float *ms, struct event *start, struct event *end) {
  NEED_INIT();
  if (!start->timed || !end->timed || start->time < 0 || end->time < 0 || start->context != end->context) return INVALID_HANDLE;
  if (start->context->error) return start->context->error;
  if (start->pending || end->pending) return NOT_READY;
  *ms = (float)((end->time - start->time) * 1000);
  return OK;
}

/* Copies */

static CUresult push_copy(CUdeviceptr dst, CUdeviceptr src, size_t size, struct stream *stream, void *staging, int dst_host, int src_host) {
  struct op *op = op_new(COPY);
  op->dst = dst, op->src = src, op->size = size, op->staging = staging;
  op->dst_gpu = dst_host ? -1 : owner(dst, size), op->src_gpu = src_host ? -1 : owner(src, size);
  if (!stream || !size || (op->dst_gpu < 0 && !dst_host) || (op->src_gpu < 0 && !src_host)) {
    free(staging);
    free(op);
    return INVALID_VALUE;
  }
  stream_push(stream, op);
  return OK;
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t size, struct stream *stream) {
  NEED_STREAM(stream);
  void *staging = NULL;
  if (!is_registered(src, size)) src = staging = memcpy(malloc(size), src, size); /* pageable memory is read before the call returns */
  return push_copy(dst, (uint64_t)(uintptr_t)src, size, stream, staging, 0, 1);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t size, struct stream *stream) {
  NEED_STREAM(stream);
  CUresult result = push_copy((uint64_t)(uintptr_t)dst, src, size, stream, NULL, 1, 0);
  if (!result && !is_registered(dst, size)) stream_wait(stream); /* into pageable memory it is not asynchronous */
  return result ? result : current->error;
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dst, void *dst_context, CUdeviceptr src, void *src_context, size_t size, struct stream *stream) {
  NEED_STREAM(stream);
  if (owner(dst, size) != ((struct context *)dst_context)->gpu || owner(src, size) != ((struct context *)src_context)->gpu) return INVALID_VALUE;
  return push_copy(dst, src, size, stream, NULL, 0, 0);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t size, struct stream *stream) {
  NEED_STREAM(stream);
  if (owner(dst, size) != current->gpu) return INVALID_VALUE;
  struct op *op = op_new(SET);
  op->dst = dst, op->size = size, op->value = value;
  stream_push(stream, op);
  return OK;
}

/* Kernels */

struct function { const char *name; };

EXPORT CUresult cuModuleLoadData(void **module, const char *image) {
  NEED_CONTEXT();
  if (!strstr(image, ".version") || !strstr(image, ".target")) return INVALID_IMAGE;
  if (fabric.jit_missing) return JIT_NOT_FOUND;
  sleep_until(now() + fabric.module_ms / 1000);
  *module = strdup(image);
  return OK;
}

EXPORT CUresult cuModuleGetFunction(struct function **function, const char *module, const char *name) {
  NEED_CONTEXT();
  char entry[128];
  snprintf(entry, sizeof entry, ".entry %s(", name);
  if (!strstr(module, entry) || !kernel_known(name)) return NOT_FOUND;
  *function = malloc(sizeof **function);
  (*function)->name = strdup(name);
  return OK;
}

EXPORT CUresult cuLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                               struct stream *stream, void **parameters, void **extra) {
  NEED_STREAM(stream);
  if (!f || !parameters || extra || shared || !gx || !gy || !gz || !bx || bx * by * bz > 1024) return INVALID_VALUE;
  static const char *const sizes[] = {"", "8884", "888", "8888848", "8888848"};
  const char *size = sizes[kernel_known(f->name)];
  struct op *op = op_new(KERNEL);
  op->kernel = f->name;
  for (int i = 0; size[i]; i++) memcpy(&op->arg[i], parameters[i], (size_t)(size[i] - '0'));
  if (kernel_known(f->name) == 2) op->dst_gpu = owner(op->arg[0], op->arg[2] * 16), op->src_gpu = owner(op->arg[1], op->arg[2] * 16);
  stream_push(stream, op);
  return OK;
}

/* NVML: free memory without a context. Its library's name is a link to this one. */

EXPORT int nvmlInit_v2(void) {
  pthread_mutex_lock(&start_lock);
  CUresult result = fabric.loaded ? OK : fabric_load();
  pthread_mutex_unlock(&start_lock);
  return result ? 9 : 0; /* NVML_ERROR_DRIVER_NOT_LOADED */
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **handle) {
  for (int i = 0; i < fabric.gpus; i++)
    if (!strcasecmp(fabric.gpu[i].bus_id, bus_id)) return *handle = &fabric.gpu[i], fabric.gpu[i].gone_after == -2 ? 15 : 0;
  return 6; /* NVML_ERROR_NOT_FOUND */
}

EXPORT int nvmlDeviceGetMemoryInfo(struct gpu *gpu, unsigned long long memory[3]) {
  double left = free_mib((int)(gpu - fabric.gpu));
  memory[0] = (unsigned long long)(gpu->memory_mib * 1048576);
  memory[1] = (unsigned long long)((left > 0 ? left : 0) * 1048576);
  memory[2] = memory[0] - memory[1];
  return 0;
}
