// A completion server whose truth is known: it sends each token when it was told to and writes down when it really did.
//
// One thread, epoll with nanosecond time-outs, a heap of timers, one send() per event. Build: cc -O2 -o truth_server truth_server.c
// Usage: truth_server [PORT]   prints "port N" and serves on 127.0.0.1 until it is killed.
// POST /reset?key=value&... sets what follows and forgets what was seen; GET /truth?from=S&to=S tells what happened (times: CLOCK_MONOTONIC).
//   ttft_ms itl_ms   time to the first token and between two events
//   per_chunk        tokens in an event (speculative decoding)      sync=1      all streams on one tick, as a batch decodes
//   fault=NAME every=N from=I to=J token=K   the fault strikes requests I <= index < J with index % N == 0, at token K
//   continuous=0     ignore continuous_usage_stats                  usage=0     never send usage        metrics=0   no /metrics
//   nagle=1          hold small segments back until the last one is acknowledged, as servers without TCP_NODELAY do
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FD = 8192, BUF = 1 << 16, MAX_MS = 1200000 };
enum kind { COMPLETION, CHAT, GENERATE };

struct conn {
  int fd, used, streaming, want_usage, continuous, stream, faulty, ended;
  enum kind kind;
  char *in;
  size_t have, room;
  int64_t arrival, came, next, last;  // came: when the kernel had the bytes of the request
  int sent, max_tokens, prompt_tokens, heap;
  unsigned id;
  char model[64];
};

static struct conn conns[MAX_FD];
static int heap[MAX_FD], heap_len;
static int epfd, listener;
static char out[BUF], page[BUF];

static struct {
  double ttft_ms, itl_ms, usage_factor;
  int per_chunk, sync, every, from, to, token, continuous, usage, metrics, nagle;
  char fault[32];
} cfg;

static float *ttfts, *gaps;
static size_t n_ttft, n_gap, room_ttft, room_gap;
static uint32_t *per_ms;
static int64_t epoch, first_send, last_send, worst_lag;
static long requests, tokens_sent, prompt_total, finished, generation_total;
static unsigned next_id = 1;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void defaults(void) {
  memset(&cfg, 0, sizeof cfg);
  cfg.ttft_ms = 200, cfg.itl_ms = 10, cfg.per_chunk = 1, cfg.every = 1, cfg.to = 1 << 30, cfg.token = 5;
  cfg.continuous = cfg.usage = cfg.metrics = 1, cfg.usage_factor = 1;
}

static void forget(void) {
  n_ttft = n_gap = 0;
  memset(per_ms, 0, MAX_MS * sizeof *per_ms);
  epoch = now_ns(), first_send = last_send = worst_lag = 0;
  requests = tokens_sent = finished = 0;
}

static void note(float **array, size_t *n, size_t *room, float value) {
  if (*n == *room) {
    *room = *room ? *room * 2 : 1 << 16;
    *array = realloc(*array, *room * sizeof **array);
    if (!*array) abort();
  }
  (*array)[(*n)++] = value;
}

// ---- timers: a heap of connections by their next event ----
static int before(int a, int b) { return conns[heap[a]].next < conns[heap[b]].next; }
static void swap(int a, int b) {
  int t = heap[a];
  heap[a] = heap[b], heap[b] = t;
  conns[heap[a]].heap = a, conns[heap[b]].heap = b;
}
static void up(int i) {
  while (i && before(i, (i - 1) / 2)) swap(i, (i - 1) / 2), i = (i - 1) / 2;
}
static void down(int i) {
  for (;;) {
    int least = i, l = 2 * i + 1, r = l + 1;
    if (l < heap_len && before(l, least)) least = l;
    if (r < heap_len && before(r, least)) least = r;
    if (least == i) return;
    swap(i, least), i = least;
  }
}
static void timer_set(int fd, int64_t when) {
  struct conn *c = &conns[fd];
  c->next = when;
  if (c->heap < 0) c->heap = heap_len, heap[heap_len++] = fd;
  up(c->heap), down(c->heap);
}
static void timer_clear(int fd) {
  int i = conns[fd].heap;
  if (i < 0) return;
  heap_len--;
  if (i != heap_len) swap(i, heap_len), up(i), down(i);
  conns[fd].heap = -1;
}

static void hang_up(int fd, int reset) {
  struct conn *c = &conns[fd];
  if (!c->used) return;
  timer_clear(fd);
  if (reset) {
    struct linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  close(fd);
  c->used = 0;
}

static void put(int fd, const char *data, size_t n) {
  while (n) {
    ssize_t k = send(fd, data, n, MSG_NOSIGNAL);
    if (k < 0 && errno == EAGAIN) {  // the reader is far behind: the truth waits for nobody, but bytes must not be lost
      usleep(1000);
      continue;
    }
    if (k <= 0) return;
    data += k, n -= (size_t)k;
  }
}

static void answer(int fd, int status, const char *reason, const char *type, const char *extra, const char *body) {
  int n = snprintf(out, sizeof out, "HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %zu\r\n%s\r\n", status, reason, type, strlen(body), extra);
  put(fd, out, (size_t)n);
  put(fd, body, strlen(body));
}

// ---- what is told of the past ----
static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}
static double rank(const float *sorted, size_t n, double q) {
  if (!n) return 0;
  double at = q * (double)(n - 1);
  size_t i = (size_t)at;
  double rest = at - (double)i;
  return i + 1 < n ? sorted[i] * (1 - rest) + sorted[i + 1] * rest : sorted[i];
}
static int summary(char *to, size_t room, const char *name, float *values, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += values[i];
  qsort(values, n, sizeof *values, by_value);  // order of arrival is not needed again
  return snprintf(to, room, "\"%s\":{\"n\":%zu,\"mean\":%.4f,\"p50\":%.4f,\"p90\":%.4f,\"p99\":%.4f,\"max\":%.4f},", name, n, n ? sum / (double)n : 0,
                  rank(values, n, .5), rank(values, n, .9), rank(values, n, .99), n ? values[n - 1] : 0);
}
static double option(const char *query, const char *key, double fallback) {
  size_t n = strlen(key);
  for (const char *p = query; p && *p; p = strchr(p, '&'), p = p ? p + 1 : NULL)
    if (!strncmp(p, key, n) && p[n] == '=') return atof(p + n + 1);
  return fallback;
}
static void tell_truth(int fd, const char *query) {
  double from = option(query, "from", 0), to = option(query, "to", 1e12);
  double base = (double)epoch / 1e9;
  long inside = 0;
  long lo = (long)((from - base) * 1000), hi = (long)((to - base) * 1000);
  if (lo < 0) lo = 0;
  if (hi > MAX_MS) hi = MAX_MS;
  for (long i = lo; i < hi; i++) inside += per_ms[i];
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  int n = snprintf(page, sizeof page, "{");
  n += summary(page + n, sizeof page - (size_t)n, "ttft_ms", ttfts, n_ttft);
  n += summary(page + n, sizeof page - (size_t)n, "itl_ms", gaps, n_gap);
  snprintf(page + n, sizeof page - (size_t)n,
           "\"requests\":%ld,\"finished\":%ld,\"tokens\":%ld,\"inside\":%ld,\"first_s\":%.6f,\"last_s\":%.6f,\"lag_ms_max\":%.3f,\"cpu_s\":%.3f}", requests,
           finished, tokens_sent, inside, (double)first_send / 1e9, (double)last_send / 1e9, (double)worst_lag / 1e6,
           (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6 + (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec / 1e6);
  answer(fd, 200, "OK", "application/json", "", page);
}
static void reset(const char *query) {
  defaults();
  cfg.ttft_ms = option(query, "ttft_ms", 200), cfg.itl_ms = option(query, "itl_ms", 10);
  cfg.per_chunk = (int)option(query, "per_chunk", 1), cfg.sync = (int)option(query, "sync", 0);
  cfg.every = (int)option(query, "every", 1), cfg.from = (int)option(query, "from", 0), cfg.to = (int)option(query, "to", 1 << 30);
  cfg.token = (int)option(query, "token", 5), cfg.continuous = (int)option(query, "continuous", 1);
  cfg.usage = (int)option(query, "usage", 1), cfg.metrics = (int)option(query, "metrics", 1);
  cfg.nagle = (int)option(query, "nagle", 0);
  const char *p = strstr(query, "fault=");
  if (p) snprintf(cfg.fault, sizeof cfg.fault, "%.*s", (int)strcspn(p + 6, "&"), p + 6);
  forget();
}

// ---- streams ----
static int is(const char *fault) { return !strcmp(cfg.fault, fault); }

static size_t event(struct conn *c, const char *text, const char *finish, int with_text) {
  char usage[160] = "null";
  int shown = (int)(c->sent * (c->faulty && is("wrong-usage") ? 2 : c->faulty && is("usage-short") ? 0.5 : 1));
  if (c->continuous && cfg.continuous && cfg.usage)
    snprintf(usage, sizeof usage, "{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d,\"prompt_tokens_details\":null}", c->prompt_tokens,
             c->prompt_tokens + shown, shown);
  char quoted[16] = "null";
  if (finish) snprintf(quoted, sizeof quoted, "\"%s\"", finish);
  char *body = out + 16;
  int n;
  if (c->kind == GENERATE) {
    char reason[64] = "null";
    if (finish) snprintf(reason, sizeof reason, "{\"type\":\"%s\",\"length\":%d}", finish, c->sent);
    n = snprintf(body, BUF - 32, "data: {\"text\":\"%s\",\"output_ids\":[7],\"meta_info\":{\"id\":\"%032x\",\"finish_reason\":%s,\"prompt_tokens\":%d,\"completion_tokens\":%d,\"cached_tokens\":0}}\n\n",
                 text, c->id, reason, c->prompt_tokens, shown);
  } else if (c->kind == CHAT) {
    n = snprintf(body, BUF - 32, "data: {\"id\":\"%032x\",\"object\":\"chat.completion.chunk\",\"created\":1796047502,\"model\":\"%s\",\"choices\":[{\"index\":0,\"delta\":{%s%s%s},\"logprobs\":null,\"finish_reason\":%s,\"matched_stop\":null}]%s%s}\n\n",
                 c->id, c->model, with_text ? "\"content\":\"" : "", with_text ? text : "", with_text ? "\"" : "", quoted, c->continuous && cfg.continuous ? ",\"usage\":" : "",
                 c->continuous && cfg.continuous ? usage : "");
  } else {
    n = snprintf(body, BUF - 32, "data: {\"id\":\"%032x\",\"object\":\"text_completion\",\"created\":1796047502,\"model\":\"%s\",\"choices\":[{\"index\":0,\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":%s,\"matched_stop\":null}],\"usage\":%s}\n\n",
                 c->id, c->model, text, quoted, usage);
  }
  return (size_t)n;
}
static void chunk(int fd, size_t n) {  // the body lies at out + 16
  char size[16];
  int k = snprintf(size, sizeof size, "%zx\r\n", n);
  char *start = out + 16 - k;
  memcpy(start, size, (size_t)k);
  memcpy(out + 16 + n, "\r\n", 2);
  put(fd, start, n + (size_t)k + 2);
}
static void raw_chunk(int fd, const char *text) {
  size_t n = strlen(text);
  memcpy(out + 16, text, n);
  chunk(fd, n);
}
static void finish(int fd) {
  struct conn *c = &conns[fd];
  if (c->want_usage && cfg.usage && c->kind != GENERATE) {
    int shown = (int)(c->sent * (c->faulty && is("wrong-usage") ? 2 : c->faulty && is("usage-short") ? 0.5 : 1));
    int n = snprintf(out + 16, BUF - 32, "data: {\"id\":\"%032x\",\"object\":\"text_completion\",\"created\":1796047502,\"model\":\"%s\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}}\n\n",
                     c->id, c->model, c->prompt_tokens, c->prompt_tokens + shown, shown);
    chunk(fd, (size_t)n);
  }
  if (c->faulty && is("no-end")) {
    timer_clear(fd);
    return;
  }
  raw_chunk(fd, "data: [DONE]\n\n");
  put(fd, "0\r\n\r\n", 5);
  timer_clear(fd);
  c->streaming = 0, finished++, generation_total += c->sent, prompt_total += c->prompt_tokens;
}
static void step(int fd) {
  struct conn *c = &conns[fd];
  int64_t t = now_ns();
  if (t - c->next > worst_lag) worst_lag = t - c->next;
  int at = c->faulty && c->sent >= cfg.token;
  if (at && is("stall")) { timer_clear(fd); return; }
  if (at && is("reset")) { hang_up(fd, 1); return; }
  if (at && is("eof")) { hang_up(fd, 0); return; }
  if (at && is("end-early")) { put(fd, "0\r\n\r\n", 5); timer_clear(fd); c->streaming = 0; return; }
  if (at && is("error-event") && !c->ended) {
    raw_chunk(fd, "data: {\"error\": {\"object\": \"error\", \"message\": \"out of memory in the scheduler\", \"type\": \"InternalServerError\", \"code\": 500}}\n\n");
    raw_chunk(fd, "data: [DONE]\n\n");
    put(fd, "0\r\n\r\n", 5);
    timer_clear(fd);
    c->streaming = 0;
    return;
  }
  if (at && is("malformed") && !c->ended) { raw_chunk(fd, "data: {\"id\": \"x\", \"choices\": [{\"text\": tok}]}\n\n"); c->ended = 1; }
  if (at && is("cut") && !c->ended) {
    raw_chunk(fd, "data: {\"id\": \"x\", \"choices\": [{\"te");
    put(fd, "0\r\n\r\n", 5);
    timer_clear(fd);
    c->streaming = 0;
    return;
  }
  if (at && is("die")) _exit(1);
  int limit = c->faulty && is("early-stop") ? cfg.token : c->faulty && is("endless") ? 1 << 30 : c->max_tokens;
  int count = limit - c->sent < cfg.per_chunk ? limit - c->sent : cfg.per_chunk;
  if (!c->sent && c->kind == CHAT) {
    memset(out, 0, 16);
    c->sent = 0;
    size_t n = event(c, "", NULL, 1);
    chunk(fd, n);
  }
  char text[256] = "";
  for (int i = 0; i < count && i < 40; i++) strcat(text, " tok");
  c->sent += count;
  int last = c->sent >= limit;
  const char *reason = !last ? NULL : c->faulty && is("early-stop") ? "stop" : "length";
  size_t n = event(c, text, c->kind == CHAT ? NULL : reason, 1);
  int64_t real = now_ns();
  chunk(fd, n);
  if (c->sent == count) note(&ttfts, &n_ttft, &room_ttft, (float)((double)(real - c->arrival) / 1e6));
  else
    for (int i = 0; i < count; i++) note(&gaps, &n_gap, &room_gap, (float)((double)(real - c->last) / 1e6 / count));
  c->last = real, tokens_sent += count, last_send = real;
  if (!first_send) first_send = real;
  int64_t ms = (real - epoch) / 1000000;
  if (ms >= 0 && ms < MAX_MS) per_ms[ms] += (uint32_t)count;
  if (last) {
    if (c->kind == CHAT) chunk(fd, event(c, "", reason, 0));
    finish(fd);
    return;
  }
  int64_t gap = (int64_t)(cfg.itl_ms * 1e6 * cfg.per_chunk);
  timer_set(fd, cfg.sync ? (c->next / gap + 1) * gap : c->next + gap);
}

// ---- requests ----
static int number_after(const char *body, const char *key, int fallback) {
  const char *p = strstr(body, key);
  if (!p) return fallback;
  p += strlen(key);
  while (*p == ' ' || *p == ':') p++;
  return atoi(p);
}
static int flag_after(const char *body, const char *key) {
  const char *p = strstr(body, key);
  if (!p) return 0;
  p += strlen(key);
  while (*p == ' ' || *p == ':') p++;
  return !strncmp(p, "true", 4);
}
static void serve(int fd, char *method, char *target, char *body) {
  struct conn *c = &conns[fd];
  char *query = strchr(target, '?');
  if (query) *query++ = 0;
  int post = !strcmp(method, "POST");
  if (!strcmp(target, "/reset")) { reset(query ? query : ""); answer(fd, 200, "OK", "text/plain", "", ""); return; }
  if (!strcmp(target, "/truth")) { tell_truth(fd, query ? query : ""); return; }
  if (!strcmp(target, "/health")) { answer(fd, 200, "OK", "text/plain", "", ""); return; }
  if (!strcmp(target, "/flush_cache")) { answer(fd, 200, "OK", "text/plain", "", "Cache flushed.\n"); return; }
  if (!strcmp(target, "/v1/models")) {
    answer(fd, 200, "OK", "application/json", "", "{\"object\":\"list\",\"data\":[{\"id\":\"truth\",\"object\":\"model\",\"owned_by\":\"sglang\",\"max_model_len\":131072}]}");
    return;
  }
  if (!strcmp(target, "/server_info") || !strcmp(target, "/get_server_info")) {
    answer(fd, 200, "OK", "application/json", "", "{\"version\":\"truth-1\",\"max_running_requests\":100000,\"model_path\":\"truth\",\"internal_states\":[{}]}");
    return;
  }
  if (!strcmp(target, "/metrics") && cfg.metrics) {
    int running = 0;
    for (int i = 0; i < MAX_FD; i++) running += conns[i].used && conns[i].streaming;
    snprintf(page, sizeof page,
             "# TYPE sglang:generation_tokens_total counter\nsglang:prompt_tokens_total{model_name=\"truth\"} %ld.0\nsglang:generation_tokens_total{model_name=\"truth\"} "
             "%ld.0\nsglang:num_running_reqs{model_name=\"truth\"} %d.0\nsglang:num_queue_reqs{model_name=\"truth\"} 0.0\nsglang:token_usage{model_name=\"truth\"} 0.01\n",
             prompt_total, generation_total, running);
    answer(fd, 200, "OK", "text/plain", "", page);
    return;
  }
  enum kind kind = !strcmp(target, "/v1/completions") ? COMPLETION : !strcmp(target, "/v1/chat/completions") ? CHAT : GENERATE;
  if (!post || (kind == GENERATE && strcmp(target, "/generate"))) { answer(fd, 404, "Not Found", "application/json", "", "{\"detail\":\"Not Found\"}"); return; }
  long index = requests++;
  c->faulty = cfg.fault[0] && index >= cfg.from && index < cfg.to && index % cfg.every == 0;
  if (c->faulty) {
    if (is("http-500")) { answer(fd, 500, "Internal Server Error", "application/json", "", "{\"object\":\"error\",\"message\":\"boom\",\"code\":500}"); return; }
    if (is("http-400")) { answer(fd, 400, "Bad Request", "application/json", "", "{\"object\":\"error\",\"message\":\"bad\",\"code\":400}"); return; }
    if (is("http-429")) { answer(fd, 429, "Too Many Requests", "application/json", "retry-after: 1\r\n", "{\"message\":\"slow down\"}"); return; }
    if (is("redirect")) { answer(fd, 307, "Temporary Redirect", "text/plain", "location: http://127.0.0.1:1/\r\n", ""); return; }
    if (is("not-a-stream")) { answer(fd, 200, "OK", "text/html", "", "<html>Welcome to the proxy</html>"); return; }
    if (is("reset-first")) { hang_up(fd, 1); return; }
    if (is("eof-first")) { hang_up(fd, 0); return; }
    if (is("die") && cfg.token == 0) _exit(1);
  }
  c->kind = kind, c->sent = c->ended = 0, c->id = next_id++, c->arrival = c->came;
  c->want_usage = flag_after(body, "\"include_usage\""), c->continuous = flag_after(body, "\"continuous_usage_stats\"");
  c->max_tokens = kind == GENERATE ? number_after(body, "\"max_new_tokens\"", 16) : number_after(body, "\"max_tokens\"", 16);
  c->prompt_tokens = 1;
  const char *ids = strstr(body, kind == GENERATE ? "\"input_ids\"" : "\"prompt\"");
  if (ids && (ids = strchr(ids, '[')))
    for (; *ids && *ids != ']'; ids++) c->prompt_tokens += *ids == ',';
  snprintf(c->model, sizeof c->model, "truth");
  const char head[] = "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 14:05:01 GMT\r\nserver: truth\r\ncontent-type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
  put(fd, head, sizeof head - 1);
  c->streaming = 1;
  if (c->faulty && is("stall-first")) return;
  int64_t gap = (int64_t)(cfg.itl_ms * 1e6), due = now_ns() + (int64_t)(cfg.ttft_ms * 1e6);
  timer_set(fd, cfg.sync && gap ? (due / gap + 1) * gap : due);
}
// Bytes, and when they came: a request that waits while this server sends others' tokens is the server's time, not its client's.
static ssize_t take(int fd, char *to, size_t room, int64_t *came) {
  char control[CMSG_SPACE(sizeof(struct timespec)) + 64];
  struct iovec into = {to, room};
  struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t k = recvmsg(fd, &message, 0);
  if (k <= 0) return k;
  *came = now_ns();
  for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
    struct timespec then, now;
    memcpy(&then, CMSG_DATA(c), sizeof then);
    clock_gettime(CLOCK_REALTIME, &now);
    *came -= (int64_t)(now.tv_sec - then.tv_sec) * 1000000000 + now.tv_nsec - then.tv_nsec;
  }
  return k;
}
static void readable(int fd) {
  struct conn *c = &conns[fd];
  for (;;) {
    if (c->have + 4096 > c->room) {
      c->room = c->room ? c->room * 2 : 16384;
      c->in = realloc(c->in, c->room);
      if (!c->in) abort();
    }
    ssize_t k = take(fd, c->in + c->have, c->room - c->have - 1, &c->came);
    if (k < 0 && errno == EAGAIN) break;
    if (k <= 0) { hang_up(fd, 0); return; }
    c->have += (size_t)k;
  }
  c->in[c->have] = 0;
  char *end = strstr(c->in, "\r\n\r\n");
  if (!end) return;
  size_t length = 0, head = (size_t)(end - c->in) + 4;
  for (char *line = c->in; line < end; line = strstr(line, "\r\n") + 2)
    if (!strncasecmp(line, "content-length:", 15)) length = (size_t)atol(line + 15);
  if (c->have < head + length) return;
  char method[16] = "", target[1024] = "";
  sscanf(c->in, "%15s %1023s", method, target);
  char *body = c->in + head;
  c->have = 0;
  serve(fd, method, target, body);
}
int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  per_ms = calloc(MAX_MS, sizeof *per_ms);
  if (!per_ms) return 1;
  struct rlimit files = {MAX_FD, MAX_FD};
  setrlimit(RLIMIT_NOFILE, &files);
  defaults(), forget();
  for (int i = 0; i < MAX_FD; i++) conns[i].heap = -1;
  listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(argc > 1 ? atoi(argv[1]) : 0)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096) || getsockname(listener, (struct sockaddr *)&address, &size)) {
    perror("truth_server");
    return 1;
  }
  printf("port %d\n", ntohs(address.sin_port));
  fflush(stdout);
  epfd = epoll_create1(0);
  struct epoll_event watch = {.events = EPOLLIN, .data.fd = listener}, ready[512];
  epoll_ctl(epfd, EPOLL_CTL_ADD, listener, &watch);
  for (;;) {
    struct timespec wait, *until = NULL;
    if (heap_len) {
      int64_t left = conns[heap[0]].next - now_ns();
      if (left < 0) left = 0;
      wait.tv_sec = left / 1000000000, wait.tv_nsec = left % 1000000000, until = &wait;
    }
    int n = epoll_pwait2(epfd, ready, 512, until, NULL);
    for (int i = 0; i < n; i++) {
      int fd = ready[i].data.fd;
      if (fd != listener) { readable(fd); continue; }
      int made;
      while ((made = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (made >= MAX_FD) { close(made); continue; }
        setsockopt(made, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes);
        int quick = !cfg.nagle;
        setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &quick, sizeof quick);
        struct conn *c = &conns[made];
        c->used = 1, c->streaming = 0, c->have = 0, c->heap = -1, c->fd = made;
        struct epoll_event e = {.events = EPOLLIN, .data.fd = made};
        epoll_ctl(epfd, EPOLL_CTL_ADD, made, &e);
      }
    }
    for (int burst = 0; burst < 64 && heap_len && conns[heap[0]].next <= now_ns(); burst++) step(heap[0]);
  }
}
