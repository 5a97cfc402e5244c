#include "ends.h"

#include <libgen.h>

int listener;
struct sockaddr_in at;

ssize_t put(struct side *a, const void *p, size_t n, int flags)
{
	struct iovec v = {(void *)p, n};
	return ds_send(a->s, a->fd, &v, 1, flags | MSG_NOSIGNAL);
}

ssize_t get(struct side *a, void *p, size_t n, int flags)
{
	struct iovec v = {p, n};
	return ds_recv(a->s, a->fd, &v, 1, flags);
}

void put_all(struct side *a, const uint8_t *p, size_t n)
{
	while (n) {
		ssize_t r = put(a, p, n, 0);
		CHECK(r > 0, "send: %s", strerror(errno));
		if (r <= 0)
			exit(1);
		p += r;
		n -= (size_t)r;
	}
}

void connect_plain(struct side *a)
{
	a->fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(a->fd, (struct sockaddr *)&at, sizeof at) == 0, "%s", strerror(errno));
	a->life = (struct ds_life){0};
	ds_life_begin(&a->life, CONN_ON_SOCKET, DS_NONBLOCK_UNKNOWN);
	ds_life_connect(&a->life, false);
	ds_life_connected(&a->life, a->fd);
	a->s = a->life.s;
}

void accept_plain(struct side *a)
{
	a->fd = accept(listener, NULL, NULL);
	a->life = (struct ds_life){0};
	ds_life_begin(&a->life, CONN_ON_ACCEPT, DS_NONBLOCK_UNKNOWN);
	ds_life_connected(&a->life, a->fd);
	a->s = a->life.s;
}

void hang_up_plain(struct side *a)
{
	if (a->s)
		ds_close(a->s, a->fd);
	close(a->fd);
}

void connect_to(struct side *a)
{
	connect_plain(a);
	CHECK(a->s && !ds_plain(a->s), "client stays plain");
}

void accept_from(struct side *a)
{
	accept_plain(a);
	CHECK(a->s && !ds_plain(a->s), "server stays plain");
}

void hang_up(struct side *a)
{
	ds_close(a->s, a->fd);
	close(a->fd);
}

void exchange(struct side *c, struct side *s, int i)
{
	uint8_t b[4];

	CHECK(put(c, "ab", 2, 0) == 2 && get(s, b, 2, MSG_WAITALL) == 2 && !memcmp(b, "ab", 2), "there %d", i);
	CHECK(put(s, "cd", 2, 0) == 2 && get(c, b, 2, MSG_WAITALL) == 2 && !memcmp(b, "cd", 2), "back %d", i);
	usleep(100);
}

void pair_up(struct side *c, struct side *s)
{
	connect_to(c);
	accept_from(s);
	int64_t end = ds_now() + 60000000000;
	for (int i = 0; ds_now() < end && (ds_direct(c->s) & ds_direct(s->s)) != 3; i++)
		exchange(c, s, i);
	CHECK(ds_direct(c->s) == 3 && ds_direct(s->s) == 3, "%d %d", ds_direct(c->s), ds_direct(s->s));
}

pid_t ends_start(char *path, size_t n)
{
	socklen_t len = sizeof at;

	setvbuf(stdout, NULL, _IONBF, 0);
	/* Not by the process's number, which it may have in several PID namespaces. */
	char dir[] = "/tmp/exnds-test-XXXXXX";
	if (!mkdtemp(dir))
		abort();
	snprintf(path, n, "%s/broker", dir);
	setenv("EXNET_DS_SENDS", "1", 1);
	setenv("EXNET_DS_WELCOME", "60000", 1); /* on a busy machine the broker takes its time */
	pid_t broker = broker_start(path);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&at, sizeof at) < 0 || listen(listener, 64) < 0 ||
	    getsockname(listener, (struct sockaddr *)&at, &len) < 0)
		abort();
	CHECK(ds_listen(listener), "listen");
	while (!ds_page_listeners(ntohs(at.sin_port)))
		usleep(1000);
	return broker;
}

void ends_stop(pid_t broker, char *path)
{
	broker_stop(broker, path);
	rmdir(dirname(path));
}

int open_fds(void)
{
	int n = 0;

	for (int i = 0; i < 8192; i++)
		n += fcntl(i, F_GETFD) >= 0;
	return n;
}
