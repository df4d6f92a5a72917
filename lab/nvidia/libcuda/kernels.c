/* The worker's kernels, known by their entry names: they do in C, on the same memory, what their PTX says. */
#include "lab.h"

#include <sched.h>
#include <string.h>

#define THREADS 256 /* of the producer's and the consumer's single block */
#define LAUNCH 4e-6
#define LOCAL_LATENCY 0.6 /* us */

static const char *const known[] = {"gpunode_chase", "gpunode_copy", "gpunode_producer", "gpunode_consumer"};

int kernel_known(const char *name) {
  for (int i = 0; i < 4; i++)
    if (!strcmp(name, known[i])) return i + 1;
  return 0;
}

/* The GPU that owns an address which `actor`'s kernel may touch, or -1: then it faults. */
static int reach(int actor, uint64_t address, uint64_t size) {
  pthread_mutex_lock(&world);
  struct alloc *a = find_alloc(address, size);
  int owner = a ? a->gpu : -1;
  pthread_mutex_unlock(&world);
  if (owner >= 0 && owner != actor && !contexts[actor].peers[owner]) return -1;
  return owner;
}

static double latency(int actor, int owner) { return actor == owner ? LOCAL_LATENCY : fabric.link[actor][owner].latency; }

static double chase(int actor, const uint64_t *arg, double start) {
  uint64_t base = arg[0], mask = arg[2], offset = 0;
  uint32_t hops = (uint32_t)arg[3];
  int owner = reach(actor, base, mask + 8), mine = reach(actor, arg[1], 8);
  if (owner < 0 || mine < 0) return lose_context(actor, ILLEGAL_ADDRESS), start;
  struct link *link = &fabric.link[actor][owner];
  unsigned char *bytes = view(actor, base, mask + 8, 0);
  for (uint32_t i = 0; i < hops; i++) memcpy(&offset, bytes + (offset & mask), 8);
  if (owner != actor && link->fault == CORRUPT) offset ^= 0x4000;
  if (owner != actor && link->fault == ZEROS) offset = 0;
  memcpy(view(actor, arg[1], 8, 1), &offset, 8);
  wrote(arg[1], 8);
  return start + hops * latency(actor, owner) * 1e-6 + LAUNCH;
}

static double copy(struct stream *stream, int actor, const uint64_t *arg, double start) {
  struct op op = {.kind = COPY, .dst = arg[0], .src = arg[1], .size = arg[2] * 16};
  op.dst_gpu = reach(actor, op.dst, op.size), op.src_gpu = reach(actor, op.src, op.size);
  if (op.dst_gpu < 0 || op.src_gpu < 0) return lose_context(actor, ILLEGAL_ADDRESS), start;
  double rate = fabric.local_gbps;
  if (op.dst_gpu != actor) rate = shared_rate(stream, actor, op.dst_gpu, fabric.link[actor][op.dst_gpu].sm_write);
  if (op.src_gpu != actor) rate = shared_rate(stream, op.src_gpu, actor, fabric.link[actor][op.src_gpu].sm_read);
  if (op.dst_gpu != op.src_gpu && count_transfer(op.src_gpu, op.dst_gpu)) return start;
  move_bytes(actor, &op, 0);
  return start + (double)op.size / (rate * 1e9) + LAUNCH;
}

static uint64_t word(uint64_t salt, uint32_t round, uint64_t thread) { return salt ^ ((uint64_t)round << 32 | thread); }

/* Wait for a flag as the kernels do, with their own time limit. */
static int wait_flag(volatile uint32_t *flag, uint32_t round, double limit) {
  double end = now() + limit;
  while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) < round) {
    if (now() > end) return 0;
    sched_yield();
  }
  return 1;
}

static double producer(int actor, const uint64_t *arg, double start) {
  int owner = reach(actor, arg[0], 8 * THREADS);
  if (owner < 0 || reach(actor, arg[1], 4) != owner || reach(actor, arg[2], 4) < 0) return lose_context(actor, ILLEGAL_ADDRESS), start;
  struct link *link = &fabric.link[actor][owner];
  uint64_t *data = (uint64_t *)view(actor, arg[0], 8 * THREADS, 1), hidden[THREADS], *target = link->fault == LATE ? hidden : data;
  uint32_t *flag = (uint32_t *)view(actor, arg[1], 4, 1), late_flag = 0, *raise = link->fault == LATE ? &late_flag : flag;
  volatile uint32_t *ack = (volatile uint32_t *)view(actor, arg[2], 4, 0);
  uint32_t rounds = (uint32_t)arg[5], r = 1;
  for (; r <= rounds; r++) {
    for (uint64_t t = 0; t < THREADS; t++) target[t] = word(arg[4], r, t);
    if (link->fault == CORRUPT) target[THREADS / 3] ^= 0x40;
    if (link->fault == ZEROS) memset(target, 0, 8 * THREADS);
    __atomic_store_n(raise, r, __ATOMIC_RELEASE);
    if (!wait_flag(ack, r, 1e-9 * (double)arg[6])) break;
  }
  if (link->fault == LATE) memcpy(data, hidden, sizeof hidden), *flag = late_flag;
  double end = start + (r - 1) * (latency(actor, owner) + latency(owner, actor)) * 1e-6 + LAUNCH;
  uint64_t out[3] = {r - 1, (uint64_t)(start * 1e9), (uint64_t)((end - LAUNCH) * 1e9)};
  memcpy(view(actor, arg[3], 24, 1), out, sizeof out);
  wrote(arg[3], 24), wrote(arg[0], 8 * THREADS);
  return end;
}

static double consumer(int actor, const uint64_t *arg, double start) {
  int peer = reach(actor, arg[2], 4);
  if (peer < 0 || reach(actor, arg[0], 8 * THREADS) < 0) return lose_context(actor, ILLEGAL_ADDRESS), start;
  uint64_t *data = (uint64_t *)view(actor, arg[0], 8 * THREADS, 0);
  volatile uint32_t *flag = (volatile uint32_t *)view(actor, arg[1], 4, 0);
  uint32_t *ack = (uint32_t *)view(actor, arg[2], 4, 1), rounds = (uint32_t)arg[5], bad = 0, r = 1;
  for (; r <= rounds; r++) {
    if (!wait_flag(flag, r, 1e-9 * (double)arg[6])) break;
    for (uint64_t t = 0; t < THREADS && !bad; t++)
      if (data[t] != word(arg[4], r, t)) bad = r;
    __atomic_store_n(ack, r, __ATOMIC_RELEASE);
  }
  uint64_t out[2] = {r - 1, bad};
  memcpy(view(actor, arg[3], 16, 1), out, sizeof out);
  wrote(arg[3], 16);
  return start + (r - 1) * (latency(actor, peer) + latency(peer, actor)) * 1e-6 + LAUNCH;
}

double kernel_run(struct stream *stream, struct op *op, double start) {
  int actor = stream->context->gpu;
  switch (kernel_known(op->kernel)) {
    case 1: return chase(actor, op->arg, start);
    case 2: return copy(stream, actor, op->arg, start);
    case 3: return producer(actor, op->arg, start);
    case 4: return consumer(actor, op->arg, start);
  }
  return lose_context(actor, LAUNCH_FAILED), start;
}
