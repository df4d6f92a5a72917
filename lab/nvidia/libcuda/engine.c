/* Streams: each a thread that works through its queue. Bytes move for real; how long a copy takes is computed from the fabric and kept on
 * the stream's own clock, which a busy machine does not disturb, while the thread sleeps until then. */
#include "lab.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_STREAMS 512
#define OP_OVERHEAD 3e-6 /* s between copies of one stream */

pthread_mutex_t world = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t world_changed = PTHREAD_COND_INITIALIZER;
struct alloc *allocs[MAX_ALLOCS];
static struct stream *streams[MAX_STREAMS];
static int stream_count;

double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sleep_until(double when) {
  struct timespec t = {(time_t)when, (long)((when - (double)(time_t)when) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) {}
}

struct alloc *find_alloc(uint64_t address, uint64_t size) {
  for (int i = 0; i < MAX_ALLOCS; i++) {
    struct alloc *a = allocs[i];
    if (a && address >= a->base && address + size <= a->base + a->size) return a;
  }
  return NULL;
}

/* A worker that hangs for good: the copy's thread sleeps for ever. */
static void sleep_for_ever(void) {
  for (;;) pause();
}

/* Keep this process from dying when it is killed, as a driver that does not return keeps it: a helper traces every thread and stops it
 * on its way out, until `hold` seconds are over or somebody ends the helper. The state is a real one; only its cause is not a GPU. */
static void survive_kill(double hold) {
  pid_t worker = getpid();
  if (fork()) {
    usleep(100000);
    return;
  }
  setsid();
  prctl(PR_SET_NAME, "lab-holds-worker");
  for (int fd = 0; fd < 1024; fd++) close(fd);
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", worker);
  DIR *dir = opendir(path);
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    if (atoi(entry->d_name) > 0) ptrace(PTRACE_SEIZE, atoi(entry->d_name), 0, PTRACE_O_TRACEEXIT);
  sleep_until(now() + hold);
  _exit(0);
}

void never_end(struct link *link) {
  if (link->fault == STUCK) survive_kill(link->hold);
  sleep_for_ever();
}

unsigned char *view(int actor, uint64_t address, uint64_t size, int writing) {
  pthread_mutex_lock(&world);
  struct alloc *a = find_alloc(address, size);
  unsigned char *real = (unsigned char *)(uintptr_t)address;
  if (a && actor >= 0 && actor != a->gpu) {
    enum fault fault = fabric.link[actor][a->gpu].fault;
    if (fault == MIRROR || (fault == LOST && writing)) {
      if (!a->mirror[actor]) {
        void *p = mmap(NULL, a->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        a->mirror[actor] = p == MAP_FAILED ? NULL : p;
      }
      real = a->mirror[actor] + (address - a->base);
    }
  }
  pthread_mutex_unlock(&world);
  return real;
}

/* After a write: raise the mark of what may differ from zero, and forget records of what stood there. Takes `world`. */
void wrote(uint64_t address, uint64_t size) {
  pthread_mutex_lock(&world);
  struct alloc *a = find_alloc(address, size);
  if (a) {
    uint64_t at = address - a->base;
    a->generation++;
    if (at + size > a->high) a->high = at + size;
    for (int i = 0; i < MAX_RECORDS; i++) {
      struct record *r = &a->record[i];
      if (r->src && at < r->at + r->size && r->at < at + size) r->src = NULL;
    }
  }
  pthread_mutex_unlock(&world);
}

void corrupt_bytes(unsigned char *data, uint64_t size) {
  for (uint64_t i = size / 3; i < size; i += 1 << 20) data[i] ^= 0x40;
}

/* Move a copy's bytes unless they are known to be there already: a benchmark repeats the same copy, and this machine's memory is slower
 * than the links it plays. */
void move_bytes(int actor, struct op *op, int staged) {
  uint64_t size = op->size, from = 0, at = 0, generation = 0;
  if (staged) actor = -1;
  pthread_mutex_lock(&world);
  struct alloc *s = find_alloc(op->src, size), *d = find_alloc(op->dst, size);
  struct link *link = actor >= 0 && op->dst_gpu >= 0 && op->src_gpu >= 0 ? &fabric.link[op->src_gpu][op->dst_gpu] : NULL;
  if (s && d && s->gpu == d->gpu) link = NULL;
  int here = !link || link->fault == NONE || link->fault == LATE;
  int known = 0;
  if (s && d) {
    from = op->src - s->base, at = op->dst - d->base, generation = s->generation;
    uint64_t live = s->high > from ? s->high - from : 0, old = d->high > at ? d->high - at : 0;
    if (old > live) live = old;
    if (size > live) size = live; /* beyond, both are zero */
    for (int i = 0; i < MAX_RECORDS && here; i++) {
      struct record *r = &d->record[i];
      known |= r->src == s && r->generation == generation && r->from == from && r->at == at && r->size >= op->size;
    }
  }
  pthread_mutex_unlock(&world);
  if (known || !size) return;
  unsigned char *to = view(actor, op->dst, size, 1), *bytes = view(actor, op->src, size, 0);
  memcpy(to, bytes, size);
  if (link && link->fault == CORRUPT) corrupt_bytes(to, size);
  if (link && link->fault == ZEROS) memset(to, 0, size);
  if (!d || to != (unsigned char *)(uintptr_t)op->dst) return;
  wrote(op->dst, size);
  pthread_mutex_lock(&world);
  for (int i = 0; s && here && i < MAX_RECORDS; i++)
    if (!d->record[i].src) {
      d->record[i] = (struct record){s, generation, from, at, op->size};
      break;
    }
  pthread_mutex_unlock(&world);
}

/* The rate of a transfer beside all that is queued to run at the same time. */
double shared_rate(struct stream *self, int out, int in, double rate) {
  int outs = 1, ins = 1, crossing = 1, back = 0;
  struct gpu *g = fabric.gpu;
  pthread_mutex_lock(&world);
  for (int i = 0; i < stream_count; i++) {
    struct stream *s = streams[i];
    if (s == self || !s->busy || s->load_gpu_out < 0) continue;
    outs += s->load_gpu_out == out;
    ins += s->load_gpu_in == in;
    back |= s->load_gpu_out == in && s->load_gpu_in == out;
    crossing += g[s->load_gpu_out].numa == g[out].numa && g[s->load_gpu_in].numa == g[in].numa;
  }
  pthread_mutex_unlock(&world);
  double limit = g[out].port / outs;
  if (g[in].port / ins < limit) limit = g[in].port / ins;
  if (g[out].numa != g[in].numa && fabric.socket_gbps / crossing < limit) limit = fabric.socket_gbps / crossing;
  double both = fabric.link[out][in].both;
  if (back && both > 0 && both / 2 < limit) limit = both / 2;
  return rate < limit || rate > g[out].port ? rate : limit; /* a link faster than its port is a fault to be shown, not to be cured */
}

CUresult lose_context(int gpu, CUresult error) {
  pthread_mutex_lock(&contexts[gpu].lock);
  if (!contexts[gpu].error) contexts[gpu].error = error;
  pthread_mutex_unlock(&contexts[gpu].lock);
  return error;
}

/* Count a transfer for GPUs that are to fall off the bus; true when one of the two just did. */
int count_transfer(int a, int b) {
  int lost = 0, pair[2] = {a, b};
  pthread_mutex_lock(&world);
  for (int i = 0; i < 2; i++) {
    struct gpu *g = &fabric.gpu[pair[i]];
    if (g->gone_after > 0) g->gone_after--;
    else if (g->gone_after == 0) {
      g->gone_after = -2;
      fabric_lose(pair[i]);
    }
    lost |= g->gone_after == -2;
  }
  pthread_mutex_unlock(&world);
  if (lost) lose_context(a, LAUNCH_FAILED), lose_context(b, LAUNCH_FAILED);
  return lost;
}

static double copy(struct stream *stream, struct op *op, double start) {
  int a = op->src_gpu, b = op->dst_gpu, actor = stream->context->gpu;
  double rate = fabric.host_gbps;
  int staged = 0;
  if (a >= 0 && b >= 0 && a != b) {
    if (count_transfer(a, b)) return start;
    struct link *link = &fabric.link[a][b];
    staged = !link->access || !(contexts[a].peers[b] || contexts[b].peers[a]);
    if (!staged && (link->fault == HANG || link->fault == STUCK)) never_end(link);
    rate = staged ? link->staged : shared_rate(stream, a, b, link->copy);
  } else if (a >= 0 && b >= 0) rate = fabric.local_gbps;
  move_bytes(actor, op, staged);
  return start + (double)op->size / (rate * 1e9) + OP_OVERHEAD + (staged ? 15e-6 : 0);
}

/* The stream that a context made first: with `set gate_late_ms` a GPU comes back to it last when a gate opens. */
static int is_first(const struct stream *stream) {
  pthread_mutex_lock(&world);
  int i = 0;
  while (streams[i]->context != stream->context) i++;
  int first = streams[i] == stream;
  pthread_mutex_unlock(&world);
  return first;
}

static double run(struct stream *stream, struct op *op, double start) {
  switch (op->kind) {
    case COPY: return copy(stream, op, start);
    case SET:
      memset((void *)(uintptr_t)op->dst, op->value, op->size);
      wrote(op->dst, op->size);
      return start + (double)op->size / (fabric.local_gbps * 1e9) + OP_OVERHEAD;
    case WAIT_VALUE: {
      volatile uint32_t *at = (uint32_t *)(uintptr_t)op->dst;
      while ((int32_t)(*at - op->wait) < 0) usleep(50);
      double seen = now() + (is_first(stream) ? fabric.gate_late_ms / 1e3 : 0);
      return seen > start ? seen : start;
    }
    case KERNEL: return kernel_run(stream, op, start);
    case RECORD:
      op->event->time = start;
      return start;
    case WAIT_EVENT:
      pthread_mutex_lock(&world);
      while (op->event->pending) pthread_cond_wait(&world_changed, &world);
      double time = op->event->time;
      pthread_mutex_unlock(&world);
      return time > start ? time : start;
  }
  return start;
}

static void *work(void *pointer) {
  struct stream *stream = pointer;
  pthread_mutex_lock(&world);
  for (;;) {
    while (!stream->head) pthread_cond_wait(&stream->changed, &world);
    struct op *op = stream->head;
    pthread_mutex_unlock(&world);
    double start = op->queued > stream->time ? op->queued : stream->time;
    if (stream->context->error && op->kind != RECORD) stream->time = start;
    else sleep_until(stream->time = run(stream, op, start));
    free(op->staging);
    pthread_mutex_lock(&world);
    stream->head = op->next;
    if (!stream->head) stream->tail = NULL;
    stream->busy--;
    if (op->kind == RECORD) op->event->pending--;
    free(op);
    pthread_cond_broadcast(&world_changed);
  }
  return NULL;
}

struct stream *stream_new(struct context *context) {
  struct stream *stream = calloc(1, sizeof *stream);
  stream->context = context, stream->load_gpu_out = stream->load_gpu_in = -1;
  pthread_cond_init(&stream->changed, NULL);
  pthread_mutex_lock(&world);
  int full = stream_count == MAX_STREAMS;
  if (!full) streams[stream_count++] = stream;
  pthread_mutex_unlock(&world);
  if (full || pthread_create(&stream->thread, NULL, work, stream)) return NULL;
  pthread_detach(stream->thread);
  return stream;
}

void stream_push(struct stream *stream, struct op *op) {
  op->queued = now();
  pthread_mutex_lock(&world);
  if (op->src_gpu >= 0 && op->dst_gpu >= 0 && op->src_gpu != op->dst_gpu) stream->load_gpu_out = op->src_gpu, stream->load_gpu_in = op->dst_gpu;
  if (op->kind == RECORD) op->event->pending++;
  if (stream->tail) stream->tail->next = op;
  else stream->head = op;
  stream->tail = op;
  stream->busy++;
  pthread_cond_signal(&stream->changed);
  pthread_mutex_unlock(&world);
}

void stream_wait(struct stream *stream) {
  pthread_mutex_lock(&world);
  while (stream->busy) pthread_cond_wait(&world_changed, &world);
  pthread_mutex_unlock(&world);
}
