/* See network.h.
 *
 * Theory of operation. A sandbox's namespace has one interface, its loopback, and gets no other: no
 * veth, no bridge, no address translation, so nothing of the host's is changed and an ordinary user
 * can have it too. The only way out is a listening socket on that loopback which is made here,
 * handed to the host, and accepted from there: the host's proxy for this one sandbox. So all that
 * enters or leaves crosses the loopback with the proxy's port on one side, where a token bucket of
 * the kernel (htb) holds each direction. Programs inside cannot change it: the namespace is not
 * theirs, they have no CAP_NET_ADMIN and may open no netlink socket. A netlink socket of the namespace
 * goes to the host with the listening one, so that limits and counters can be read from outside.
 *
 * Packets are told apart by a small classic BPF program and not by u32 matches at fixed offsets,
 * which a program evades by adding IP options to its packets.
 */
#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOPBACK_INDEX 1 /* the kernel gives every namespace's loopback this number */
#define WAITING_MAX 128  /* connections that the proxy has not accepted yet */
#define BUFFER_BYTES (128 * 1024)
/* Of each of the proxy's sockets and each way: the memory of sockets is the whole machine's. */
#define TCP_BUFFERS "4096 65536 1048576"
/* Of a program's, for the same reason: the least, the first and the most that one may grow to. */
#define SHAPED_MTU 9000
/* With the default of 65,536 a slow class would send a packet a second. */
#define BURST_BYTES_MIN 16384u
#define BURST_MS 4u
#define ROOT 0x10000u /* 1: */
#define UP 0x10001u
#define DOWN 0x10002u
#define TICK_NS 64u /* of the kernel's packet schedulers */

struct network field_network(struct fields *fields) {
  struct network network = {.fds = {-1, -1}};
  network.mode = field_u32(fields);
  network.port = field_u32(fields);
  network.up_bytes_s = field_u64(fields);
  network.down_bytes_s = field_u64(fields);
  bool proxied = network.mode == NETWORK_PROXY;
  if (network.mode > NETWORK_PROXY || proxied != (network.port >= 1 && network.port <= 65535) ||
      (!proxied && (network.up_bytes_s || network.down_bytes_s)))
    fields->bad = true;
  return network;
}

/* One rtnetlink request that changes something. The largest is some 250 bytes. */
struct request {
  union {
    struct nlmsghdr header;
    uint8_t bytes[512];
  };
  bool overfull;
};

static struct rtattr *put(struct request *request, uint16_t type, const void *value, size_t length) {
  size_t at = NLMSG_ALIGN(request->header.nlmsg_len), end = at + RTA_LENGTH(length);
  if (RTA_ALIGN(end) > sizeof request->bytes) {
    request->overfull = true;
    return NULL;
  }
  struct rtattr *attribute = (struct rtattr *)(request->bytes + at);
  attribute->rta_type = type;
  attribute->rta_len = (uint16_t)RTA_LENGTH(length);
  if (length) memcpy(RTA_DATA(attribute), value, length);
  request->header.nlmsg_len = (uint32_t)end;
  return attribute;
}

static void close_nest(struct request *request, struct rtattr *nest) {
  if (nest) nest->rta_len = (uint16_t)(request->bytes + request->header.nlmsg_len - (uint8_t *)nest);
}

static void begin(struct request *request, uint16_t type, const struct tcmsg *about, const char *kind) {
  memset(request, 0, sizeof *request);
  request->header.nlmsg_type = type;
  request->header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
  request->header.nlmsg_len = NLMSG_LENGTH(sizeof *about);
  memcpy(NLMSG_DATA(&request->header), about, sizeof *about);
  put(request, TCA_KIND, kind, strlen(kind) + 1);
}

/* Returns -1 with errno set when the kernel refuses it. */
static int ask(int netlink, struct request *request) {
  struct {
    struct nlmsghdr header;
    struct nlmsgerr error;
    uint8_t rest[sizeof *request];
  } answer;
  if (request->overfull) {
    errno = EMSGSIZE;
    return -1;
  }
  if (send(netlink, request->bytes, request->header.nlmsg_len, 0) < 0) return -1;
  ssize_t got;
  while ((got = recv(netlink, &answer, sizeof answer, 0)) < 0)
    if (errno != EINTR) return -1;
  if ((size_t)got < NLMSG_LENGTH(sizeof answer.error) || answer.header.nlmsg_type != NLMSG_ERROR) {
    errno = EPROTO;
    return -1;
  }
  errno = -answer.error.error;
  return errno ? -1 : 0;
}

static int add_root(int netlink) {
  struct request request;
  struct tcmsg about = {.tcm_ifindex = LOOPBACK_INDEX, .tcm_parent = TC_H_ROOT, .tcm_handle = ROOT};
  /* Without a default class: what passes between programs inside is not shaped. */
  struct tc_htb_glob shape = {.version = TC_HTB_PROTOVER, .rate2quantum = 10};
  begin(&request, RTM_NEWQDISC, &about, "htb");
  struct rtattr *options = put(&request, TCA_OPTIONS, NULL, 0);
  put(&request, TCA_HTB_INIT, &shape, sizeof shape);
  close_nest(&request, options);
  return ask(netlink, &request);
}

static int add_class(int netlink, uint32_t class, uint64_t bytes_s) {
  struct request request;
  struct tcmsg about = {.tcm_ifindex = LOOPBACK_INDEX, .tcm_parent = ROOT, .tcm_handle = class};
  uint64_t burst = bytes_s / 1000u * BURST_MS;
  if (burst < BURST_BYTES_MIN) burst = BURST_BYTES_MIN;
  double ticks = (double)burst * 1e9 / (double)bytes_s / TICK_NS;
  uint32_t buffer = ticks > 4e9 ? 4000000000u : (uint32_t)ticks + 1;
  bool wide = bytes_s > UINT32_MAX;
  struct tc_htb_opt shape = {.buffer = buffer, .cbuffer = buffer, .quantum = 65536};
  shape.rate.rate = shape.ceil.rate = wide ? UINT32_MAX : (uint32_t)bytes_s;
  shape.rate.linklayer = shape.ceil.linklayer = TC_LINKLAYER_ETHERNET;
  begin(&request, RTM_NEWTCLASS, &about, "htb");
  struct rtattr *options = put(&request, TCA_OPTIONS, NULL, 0);
  if (wide) {
    put(&request, TCA_HTB_RATE64, &bytes_s, sizeof bytes_s);
    put(&request, TCA_HTB_CEIL64, &bytes_s, sizeof bytes_s);
  }
  put(&request, TCA_HTB_PARMS, &shape, sizeof shape);
  close_nest(&request, options);
  return ask(netlink, &request);
}

/* Packets to the proxy's port go up, packets from it come down, all others pass by. A class that
 * does not exist, because its direction is not limited, lets them pass too. */
static int add_filter(int netlink, uint32_t port) {
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ETH_HLEN + 9), /* protocol */
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_TCP, 0, 5),
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, ETH_HLEN), /* the header's length, with its options */
      BPF_STMT(BPF_LD | BPF_H | BPF_IND, ETH_HLEN + 2),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 3, 0),
      BPF_STMT(BPF_LD | BPF_H | BPF_IND, ETH_HLEN),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 2, 0),
      BPF_STMT(BPF_RET | BPF_K, 0),
      BPF_STMT(BPF_RET | BPF_K, UP),
      BPF_STMT(BPF_RET | BPF_K, DOWN),
  };
  uint16_t length = sizeof program / sizeof *program;
  struct request request;
  struct tcmsg about = {.tcm_ifindex = LOOPBACK_INDEX, .tcm_parent = ROOT};
  about.tcm_info = TC_H_MAKE(1u << 16, htons(ETH_P_IP));
  begin(&request, RTM_NEWTFILTER, &about, "bpf");
  struct rtattr *options = put(&request, TCA_OPTIONS, NULL, 0);
  put(&request, TCA_BPF_OPS_LEN, &length, sizeof length);
  put(&request, TCA_BPF_OPS, program, sizeof program);
  close_nest(&request, options);
  return ask(netlink, &request);
}

static const char *shape(const struct network *network, int netlink) {
  if (add_root(netlink)) return "netlink(htb)";
  if (network->up_bytes_s && add_class(netlink, UP, network->up_bytes_s)) return "netlink(htb class)";
  if (network->down_bytes_s && add_class(netlink, DOWN, network->down_bytes_s))
    return "netlink(htb class)";
  return add_filter(netlink, network->port) ? "netlink(cls_bpf)" : NULL;
}

static const char *raise_loopback(bool shaped) {
  struct ifreq request = {.ifr_name = "lo"};
  int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (any < 0) return "socket(loopback)";
  const char *failed = NULL;
  request.ifr_mtu = SHAPED_MTU;
  if (shaped && ioctl(any, SIOCSIFMTU, &request)) failed = "ioctl(SIOCSIFMTU)";
  request.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
  if (!failed && ioctl(any, SIOCSIFFLAGS, &request)) failed = "ioctl(SIOCSIFFLAGS)";
  int error = errno;
  close(any);
  errno = error;
  return failed;
}

static const char *bound_buffers(void) {
  static const char *const settings[] = {"/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"};
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    int fd = open(settings[i], O_WRONLY | O_CLOEXEC);
    if (fd < 0) return "open(tcp buffers)";
    ssize_t wrote = write(fd, TCP_BUFFERS, sizeof TCP_BUFFERS - 1);
    int error = errno;
    close(fd);
    errno = error;
    if (wrote < 0) return "write(tcp buffers)";
  }
  return NULL;
}

static const char *listen_on(uint32_t port, int *listener) {
  const int bytes = BUFFER_BYTES;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  *listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (*listener < 0) return "socket(proxy)";
  if (setsockopt(*listener, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) ||
      setsockopt(*listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes))
    return "setsockopt(proxy)";
  if (bind(*listener, (struct sockaddr *)&address, sizeof address)) return "bind(proxy)";
  return listen(*listener, WAITING_MAX) ? "listen(proxy)" : NULL;
}

const char *network_make(struct network *network) {
  if (network->mode == NETWORK_NONE) return NULL;
  bool shaped = network->up_bytes_s || network->down_bytes_s;
  const char *failed = bound_buffers();
  if (!failed) failed = raise_loopback(shaped);
  if (failed || network->mode == NETWORK_LOOPBACK) return failed;
  network->fds[1] = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (network->fds[1] < 0) return "socket(netlink)";
  if (shaped && (network->unshaped = shape(network, network->fds[1]))) network->unshaped_error = errno;
  return listen_on(network->port, &network->fds[0]);
}

void network_close(struct network *network) {
  for (int i = 0; i < 2; i++)
    if (network->fds[i] >= 0) close(network->fds[i]);
  network->fds[0] = network->fds[1] = -1;
}
