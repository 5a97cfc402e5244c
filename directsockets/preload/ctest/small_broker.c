#define _GNU_SOURCE
#include "small_broker.h"

#include "conn/broker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { CLIENTS = 256, OFFERS = 512, PAGE = 151552 };

static struct offer {
	struct ds_info info;
	int segment, bell, client;
} offers[OFFERS];
static uint8_t agreed[1024]; /* the version of each connection, by its descriptor; 0: not greeted */
static int noffers, clients[CLIENTS], nclients, page;
static uint8_t *mem;
int *broker_refuses, *broker_reason, *broker_hangs_up, *broker_fault, *broker_newest;
static int *serving; // a message; shared with the broker

static void count(const struct ds_info *info, int by)
{
	uint32_t *word = (uint32_t *)(void *)(mem + 131136) + ds_bucket(info);
	uint32_t w = *word;

	w = ((w & 0xffff) + (uint32_t)by) | ((w >> 16) + (by > 0)) << 16;
	__atomic_store_n(word, w, __ATOMIC_RELEASE);
}

static void drop(int i)
{
	count(&offers[i].info, -1);
	close(offers[i].segment);
	close(offers[i].bell);
	offers[i] = offers[--noffers];
}

static void say_once(int fd, struct ds_message *m, int *fds, int n)
{
	uint8_t b[DS_MESSAGE];
	char control[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct iovec v = {b, ds_message_put(b, m)};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};

	if (n) {
		h.msg_control = control;
		h.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
	}
	sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The answer that is late. */
static struct {
	bool is;
	int fd;
	struct ds_message m;
	int fds[2], n;
} late;

static void say_late(void)
{
	if (!late.is)
		return;
	late.is = false;
	say_once(late.fd, &late.m, late.fds, late.n);
	while (late.n)
		close(late.fds[--late.n]);
}

/* As say_once; with a fault of broker_fault, for what is no answer to HELLO. */
static void say(int fd, struct ds_message *m, int *fds, int n)
{
	int fault = __atomic_load_n(broker_fault, __ATOMIC_ACQUIRE);

	if (m->type != DS_WELCOME && fault == BROKER_LATE && !late.is) {
		late.is = true;
		late.fd = fd;
		late.m = *m;
		late.n = n;
		for (int i = 0; i < n; i++)
			late.fds[i] = dup(fds[i]);
		return;
	}
	say_once(fd, m, fds, n);
	if (m->type != DS_WELCOME && fault == BROKER_TWICE)
		say_once(fd, m, fds, n);
	say_late();
}

/* The version of a connection that begins with this HELLO. */
static uint32_t greeted(const struct ds_message *hello)
{
	int said = __atomic_load_n(broker_newest, __ATOMIC_ACQUIRE);
	uint32_t newest = said ? (uint32_t)said : DS_NEWEST;

	return hello->id < hello->version ? hello->version : hello->id < newest ? hello->id : newest;
}

/* With broker_hangs_up as it is, refuses a client for which there is no room. */
static bool full(int fd, int when)
{
	if (__atomic_load_n(broker_hangs_up, __ATOMIC_ACQUIRE) != when)
		return false;
	if (when != BROKER_ENDS_AT_ONCE)
		say_once(fd, &(struct ds_message){.type = DS_REFUSED, .reason = 4}, NULL, 0);
	return true;
}

static bool serve(int fd)
{
	uint8_t b[DS_MESSAGE];
	char control[CMSG_SPACE(8 * sizeof(int))];
	struct iovec v = {b, sizeof b};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct ds_message m, answer = {0};
	ssize_t n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC);
	int fds[8], nfds = 0;

	for (struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&h) : NULL; c; c = CMSG_NXTHDR(&h, c)) {
		nfds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), (size_t)nfds * sizeof(int));
	}
	if (n <= 0 || !ds_message_get(&m, b, (size_t)n) || (m.type != DS_HELLO && m.version != agreed[fd]))
		return false;
	if (m.type == DS_CLAIM && __atomic_load_n(broker_fault, __ATOMIC_ACQUIRE) == BROKER_DIES) {
		__atomic_store_n(broker_fault, BROKER_FINE, __ATOMIC_RELEASE);
		while (nfds)
			close(fds[--nfds]);
		return false;
	}
	answer.id = m.id;
	answer.version = agreed[fd];
	switch (m.type) {
	case DS_HELLO:
		if (__atomic_load_n(broker_hangs_up, __ATOMIC_ACQUIRE)) {
			close(fds[0]);
			return false;
		}
		answer.type = DS_WELCOME;
		answer.version = agreed[fd] = (uint8_t)greeted(&m);
		say(fd, &answer, &page, 1);
		break;
	case DS_LISTEN:
		__atomic_fetch_add((uint16_t *)(void *)(mem + 64) + m.info.port[1], 1, __ATOMIC_RELEASE);
		break;
	case DS_OFFER: {
		if (__atomic_load_n(broker_refuses, __ATOMIC_ACQUIRE) > 0) {
			__atomic_fetch_sub(broker_refuses, 1, __ATOMIC_ACQ_REL);
			answer.type = DS_REFUSED;
			answer.reason = (uint8_t)__atomic_load_n(broker_reason, __ATOMIC_ACQUIRE);
			say(fd, &answer, NULL, 0);
			break;
		}
		struct offer *o = &offers[noffers++];
		o->info = m.info;
		o->segment = fds[1];
		o->bell = fds[2];
		o->client = fd;
		close(fds[0]);
		nfds = 0;
		count(&o->info, 1);
		break;
	}
	case DS_WITHDRAW:
		for (int i = 0; i < noffers; i++)
			if (!memcmp(offers[i].info.nonce, m.info.nonce, 16))
				drop(i--);
		break;
	case DS_CLAIM: {
		struct ds_info info = m.info;
		answer.type = DS_NO_OFFER;
		for (int i = 0; i < noffers; i++)
			if (!memcmp(offers[i].info.addr, info.addr, 32) && !memcmp(offers[i].info.port, info.port, 4)) {
				answer.type = DS_GRANT;
				answer.info = offers[i].info;
				say(fd, &answer, (int[]){offers[i].segment, offers[i].bell}, 2);
				drop(i);
				break;
			}
		if (answer.type == DS_NO_OFFER)
			say(fd, &answer, NULL, 0);
		break;
	}
	}
	while (nfds)
		close(fds[--nfds]);
	return true;
}

static void run(int listener)
{
	struct pollfd p[CLIENTS + 1];

	for (;;) {
		p[0] = (struct pollfd){.fd = listener, .events = POLLIN};
		for (int i = 0; i < nclients; i++)
			p[i + 1] = (struct pollfd){.fd = clients[i], .events = POLLIN};
		__atomic_store_n(serving, 0, __ATOMIC_RELEASE);
		int n = poll(p, (nfds_t)nclients + 1, late.is ? 20 : -1);
		__atomic_store_n(serving, 1, __ATOMIC_RELEASE);
		if (n == 0)
			say_late();
		if (n <= 0)
			continue;
		for (int i = nclients; i-- > 0;)
			if (p[i + 1].revents && (full(clients[i], BROKER_FULL) || !serve(clients[i]))) {
				for (int k = 0; k < noffers; k++)
					if (offers[k].client == clients[i])
						drop(k--);
				if (late.is && late.fd == clients[i])
					late.fd = -1;
				close(clients[i]);
				clients[i] = clients[--nclients];
			}
		if (p[0].revents && nclients < CLIENTS) {
			int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

			if (full(fd, BROKER_FULL_AT_ONCE) || full(fd, BROKER_ENDS_AT_ONCE))
				close(fd);
			else
				clients[nclients++] = fd;
		}
	}
}

/* own is the path of this process's socket. */
static char own[sizeof((struct sockaddr_un *)0)->sun_path];

/* orphaned removes the socket, and its directory if the test has made one: the test was killed. */
static void orphaned(int signal)
{
	(void)signal;
	unlink(own);
	for (size_t i = strlen(own); i > 0; i--)
		if (own[i] == '/') {
			own[i] = 0;
			break;
		}
	rmdir(own);
	_exit(1);
}

pid_t broker_start(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	uint32_t version = 1;
	pid_t pid;

	strcpy(a.sun_path, path);
	unlink(path);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 64) < 0)
		abort();
	if (!broker_refuses) {
		broker_refuses = mmap(NULL, 6 * sizeof *broker_refuses, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		broker_hangs_up = broker_refuses + 1;
		broker_reason = broker_refuses + 2;
		broker_fault = broker_refuses + 3;
		broker_newest = broker_refuses + 4;
		serving = broker_refuses + 5;
		*broker_reason = 2;
	}
	page = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ftruncate(page, PAGE) < 0)
		abort();
	mem = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
	memcpy(mem, "EXTDSPG\x01", 8);
	memcpy(mem + 8, &version, 4);
	fcntl(page, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	setenv("EXNET_BROKER", path, 1);
	setenv("EXNET_LOOPBACK", "1", 1);
	pid = fork();
	if (pid == 0) {
		snprintf(own, sizeof own, "%s", path);
		signal(SIGTERM, orphaned);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		run(fd);
	}
	close(fd);
	close(page);
	return pid;
}

void broker_stop(pid_t pid, const char *path)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(path);
	munmap(mem, PAGE);
}

void broker_await(void)
{
	while (__atomic_load_n(serving, __ATOMIC_ACQUIRE))
		poll(NULL, 0, 1);
}

void broker_listeners(uint16_t port, uint16_t n)
{
	__atomic_store_n((uint16_t *)(void *)(mem + 64) + port, n, __ATOMIC_RELEASE);
}
