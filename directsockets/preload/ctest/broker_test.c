// Connections whose broker stops, refuses, or restarts.
#include "ends.h"

#include "conn/broker.h"
#include "conn/inner.h"
#include "small_broker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

struct late {
	int fd, n;
};

// A peer that begins to read late.
static void *read_late(void *arg)
{
	struct late *l = arg;
	static uint8_t b[400000];

	usleep(300000);
	while (l->n > 0)
		l->n -= (int)recv(l->fd, b, sizeof b, 0);
	return NULL;
}

// What the server sees of a client that closes while its offer is on its way to a broker that has
// stopped: what it would of the kernel. How: 0 as it is, 1 with SO_LINGER 0, 2 with unread data, 3
// with SO_LINGER and a peer that reads late; from 4 on the same, of a server's CLAIM.
static void part_early(pid_t broker, int how)
{
	struct side c, s, *closes = how < 4 ? &c : &s, *other = how < 4 ? &s : &c;
	struct linger l = {1, how % 4 == 3 ? 3 : 0};
	static uint8_t b[400000];
	int n = 40000, type;

	connect_to(&c);
	accept_from(&s);
	if (how % 4 == 3)
		setsockopt(other->fd, SOL_SOCKET, SO_RCVBUF, &n, sizeof n);
	if (how < 4)
		kill(broker, SIGSTOP);
	for (int i = 0; i < 3; i++)
		put(&c, "x", 1, 0); // the last one finds that the connection lives, and offers
	if (how >= 4) {
		while (!(ds_page_offers(s.s->bucket) & 0xffff))
			usleep(1000);
		kill(broker, SIGSTOP);
	}
	get(&s, b, 3, MSG_WAITALL); // claims
	CHECK(closes->s->state == (how < 4 ? CONN_OFFERED : CONN_CLAIMED), "%d: the broker was shown nothing", how);
	if (how % 4 == 1)
		setsockopt(closes->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	if (how % 4 == 2) {
		CHECK(put(other, "x", 1, 0) == 1, "unread");
		while (ioctl(closes->fd, DS_INQ, &type) == 0 && type == 0)
			usleep(1000);
	}
	if (how % 4 == 3) {
		setsockopt(closes->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
		fcntl(closes->fd, F_SETFL, O_NONBLOCK);
		n = (int)send(closes->fd, b, sizeof b, MSG_NOSIGNAL);
		int64_t begin = ds_now();
		struct late l2 = {other->fd, n};
		pthread_t reader;
		pthread_create(&reader, NULL, read_late, &l2);
		ds_close(closes->s, closes->fd);
		close(closes->fd);
		CHECK(ds_now() - begin > 250000000, "%d: did not linger", how);
		pthread_join(reader, NULL);
	} else {
		ds_close(closes->s, closes->fd);
		close(closes->fd);
	}
	struct pollfd p = {other->fd, POLLIN, 0};
	CHECK(poll(&p, 1, 60000) == 1, "%d: the end does not come", how);
	ssize_t r = recv(other->fd, b, 1, MSG_DONTWAIT);
	if (how % 4 == 1 || how % 4 == 2)
		CHECK(r < 0 && errno == ECONNRESET, "%d: %zd %s", how, r, strerror(errno));
	else
		CHECK(r == 0, "%d: %zd %s", how, r, strerror(errno));
	kill(broker, SIGCONT);
	hang_up(other);
}

// An offer that was refused is made again: the connection becomes direct all the same. One that is
// refused repeatedly is given up, and what was kept for it.
static void offered_again(void)
{
	struct side c, s;
	uint8_t b[1];
	bool seen = false;
	int fds = open_fds();

	__atomic_store_n(broker_refuses, 1, __ATOMIC_RELEASE);
	connect_to(&c);
	accept_from(&s);
	for (int64_t end = ds_now() + 60000000000; ds_now() < end && (ds_direct(c.s) & ds_direct(s.s)) != 3; usleep(1000)) {
		CHECK(put(&c, "a", 1, 0) == 1 && get(&s, b, 1, 0) == 1 && put(&s, "b", 1, 0) == 1 && get(&c, b, 1, 0) == 1, "echo");
		seen |= c.s->entry->reason == DS_WHY_EXPIRED;
	}
	CHECK(seen, "it was not refused");
	CHECK(ds_direct(c.s) == 3 && ds_direct(s.s) == 3, "%d %d", ds_direct(c.s), ds_direct(s.s));
	CHECK(c.s->offered[1] < 0, "the doorbell of the peer is kept");
	hang_up(&c);
	hang_up(&s);
	__atomic_store_n(broker_refuses, 1, __ATOMIC_RELEASE);
	connect_to(&c);
	accept_from(&s);
	c.s->tries = 200; /* as if it had been often */
	for (int64_t end = ds_now() + 60000000000; ds_now() < end && c.s->entry->reason != DS_WHY_EXPIRED; usleep(1000)) {
		CHECK(put(&c, "a", 1, 0) == 1 && get(&s, b, 1, 0) == 1, "there");
		if (c.s->state == CONN_OFFERED)
			c.s->tries = 200;
	}
	CHECK(c.s->entry->reason == DS_WHY_EXPIRED && c.s->offered[1] < 0, "reason %d, kept %d", c.s->entry->reason, c.s->offered[1]);
	hang_up(&c);
	hang_up(&s);
	CHECK(open_fds() == fds, "%d descriptors, %d before", open_fds(), fds);
}

/* A broker that restarts: what is direct stays direct, the listener is announced again, and new
 * connections become direct. Returns the new broker. */
static pid_t restarts(pid_t broker, const char *path)
{
	struct side c, s;
	uint8_t b[1];

	pair_up(&c, &s);
	broker_stop(broker, path);
	broker = broker_start(path);
	CHECK(put(&c, "x", 1, 0) == 1 && get(&s, b, 1, 0) == 1, "without a broker");
	usleep(1100000); // it looks once a second
	for (int i = 0; i < 600 && (i == 0 || !ds_page_listeners(ntohs(at.sin_port))); i++) {
		struct side c2, s2;

		connect_plain(&c2);
		accept_plain(&s2);
		hang_up_plain(&c2);
		hang_up_plain(&s2);
		usleep(100000);
	}
	hang_up(&c);
	hang_up(&s);
	pair_up(&c, &s);
	hang_up(&c);
	hang_up(&s);
	return broker;
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);
	struct side c, s;

	pair_up(&c, &s); // what the first connection opens stays open
	hang_up(&c);
	hang_up(&s);
	int fds = open_fds();
	for (int how = 0; how < 8; how++)
		part_early(broker, how);
	offered_again();
	broker = restarts(broker, path);
	CHECK(open_fds() == fds, "%d descriptors, %d before", open_fds(), fds);
	ends_stop(broker, path);
	printf("broker: %d failed\n", failures);
	return failures != 0;
}
