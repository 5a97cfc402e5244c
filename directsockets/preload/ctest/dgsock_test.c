// UDP sockets without flows: what is told of them, whose they are, and how they are freed.
#include "flow.h"

#include "conn/sock.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

// --explain has an entry that says why no flow leads from a socket.
static void told(void)
{
	struct sockaddr_in from, to;
	struct ds_dgram *d = ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN);
	int fd = udp_socket(&from), peer = udp_socket(&to);

	for (int i = 0; i < 8; i++)
		ds_dg_counted(d, fd, &to, sizeof to);
	struct ds_entry *e = d->line;
	CHECK(e && e->udp == 1 && e->mode == DS_MODE_TCP, "no entry, or it is none of UDP");
	CHECK(!e || e->reason == DS_WHY_ADDRESS_NOT_WANTED, "reason %d", e->reason); // EXNET_LOOPBACK is not set
	CHECK(!e || (e->port[0] == ntohs(from.sin_port) && e->port[1] == ntohs(to.sin_port)), "ports %d, %d", e->port[0], e->port[1]);
	ds_dg_put(d);
	CHECK(!e || e->mode == DS_MODE_CLOSED, "it is closed");
	close(fd);
	close(peer);
}

// What is the kernel's without a look at the socket's table: not while a flow leads from it, nor
// where somebody takes flows; always, if the socket is the kernel's.
static void plain(void)
{
	static uint16_t receivers[1 << 16];
	struct sockaddr_in from, to;
	struct ds_dgram *d = ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN);
	int fd = udp_socket(&from);
	const struct sockaddr *peer = (const struct sockaddr *)&to;
	const struct sockaddr *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	to = from;
	CHECK(ds_readable(&to, sizeof to) && !ds_dg_plain(d, peer, sizeof to), "no page is there");
	ds_udp_receivers = receivers;
	CHECK(ds_dg_plain(d, peer, sizeof to), "nobody takes flows");
	CHECK(!ds_dg_plain(d, peer, 4), "that is no address");
	CHECK(!ds_dg_plain(d, nowhere, sizeof to), "nor is this");
	receivers[ntohs(to.sin_port)] = 1;
	CHECK(!ds_dg_plain(d, peer, sizeof to), "somebody takes flows");
	CHECK(ds_dg_plain(d, NULL, 0), "it has no peer");
	d->peer.port = ntohs(to.sin_port);
	CHECK(!ds_dg_plain(d, NULL, 0), "its peer takes flows");
	receivers[ntohs(to.sin_port)] = 0;
	d->nout = 1;
	CHECK(!ds_dg_plain(d, peer, sizeof to) && !ds_dg_plain(d, NULL, 0), "a flow leads from it");
	d->nout = 0;
	receivers[ntohs(to.sin_port)] = 1;
	d->hard = true;
	CHECK(ds_dg_plain(d, peer, sizeof to), "it is the kernel's");
	ds_udp_receivers = NULL;
	ds_dg_put(d);
	close(fd);
}

// A call that has found the descriptor before another thread closed it holds the socket for a
// moment: neither that one nor the next at its place is freed by this.
static void late_call(void)
{
	struct ds_dgram *d = ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN);

	ds_dg_put(d);
	ds_dg_hold(d);
	ds_dg_put(d);
	struct ds_dgram *one = ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN), *two = ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN);
	CHECK(one != two, "its place was freed twice");
	ds_dg_put(two);
	ds_dg_put(one);
	ds_dg_hold(one);
	two = ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN);
	CHECK(two == one, "the places are not taken by turns: the test shows nothing");
	ds_dg_put(one);
	CHECK(two->open && ds_dg_by_id(two->id) == two, "a late call has freed the next socket");
	ds_dg_put(two);
}

// After a fork that was not prepared both processes have all sockets for good.
static void unprepared(void)
{
	struct ds_dgram *d = ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN);
	int status;

	CHECK(!ds_dg_shared(d), "before");
	pid_t pid = fork();
	if (pid == 0) {
		ds_dg_forked_unprepared(true);
		_exit(!ds_dg_shared(d));
	}
	ds_dg_forked_unprepared(false);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child has it alone: %d", status);
	CHECK(ds_dg_shared(d), "the parent has it alone");
	ds_dg_put(d);
}

// Many processes that are made and end between two looks do not make a socket the kernel's for
// good.
static void many(void)
{
	enum { PROCESSES = 40 };
	struct ds_dgram *d = ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN);
	int fds[2];

	for (int i = 0; i < PROCESSES; i++) {
		CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
		ds_dg_add_relative(fds[0]);
		if (i == PROCESSES - 1)
			CHECK(ds_dg_shared(d), "the last one has it, too");
		close(fds[1]);
	}
	CHECK(ds_dg_shared(d) == DG_UNREAD, "all have ended");
	ds_dg_put(d);
}

// ---- sockets that other threads make while one forks

enum { FORKS = 100 };

static int made_enough;

static void *make_sockets(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&made_enough, __ATOMIC_ACQUIRE)) {
		struct ds_dgram *d = ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN);
		if (d)
			ds_dg_put(d);
	}
	return NULL;
}

static int unshared;

static void count_unshared(struct ds_dgram *d, void *arg)
{
	(void)arg;
	unshared += d->relatives == 0;
}

// A child can make sockets, and each that it has is known to be its parent's, too.
static void forked(void)
{
	pthread_t th;
	int status;

	pthread_create(&th, NULL, make_sockets, NULL);
	for (int i = 0; i < FORKS && !failures; i++) {
		ds_fork_prepare();
		ds_dg_forking();
		pid_t pid = fork();
		if (pid == 0) {
			alarm(20); // it hangs
			ds_dg_forked(0);
			ds_fork_child();
			ds_dg_each(count_unshared, NULL);
			_exit(!ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN) ? 2 : unshared != 0);
		}
		ds_dg_forked(pid);
		ds_fork_parent(pid);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0, "fork %d: status %x", i, status);
	}
	__atomic_store_n(&made_enough, 1, __ATOMIC_RELEASE);
	pthread_join(th, NULL);
}

// What an IPv6 socket says with a datagram to an IPv4 address makes it the kernel's, which is
// counted by its source and as a train: both are read.
static void mapped(void)
{
	static const uint8_t to[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}, source[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 2};
	struct ds_dgram *d = ds_dg_new(AF_INET6, DS_NONBLOCK_UNKNOWN);

	for (int four = 0; four < 2; four++) {
		union {
			char b[CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(uint16_t))];
			struct cmsghdr align;
		} u = {.b = {0}};
		struct msghdr h = {.msg_control = u.b, .msg_controllen = sizeof u.b};
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);
		struct ds_dg_says s = {.tos = -1, .ttl = -1};
		struct in_pktinfo of4 = {.ipi_spec_dst.s_addr = htonl(INADDR_LOOPBACK + 1)};
		struct in6_pktinfo of6 = {.ipi6_ifindex = 0};

		memcpy(&of6.ipi6_addr, source, sizeof source);
		c->cmsg_level = four ? IPPROTO_IP : IPPROTO_IPV6;
		c->cmsg_type = four ? IP_PKTINFO : IPV6_PKTINFO;
		c->cmsg_len = four ? CMSG_LEN(sizeof of4) : CMSG_LEN(sizeof of6);
		memcpy(CMSG_DATA(c), four ? (void *)&of4 : (void *)&of6, c->cmsg_len - CMSG_LEN(0));
		c = CMSG_NXTHDR(&h, c);
		c->cmsg_level = IPPROTO_UDP;
		c->cmsg_type = UDP_SEGMENT;
		c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
		memcpy(CMSG_DATA(c), &(uint16_t){1000}, sizeof(uint16_t));
		h.msg_controllen = (size_t)((char *)c - u.b) + CMSG_SPACE(sizeof(uint16_t));
		CHECK(!ds_dg_control(d, &h, to, &s), "it is not the kernel's");
		CHECK(s.sourced && !memcmp(s.source, source, sizeof source), "of IPv%d: the source is not known", four ? 4 : 6);
		CHECK(s.train == 1000, "of IPv%d: it is no train", four ? 4 : 6);
	}
	ds_dg_put(d);
}

static void harden(void *d) { ds_dg_harden(d, DS_WHY_PROGRAM); }

// A socket that becomes the kernel's is announced no more, even if the lock for that is taken then.
static void forgotten(bool locked)
{
	struct ds_dgram *d = ds_dg_new(AF_INET, DS_NONBLOCK_UNKNOWN);
	uint32_t id = d->id;

	ds_dg_setup_on(d, DG_ON_LISTEN);
	if (locked)
		ds_setup_do(harden, d);
	else
		harden(d);
	CHECK(d->setup == DG_SETUP_QUIET, "setup %d", d->setup);
	CHECK(d->id != id, "what the broker says of the announcement is still the socket's");
	ds_dg_put(d);
}

int main(void)
{
	setenv("EXNET_EXPLAIN", "1", 1);
	setenv("EXNET_BROKER", "/no/broker", 1);
	told();
	plain();
	mapped();
	many();
	forked();
	late_call();
	forgotten(false);
	forgotten(true);
	unprepared();
	CHECK(ds_dg_missteps == 0, "%u steps that no table has", ds_dg_missteps);
	if (failures)
		return 1;
	printf("ok\n");
	return 0;
}
