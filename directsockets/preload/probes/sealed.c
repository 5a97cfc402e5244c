#include "probe.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

/* Probes of processes that restrict their system calls: the kernel ends them if they make one that
 * plain sockets do not need. */

enum { SIZE = 20000 };
static char data[SIZE], buf[SIZE];

/* The kernel allows only the n calls at nr, or with `all` all others. */
static void restrict_to(const int *nr, int n, int all)
{
	struct sock_filter f[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	struct sock_fprog p = {(unsigned short)(n + 3), f};

	for (int i = 0; i < n; i++)
		f[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)nr[i], (unsigned char)(n - i), 0);
	f[n + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, (unsigned)(all ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS));
	f[n + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, (unsigned)(all ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ALLOW));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		die("seccomp");
}

/* The calls that the functions below make. */
static void restrict_to_plain(void)
{
	static const int plain[] = {SYS_read, SYS_write, SYS_close, SYS_socket, SYS_connect, SYS_accept, SYS_accept4,
#ifdef SYS_epoll_wait
		SYS_epoll_wait,
#endif
		SYS_epoll_pwait, SYS_epoll_create1, SYS_epoll_ctl, SYS_exit, SYS_exit_group};

	restrict_to(plain, sizeof plain / sizeof *plain, 0);
}

/* Bytes back and forth. */
static void exchange(int c, int s)
{
	int bad = 0;

	for (int i = 0; i < 200; i++) {
		char a = (char)i, b = 0;
		put(c, &a, 1);
		get(s, &b, 1);
		put(s, &b, 1);
		get(c, &b, 1);
		bad += a != b;
	}
	out("%d wrong", bad);
}

/* A connection to a server in a sandbox of the same process, made in it. */
static void another(int l, const struct sockaddr_in *addr)
{
	int ep = epoll_create1(0), c = socket(AF_INET, SOCK_STREAM, 0);

	R(connect(c, (const struct sockaddr *)addr, sizeof *addr));
	int s = accept(l, NULL, NULL);
	R(ep_set(ep, EPOLL_CTL_ADD, s, EPOLLIN, 80));
	exchange(c, s);
	put(c, "x", 1);
	ep_show(ep, 4, -1);
	R(close(c));
	R(read(s, buf, 2));
	R(read(s, buf, 2));
	R(close(s));
	R(close(ep));
}

/* Three sets that s is in: level-triggered, edge-triggered, once. */
static void watch(int s, int ep[3])
{
	for (int i = 0; i < 3; i++)
		ep[i] = ep_new();
	ep_set(ep[0], EPOLL_CTL_ADD, s, EPOLLIN, 77);
	ep_set(ep[1], EPOLL_CTL_ADD, s, EPOLLIN | EPOLLET, 78);
	ep_set(ep[2], EPOLL_CTL_ADD, s, EPOLLIN | EPOLLONESHOT, 79);
	put(s, "first", 5);
	for (int i = 0; i < 3; i++)
		ep_show(ep[i], 4, -1);
	get(s, buf, 5);
	ep_show(ep[0], 4, 0);
}

/* The peer of s answers with what it is sent. */
static void in_sandbox(int s)
{
	struct sockaddr_in addr;
	int ep[3], l = listener(&addr);

	watch(s, ep);
	restrict_to_plain();
	for (int i = 0; i < 3; i++) {
		put(s, "again", 5);
		ep_show(ep[0], 4, -1);
		ep_show(ep[1], 4, -1);
		ep_show(ep[2], 4, 0);
		get(s, buf, 5);
		ep_set(ep[2], EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 81);
		put(s, "more", 4);
		ep_show(ep[2], 4, -1);
		ep_show(ep[1], 4, -1);
		get(s, buf, 4);
	}
	put(s, data, SIZE);
	size_t n = get(s, buf, SIZE);
	out("%zu, %s", n, memcmp(data, buf, SIZE) ? "wrong" : "right");
	another(l, &addr);
	another(l, &addr);
	R(close(l));
	R(close(s));
	R(epoll_wait(ep[0], &(struct epoll_event){0}, 1, 0));
	exit(0);
}

static void answered(void)
{
	int c, s;
	ssize_t n;

	fill(data, SIZE, 3);
	pair(&c, &s);
	pid_t pid = fork();
	if (pid == 0) {
		close(c);
		in_sandbox(s);
	}
	close(s);
	while ((n = read(c, buf, sizeof buf)) > 0)
		put(c, buf, (size_t)n);
	finish(pid);
}

/* The program of `executed`. */
int sealed_program(void)
{
	int c, s;

	pair_cold(&c, &s);
	exchange(c, s);
	return 0;
}

/* The program that a process in a sandbox executes is in it, too. It may do all but what only
 * direct sockets need. */
static void executed(void)
{
	static const int direct_only[] = {SYS_memfd_create, SYS_sendmsg, SYS_recvmsg, SYS_socketpair, SYS_getpeername, SYS_sched_yield};
	int c, s;

	pair(&c, &s);
	pid_t pid = fork();
	if (pid == 0) {
		close(c);
		close(s);
		restrict_to(direct_only, sizeof direct_only / sizeof *direct_only, 1);
		execl("/proc/self/exe", "probes", "inherited", "sealed", "9", NULL);
		_exit(127);
	}
	finish(pid);
}

const struct probe sealed_probes[] = {
	{"sealed", answered, 0},
	{"sealed-exec", executed, 0},
	{NULL, NULL, 0},
};
