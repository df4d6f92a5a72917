/* The fabric file: GPUs, links, faults and settings, one a line. reference.conf is the commented example. */
#include "lab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <fcntl.h>

struct fabric fabric;

static const struct link near_link = {1, 0, 53, 50, 52, 0, 40, 0.75, NONE, 60};
static const struct link far_link = {1, 0, 40, 38, 39, 0, 38, 1.30, NONE, 60};

static int fail(const char *path, int line, const char *what) {
  fprintf(stderr, "libcuda (simulated): %s:%d: %s\n", path, line, what);
  return -1;
}

/* Split "key=value" or a bare word; a value may be in double quotes and then hold blanks. Returns 0 at the end of the line. */
static int word(char **at, char **key, char **value) {
  char *p = *at;
  while (*p == ' ' || *p == '\t') p++;
  if (!*p || *p == '#' || *p == '\n') return 0;
  *key = p;
  *value = NULL;
  while (*p && *p != ' ' && *p != '\t' && *p != '\n' && *p != '=') p++;
  if (*p == '=') {
    *p++ = 0;
    char stop = ' ';
    if (*p == '"') stop = '"', p++;
    *value = p;
    while (*p && *p != '\n' && *p != stop && !(stop == ' ' && *p == '\t')) p++;
  }
  if (*p) *p++ = 0;
  *at = p;
  return 1;
}

static int set_link(struct link *l, const char *key, const char *value) {
  double n = atof(value);
  if (!strcmp(key, "access")) l->access = (int)n;
  else if (!strcmp(key, "atomics")) l->atomics = (int)n;
  else if (!strcmp(key, "copy")) l->copy = n;
  else if (!strcmp(key, "sm_read")) l->sm_read = n;
  else if (!strcmp(key, "sm_write")) l->sm_write = n;
  else if (!strcmp(key, "both")) l->both = n;
  else if (!strcmp(key, "staged")) l->staged = n;
  else if (!strcmp(key, "latency")) l->latency = n;
  else return -1;
  return 0;
}

static int set_fault(struct link *l, const char *name) {
  static const char *names[] = {"none", "corrupt", "zeros", "lost", "mirror", "hang", "stuck", "late"};
  for (int i = 0; i < 8; i++)
    if (!strcmp(name, names[i])) return l->fault = (enum fault)i, 0;
  if (!strcmp(name, "no-access")) l->access = 0;
  else if (!strcmp(name, "staged")) l->copy = l->staged, l->sm_read = 3.5, l->sm_write = 20, l->latency = 17;
  else if (!strcmp(name, "slow")) l->copy /= 4, l->sm_read /= 4, l->sm_write /= 4;
  else if (!strcmp(name, "impossible")) l->copy = 128;
  else return -1;
  return 0;
}

static int add_gpu(char *at, const char *bus_id) {
  if (fabric.gpus == MAX_GPUS) return -1;
  int n = fabric.gpus, function;
  struct gpu *g = &fabric.gpu[n];
  if (sscanf(bus_id, "%x:%x:%x.%x", (unsigned *)&g->domain, (unsigned *)&g->bus, (unsigned *)&g->slot, (unsigned *)&function) != 4) return -1;
  snprintf(g->bus_id, sizeof g->bus_id, "%s", bus_id);
  snprintf(g->name, sizeof g->name, "NVIDIA RTX PRO 6000 Blackwell Server Edition");
  snprintf(g->uuid, sizeof g->uuid, "GPU-1ab00000-0000-4000-8000-%04x%02x%02x%04x", g->domain, g->bus, g->slot, n);
  g->minor = n, g->sms = 188, g->major_cc = 12, g->memory_mib = 97887, g->gone_after = -1, g->port = 57;
  char *key, *value;
  while (word(&at, &key, &value)) {
    if (!value) return -1;
    if (!strcmp(key, "name")) snprintf(g->name, sizeof g->name, "%s", value);
    else if (!strcmp(key, "uuid")) snprintf(g->uuid, sizeof g->uuid, "%s", value);
    else if (!strcmp(key, "numa")) g->numa = atoi(value);
    else if (!strcmp(key, "minor")) g->minor = atoi(value);
    else if (!strcmp(key, "sms")) g->sms = atoi(value);
    else if (!strcmp(key, "compute")) sscanf(value, "%d.%d", &g->major_cc, &g->minor_cc);
    else if (!strcmp(key, "memory_mib")) g->memory_mib = atof(value);
    else if (!strcmp(key, "used_mib")) g->used_mib = atof(value);
    else if (!strcmp(key, "port")) g->port = atof(value);
    else return -1;
  }
  fabric.gpus++;
  for (int i = 0; i <= n; i++) {
    struct link l = fabric.gpu[i].numa == g->numa ? near_link : far_link;
    fabric.link[i][n] = fabric.link[n][i] = l;
  }
  return 0;
}

/* "link near copy=53", "link far latency=1.3", "link all both=64", "link 0 1 copy=40": one direction */
static int add_links(char *at, const char *which) {
  char *key, *value, *rest;
  int a = -1, b = -1;
  if (which[0] >= '0' && which[0] <= '9') {
    if (!word(&at, &key, &value) || value) return -1;
    a = atoi(which), b = atoi(key);
    if (a >= fabric.gpus || b >= fabric.gpus) return -1;
  } else if (strcmp(which, "near") && strcmp(which, "far") && strcmp(which, "all")) return -1;
  rest = at;
  while (word(&rest, &key, &value)) {
    if (!value) return -1;
    for (int i = 0; i < fabric.gpus; i++)
      for (int j = 0; j < fabric.gpus; j++) {
        int same = fabric.gpu[i].numa == fabric.gpu[j].numa;
        if (i == j || (a >= 0 && (i != a || j != b)) || (!strcmp(which, "near") && !same) || (!strcmp(which, "far") && same)) continue;
        if (set_link(&fabric.link[i][j], key, value)) return -1;
      }
  }
  return 0;
}

/* "fault 0:1 corrupt", "fault gpu 3 gone after=5 then=absent", "fault init 802" */
static int add_fault(char *at, const char *where) {
  char *key, *value, *name;
  int a, b;
  if (!word(&at, &name, &value) || value) return -1;
  if (!strcmp(where, "init")) return fabric.init_code = atoi(name), fabric.init_code ? 0 : -1;
  if (!strcmp(where, "gpu")) {
    if (!word(&at, &key, &value) || strcmp(key, "gone") || atoi(name) >= fabric.gpus) return -1;
    struct gpu *g = &fabric.gpu[atoi(name)];
    g->gone_after = 0;
    while (word(&at, &key, &value)) {
      if (!value) return -1;
      if (!strcmp(key, "after")) g->gone_after = atol(value);
      else if (!strcmp(key, "then")) g->then = !strcmp(value, "absent") ? ABSENT : !strcmp(value, "init-fails") ? INIT_FAILS : UNAVAILABLE;
      else return -1;
    }
    return 0;
  }
  if (sscanf(where, "%d:%d", &a, &b) != 2 || a >= fabric.gpus || b >= fabric.gpus || set_fault(&fabric.link[a][b], name)) return -1;
  while (word(&at, &key, &value)) {
    if (!value || strcmp(key, "hold")) return -1;
    fabric.link[a][b].hold = atof(value);
  }
  return 0;
}

static int set_value(char *at, const char *key) {
  char *value, *none;
  if (!word(&at, &value, &none) || none) return -1;
  double n = atof(value);
  if (!strcmp(key, "hmm")) fabric.hmm = !strcmp(value, "on") ? 1 : !strcmp(value, "off") ? 0 : 2;
  else if (!strcmp(key, "nodes")) fabric.nodes_required = !strcmp(value, "required");
  else if (!strcmp(key, "jit")) fabric.jit_missing = !strcmp(value, "missing");
  else if (!strcmp(key, "wait_value")) fabric.no_wait_value = !strcmp(value, "missing");
  else if (!strcmp(key, "gate_late_ms")) fabric.gate_late_ms = n;
  else if (!strcmp(key, "state")) snprintf(fabric.state, sizeof fabric.state, "%s", value);
  else if (!strcmp(key, "cuda")) fabric.cuda_version = (int)n;
  else if (!strcmp(key, "init_ms")) fabric.init_ms = n;
  else if (!strcmp(key, "context_ms")) fabric.context_ms = n;
  else if (!strcmp(key, "context_mib")) fabric.context_mib = n;
  else if (!strcmp(key, "module_ms")) fabric.module_ms = n;
  else if (!strcmp(key, "host_gbps")) fabric.host_gbps = n;
  else if (!strcmp(key, "local_gbps")) fabric.local_gbps = n;
  else if (!strcmp(key, "socket_gbps")) fabric.socket_gbps = n;
  else return -1;
  return 0;
}

static int read_file(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) return fail(path, 0, strerror(errno));
  char line[1024];
  int number = 0, bad = 0;
  while (!bad && fgets(line, sizeof line, file)) {
    char *at = line, *kind, *first, *value;
    number++;
    if (!word(&at, &kind, &value)) continue;
    if (value || !word(&at, &first, &value) || value) bad = 1;
    else if (!strcmp(kind, "gpu")) bad = add_gpu(at, first);
    else if (!strcmp(kind, "link")) bad = add_links(at, first);
    else if (!strcmp(kind, "fault")) bad = add_fault(at, first);
    else if (!strcmp(kind, "set")) bad = set_value(at, first);
    else bad = 1;
    if (bad) fail(path, number, "not understood");
  }
  fclose(file);
  return bad ? -1 : 0;
}

static int node(const char *name) {
  char path[64];
  struct stat st;
  snprintf(path, sizeof path, "/dev/%s", name);
  return stat(path, &st) == 0 && S_ISCHR(st.st_mode) && access(path, R_OK | W_OK) == 0;
}

static void gone_path(char *path, size_t size, int gpu) { snprintf(path, size, "%s/gpu-gone-%s", fabric.state, fabric.gpu[gpu].bus_id); }

void fabric_lose(int gpu) {
  char path[320];
  gone_path(path, sizeof path, gpu);
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd >= 0) close(fd);
}

/* Take GPU `gone` out; the numbers of those after it move down, as real ordinals do. */
static void remove_gpu(int gone) {
  for (int i = gone; i + 1 < fabric.gpus; i++) {
    fabric.gpu[i] = fabric.gpu[i + 1];
    memcpy(fabric.link[i], fabric.link[i + 1], sizeof fabric.link[i]);
  }
  fabric.gpus--;
  for (int i = 0; i < fabric.gpus; i++)
    for (int j = gone; j < fabric.gpus; j++) fabric.link[i][j] = fabric.link[i][j + 1];
}

static void keep_visible(const char *list) {
  struct fabric all = fabric;
  int order[MAX_GPUS], n = 0;
  char copy[512], *save = NULL;
  snprintf(copy, sizeof copy, "%s", list);
  for (char *part = strtok_r(copy, ",", &save); part && n < MAX_GPUS; part = strtok_r(NULL, ",", &save)) {
    int found = -1;
    if (part[0] >= '0' && part[0] <= '9') found = atoi(part) < all.gpus ? atoi(part) : -1;
    for (int i = 0; i < all.gpus && found < 0 && strlen(part) > 4; i++)
      if (!strncmp(all.gpu[i].uuid, part, strlen(part))) found = i;
    if (found < 0) break; /* as CUDA: nothing after the first that is not valid */
    order[n++] = found;
  }
  for (int i = 0; i < n; i++) {
    fabric.gpu[i] = all.gpu[order[i]];
    for (int j = 0; j < n; j++) fabric.link[i][j] = all.link[order[i]][order[j]];
  }
  fabric.gpus = n;
}

#ifdef LIBRARY_VERSION
/* The kernel module must be loaded, and of this library's own version. */
static CUresult module_fits(void) {
  char line[256] = "", *found;
  FILE *file = fopen("/proc/driver/nvidia/version", "r");
  if (!file) return NO_DEVICE;
  if (!fgets(line, sizeof line, file)) line[0] = 0;
  fclose(file);
  found = strstr(line, " " LIBRARY_VERSION " ");
  return found ? OK : DRIVER_MISMATCH;
}
#endif

CUresult fabric_load(void) {
  const char *path = getenv("GPUNODE_LAB_FABRIC");
  if (!path || !*path) path = "/etc/lab/fabric.conf";
  memset(&fabric, 0, sizeof fabric);
  fabric.hmm = 2, fabric.cuda_version = 13000;
  fabric.init_ms = 100, fabric.context_ms = 300, fabric.module_ms = 40, fabric.context_mib = 500;
  fabric.host_gbps = 55, fabric.local_gbps = 1500, fabric.socket_gbps = 160;
  snprintf(fabric.state, sizeof fabric.state, "/run/lab");
#ifdef LIBRARY_VERSION
  if (module_fits()) return module_fits();
#endif
  if (read_file(path)) return NO_DEVICE;
  if (fabric.init_code) return fabric.init_code;
  if (fabric.hmm == 2) {
    FILE *file = fopen("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "r");
    fabric.hmm = file && fgetc(file) == 'N';
    if (file) fclose(file);
  }
  if (fabric.nodes_required && !node("nvidiactl")) return NO_DEVICE;
  if (fabric.nodes_required && !node("nvidia-uvm")) return UNKNOWN;
  if (fabric.hmm) return NOT_INITIALIZED;
  for (int i = fabric.gpus - 1; i >= 0; i--) {
    char name[32], gone[320];
    snprintf(name, sizeof name, "nvidia%d", fabric.gpu[i].minor);
    gone_path(gone, sizeof gone, i);
    int lost = access(gone, F_OK) == 0;
    if (lost && fabric.gpu[i].then == INIT_FAILS) return UNKNOWN;
    if (lost) fabric.gpu[i].gone_after = -2;
    if ((lost && fabric.gpu[i].then == ABSENT) || (fabric.nodes_required && !node(name))) remove_gpu(i);
  }
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible) keep_visible(visible);
  fabric.loaded = 1;
  return fabric.gpus ? OK : NO_DEVICE;
}
