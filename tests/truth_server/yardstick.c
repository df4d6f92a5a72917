// The least a client can be: a closed loop of streams in C that times each read. What it is off by, no client on this machine can avoid.
//
// Build: cc -O2 -o yardstick yardstick.c. Usage: yardstick PORT STREAMS ROUNDS TOKENS; prints one line of JSON, times in milliseconds.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}
static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double rank(double *v, long n, double q) { return n ? v[(long)(q * (double)(n - 1))] : 0; }

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  int port = atoi(argv[1]), streams = atoi(argv[2]), rounds = atoi(argv[3]), tokens = atoi(argv[4]);
  static char prompt[16384], request[20000], in[65536];
  int n = 0;
  for (int i = 0; i < 256; i++) n += snprintf(prompt + n, sizeof prompt - (size_t)n, "%s%d", i ? "," : "", 1000 + i * 37 % 30000);
  char body[18000];
  int length = snprintf(body, sizeof body, "{\"model\":\"truth\",\"prompt\":[%s],\"max_tokens\":%d,\"stream\":true,\"stream_options\":{\"include_usage\":true}}", prompt, tokens);
  int size = snprintf(request, sizeof request, "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s", length, body);
  long total = (long)streams * rounds, done = 0, started = 0, n_ttft = 0, n_gap = 0;
  double *ttft = malloc((size_t)total * sizeof *ttft), *gaps = malloc((size_t)(total * tokens) * sizeof *gaps);
  double *sent = calloc((size_t)streams + 64, sizeof *sent), *last = calloc((size_t)streams + 64, sizeof *last);
  int *fds = calloc((size_t)streams, sizeof *fds);
  if (!ttft || !gaps || !sent || !last || !fds) return 1;
  int ep = epoll_create1(0), yes = 1;
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  for (int i = 0; i < streams; i++) {
    fds[i] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fds[i], (struct sockaddr *)&to, sizeof to)) return 1;
    setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
    epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &e);
  }
  double begin = now_ms();
  for (int i = 0; i < streams; i++, started++) sent[i] = now_ms(), last[i] = 0, (void)!write(fds[i], request, (size_t)size);
  struct epoll_event ready[512];
  while (done < total) {
    int k = epoll_wait(ep, ready, 512, 30000);
    if (k <= 0) return 1;
    for (int j = 0; j < k; j++) {
      int i = (int)ready[j].data.u32;
      ssize_t got = recv(fds[i], in, sizeof in - 1, MSG_DONTWAIT);
      if (got <= 0) return 1;
      in[got] = 0;
      double t = now_ms();
      long events = 0;
      for (char *p = in; (p = strstr(p, "\"text\":\"")); p++) events++;
      if (events) {
        if (!last[i]) ttft[n_ttft++] = t - sent[i];
        else for (long e = 0; e < events; e++) gaps[n_gap++] = (t - last[i]) / (double)events;
        last[i] = t;
      }
      if (got >= 5 && !memcmp(in + got - 5, "0\r\n\r\n", 5)) {
        done++;
        if (started < total) started++, last[i] = 0, sent[i] = now_ms(), (void)!write(fds[i], request, (size_t)size);
      }
    }
  }
  double seconds = (now_ms() - begin) / 1e3;
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  qsort(ttft, (size_t)n_ttft, sizeof *ttft, by_value), qsort(gaps, (size_t)n_gap, sizeof *gaps, by_value);
  printf("{\"output_tps\":%.2f,\"ttft_p50\":%.3f,\"ttft_p99\":%.3f,\"itl_p50\":%.4f,\"itl_p99\":%.3f,\"cpu_s\":%.3f,\"tokens\":%ld}\n",
         (double)(total * tokens) / seconds, rank(ttft, n_ttft, .5), rank(ttft, n_ttft, .99), rank(gaps, n_gap, .5), rank(gaps, n_gap, .99),
         (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6 + (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec / 1e6, total * tokens);
  return 0;
}
