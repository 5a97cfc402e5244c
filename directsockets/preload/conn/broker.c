#include "conn/broker.h"

#include "conn/env.h"
#include "conn/fds.h"
#include "conn/inner.h"
#include "conn/place.h"
#include "conn/rules.h"
#include "conn/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
	PAGE_UDP = 16,
	PAGE_LISTENERS = 64,
	PAGE_DEEP = 1 << 15,
	PAGE_OFFERS = 131136,
	PAGE_SIZE = 151552,
	PAGE_RECEIVERS = PAGE_SIZE, /* of UDP, by port: the rest of the page of a broker that knows it */
	PAGE_UDP_SIZE = 282624,
	KNOWS_UDP = 1, /* of WELCOME's features */
	KNOWS_FLOW = 2,
	RETRY_NS = 1000000000,   /* between two attempts to find it */
	LOOK_NS = 100000000,	  /* between two looks whether it is still there */
	UNFIT_NS = 2000000000,    /* more, after one that did not answer as it should */
	SOON_NS = 8000000,	  /* the first time after an agent was told, or a broker has ended, doubled so often */
	SOON = 7,
	ENDED = -2,
	TOO_MANY = 4, /* a reason of REFUSED */
};

static int conn = -1;
static bool users; /* it leads, or the last one led, to the user's own broker, which other users cannot use */
static uint8_t *page; /* once mapped it stays; a new broker's page takes its place */
static bool page_valid;
static bool page_udp; /* it has what UDP needs */
static bool knows_flow; /* the broker does */
static const uint32_t no_offers;
const uint32_t *ds_udp_offers = &no_offers;
const uint16_t *ds_udp_receivers;
static int64_t next_try; /* 0: this process has not looked yet */
static int64_t greeted; /* when HELLO was sent; 0: it was not, as the broker had hung up */
static unsigned soon; /* attempts since an agent was told of this process, or a broker has ended */
static uint8_t version; /* of the messages, as WELCOME has it; 0: it has not come yet */
static bool silent; /* HELLO was sent, and is not answered yet */
static bool known; /* there has been a broker */
static int absent = DS_WHY_NO_BROKER; /* why there is none */
uint32_t ds_broker_connections; /* counts those that have ended */

/* The time in ns, of the coarse clock. No lock. */
static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Is the page to be believed, and what it says of UDP? */
static void believe(bool valid, bool udp)
{
	bool both = valid && udp;

	__atomic_store_n(&page_udp, udp, __ATOMIC_RELEASE);
	__atomic_store_n(&page_valid, valid, __ATOMIC_RELEASE);
	__atomic_store_n(&ds_udp_offers, both ? (const uint32_t *)(const void *)(page + PAGE_UDP) : &no_offers, __ATOMIC_RELEASE);
	__atomic_store_n(&ds_udp_receivers, both && !ds_config.explain && !DS_GET(ds_dg_eager) ? (const uint16_t *)(const void *)(page + PAGE_RECEIVERS) : NULL, __ATOMIC_RELEASE);
}

/* ---- connecting -------------------------------------------------------------- */

static char program[16]; /* a copy, since programs change their names */

static const struct ds_broker_notices *notices;

void ds_broker_init(const struct ds_broker_notices *to)
{
	notices = to;
	ds_place_init();
	strncpy(program, rules_program(), sizeof program - 1);
}

/* How long to wait for the next attempt after one that found nothing: not long while an agent that
 * was told of this process may be making the broker, or another process takes the place of the
 * last one. */
static int64_t pause_ns(void)
{
	unsigned n = soon;

	if ((!ds_place_knocked() && !known) || n >= SOON)
		return RETRY_NS;
	DS_SET(soon, n + 1);
	return (int64_t)SOON_NS << n;
}

/* Connects to the broker of this network namespace: sets conn. */
static void find(void)
{
	bool own;
	int fd = ds_place_find(&own);

	DS_SET(users, own);
	if (fd >= 0)
		conn = ds_fd_keep(fd, &conn);
}

/* Closes the connection; none is tried for wait ns. Listeners are to be announced again. */
static void hang_up(int64_t wait)
{
	if (conn >= 0)
		ds_fd_close(conn);
	conn = -1;
	version = 0;
	silent = false;
	believe(false, page_udp);
	DS_SET(next_try, now_ns() + wait);
	__atomic_store_n(&ds_broker_connections, ds_broker_connections + 1, __ATOMIC_RELAXED);
}

/* The broker has ended. One that ends again and again is tried less and less often. */
static void ended(void)
{
	if (greeted && now_ns() - greeted > RETRY_NS)
		DS_SET(soon, 0);
	hang_up(pause_ns());
}

/* Sends m with n descriptors, which stay the caller's. False: it was not sent. */
static bool send_message(struct ds_message *m, const int *fds, int n)
{
	uint8_t b[DS_MESSAGE];

	if (conn < 0 || (silent && m->type != DS_HELLO))
		return false;
	m->version = m->type == DS_HELLO ? DS_OLDEST : version;
	long r = rpc_send(conn, b, ds_message_put(b, m), fds, n, MSG_DONTWAIT);
	if (r < 0 && m->type != DS_HELLO && r != -EAGAIN && r != -ENOBUFS && r != -ETOOMANYREFS && r != -EBADF && r != -ENOMEM)
		ended();
	return r >= 0;
}

/* Reads one message and up to 2 descriptors: 1, 0 none there, -1 the connection is over, ENDED if
 * the broker has closed it. */
static int receive(struct ds_message *m, int fds[2], int *nfds)
{
	uint8_t b[DS_MESSAGE + 1];
	int n = 2;
	long r = rpc_receive(conn, b, sizeof b, fds, &n, MSG_DONTWAIT);
	bool reset = r == -ECONNRESET; /* the broker hung up on what it had not read; the kernel says so before what it sent */

	*nfds = 0;
	if (reset) {
		n = 2;
		r = rpc_receive(conn, b, sizeof b, fds, &n, MSG_DONTWAIT);
	}
	if (r <= 0)
		return r == -EAGAIN ? 0 : r < 0 || reset ? -1 : ENDED;
	if (ds_message_get(m, b, (size_t)r)) {
		int want = m->type == DS_GRANT || m->type == DS_FLOW ? 2 : m->type == DS_WELCOME ? 1 : 0;

		if (n == want && (!version || m->version == version) && (want || m->type == DS_NO_OFFER || m->type == DS_REFUSED)) {
			*nfds = n;
			return 1;
		}
	}
	rpc_close(fds, n);
	return -1;
}

/* Maps the page of which fd is the memfd, in the place of the one before. False: fd is no page. */
static bool map_page(int fd)
{
	struct stat st;
	uint32_t layout;
	uint8_t *p = page;

	if (!rpc_sealed(fd, F_SEAL_SHRINK) || kernel_fstat(fd, &st) < 0 || st.st_size < PAGE_SIZE)
		return false;
	size_t size = st.st_size < PAGE_UDP_SIZE ? PAGE_SIZE : PAGE_UDP_SIZE;
	if (!p) /* the next one may be larger */
		p = REAL(mmap, NULL, PAGE_UDP_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return false;
	believe(page_valid, false);
	p = REAL(mmap, p, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
	if (p == MAP_FAILED)
		return false;
	__atomic_store_n(&page, p, __ATOMIC_RELEASE);
	believe(page_valid, size == PAGE_UDP_SIZE);
	memcpy(&layout, p + 8, 4);
	return memcmp(p, "EXTDSPG\x01", 8) == 0 && layout == 1;
}

/* Reads the broker's answer to HELLO. True: WELCOME; false: nothing yet, or the connection is
 * over. */
static bool welcomed(void)
{
	struct ds_message m;
	int fds[2], n = 0, got = receive(&m, fds, &n);
	bool ok;

	if (!got)
		return false;
	ok = got == 1 && m.type == DS_WELCOME && greeted && map_page(fds[0]);
	if (ok)
		version = m.version;
	while (n)
		REAL(close, fds[--n]);
	silent = false;
	believe(ok, page_udp && (!ok || (m.features & KNOWS_UDP)));
	knows_flow = ok && (m.features & KNOWS_FLOW);
	if (ok)
		return true;
	/* One that speaks none of these versions reads HELLO, and hangs up (SPEC 6). */
	absent = got == ENDED && greeted ? DS_WHY_VERSION : got == 1 && m.type == DS_REFUSED && m.reason == TOO_MANY ? DS_WHY_NO_MEMORY : DS_WHY_NO_BROKER;
	if (absent == DS_WHY_NO_BROKER)
		ended();
	else
		hang_up((int64_t)RETRY_NS + UNFIT_NS);
	return false;
}

/* Connects and says HELLO; if it waits, a moment for the answer, once. A later one is read when it
 * is there. */
static bool greet(bool waits)
{
	struct ds_message hello = {.type = DS_HELLO, .id = DS_NEWEST};
	struct timespec limit = {ds_config.welcome / 1000, ds_config.welcome % 1000 * 1000000L};
	int stats = ds_stats_fd();

	absent = DS_WHY_NO_BROKER;
	if (stats >= 0)
		find();
	if (conn < 0) {
		DS_SET(next_try, now_ns() + pause_ns());
		return false;
	}
	DS_SET(known, true);
	memcpy(hello.program, program, sizeof hello.program);
	if (!send_message(&hello, &stats, 1)) {
		greeted = 0;
		welcomed(); /* it may have said why it has hung up */
		if (conn >= 0)
			hang_up((int64_t)RETRY_NS + UNFIT_NS);
		return false;
	}
	absent = DS_WHY_SILENT;
	silent = true;
	greeted = now_ns();
	if (!waits)
		return false;
	struct pollfd p = {.fd = conn, .events = POLLIN};
	ds_syscall(SYS_ppoll, &p, 1, &limit, NULL, 0);
	return welcomed();
}

/* The connection leads to the user's broker: ends it if root's is there by now. */
static void prefer_roots(void)
{
	int roots = ds_place_roots();

	if (roots < 0)
		return;
	REAL(close, roots);
	hang_up(0);
}

bool ds_broker_better(void)
{
	return (DS_GET(users) || !__atomic_load_n(&page_valid, __ATOMIC_RELAXED)) && now_ns() >= DS_GET(next_try);
}

bool ds_broker_due(void) { return !__atomic_load_n(&page_valid, __ATOMIC_RELAXED) || now_ns() >= DS_GET(next_try); }

bool ds_broker_greets(void) { return silent && now_ns() - greeted < ds_config.welcome * INT64_C(1000000); }
bool ds_broker_looked(void) { return DS_GET(next_try) != 0; }

bool ds_broker_known(void) { return DS_GET(known); }
bool ds_broker_comes(void) { return (ds_place_knocked() || DS_GET(known)) && DS_GET(soon) < SOON; }

int ds_broker_absent(void) { return absent; }

int ds_broker_why(int reason)
{
	static const uint8_t whys[] = {
		DS_WHY_REFUSED, DS_WHY_NO_LISTENER, DS_WHY_EXPIRED, DS_WHY_UNREACHABLE, DS_WHY_NO_MEMORY, DS_WHY_REFUSED, DS_WHY_REFUSED,
		DS_WHY_NO_RULE, DS_WHY_NO_PAIR, DS_WHY_SWITCHED_OFF,
	};

	return reason > 0 && reason < (int)sizeof whys ? whys[reason] : DS_WHY_REFUSED;
}

bool ds_broker_up(bool waits)
{
	int saved = errno;
	bool fresh = false;

	if (conn >= 0 && !silent && now_ns() >= next_try) { /* is it still there, and the best? */
		DS_SET(next_try, now_ns() + (users ? RETRY_NS : LOOK_NS));
		ds_broker_read();
		if (conn >= 0 && users)
			prefer_roots();
	}
	if (silent) {
		fresh = welcomed();
	} else if (conn < 0 && now_ns() >= next_try) {
		DS_SET(next_try, now_ns() + LOOK_NS);
		fresh = greet(waits);
	}
	if (fresh)
		notices->connected();
	errno = saved;
	return conn >= 0 && !silent;
}

/* A descriptor that proves that this process has the socket fd, but does not keep it open: a
 * message that is on its way to the broker keeps no connection and no listener alive. -1 and
 * errno. */
static int prove(int fd)
{
	char path[40] = "/proc/thread-self/fd/", digits[12];
	size_t len = strlen(path);
	int n = 0, proof;

	for (int v = fd; n == 0 || v; v /= 10)
		digits[n++] = (char)('0' + v % 10);
	while (n)
		path[len++] = digits[--n];
	path[len] = 0;
	proof = (int)ds_syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC);
#ifdef SYS_open_tree
	if (proof < 0 && errno == ENOENT) /* without /proc, as after chroot */
		proof = (int)ds_syscall(SYS_open_tree, fd, "", AT_EMPTY_PATH | O_CLOEXEC);
#endif
	return proof;
}

bool ds_broker_show(struct ds_message *m, int fd, const int *more, int n)
{
	int fds[3], bound = 0, saved;
	socklen_t len = sizeof bound;
	bool sent;

	fds[0] = prove(fd);
	if (fds[0] < 0)
		return false;
	if (REAL(getsockopt, fd, SOL_SOCKET, SO_BINDTOIFINDEX, &bound, &len) == 0)
		m->interface = (uint32_t)bound | (m->udp ? DS_INTERFACE_UDP : 0);
	else if (m->udp)
		m->interface = DS_INTERFACE_UDP;
	if (m->udp && m->type == DS_CLAIM && knows_flow)
		m->interface |= DS_INTERFACE_FLOW;
	for (int i = 0; i < n; i++)
		fds[1 + i] = more[i];
	sent = send_message(m, fds, 1 + n);
	saved = errno;
	REAL(close, fds[0]);
	errno = saved;
	return sent;
}

void ds_broker_send(struct ds_message *m) { send_message(m, NULL, 0); }

bool ds_broker_room(void)
{
	struct pollfd p = {.fd = conn, .events = POLLOUT};

	return ds_syscall(SYS_ppoll, &p, 1, &(struct timespec){0, 0}, NULL, 0) != 0;
}

bool ds_broker_offer(uint32_t id, const struct ds_info *info, int shadow, int segment, int bell)
{
	struct ds_message m = {.type = DS_OFFER, .id = id, .info = *info};

	return ds_broker_show(&m, shadow, (int[]){segment, bell}, 2);
}

bool ds_broker_withdraw(uint32_t id, const uint8_t *nonce)
{
	struct ds_message m = {.type = DS_WITHDRAW, .id = id};

	memcpy(m.info.nonce, nonce, 16);
	return send_message(&m, NULL, 0);
}

bool ds_broker_claim(uint32_t id, const struct ds_info *info, int shadow)
{
	struct ds_message m = {.type = DS_CLAIM, .id = id, .info = *info};

	return ds_broker_show(&m, shadow, NULL, 0);
}

void ds_broker_read(void)
{
	struct ds_message m;
	int fds[2], n, got, saved = errno;

	while (conn >= 0 && !silent) {
		got = receive(&m, fds, &n);
		if (got < 0)
			ended();
		if (got <= 0)
			break;
		if (m.type == DS_GRANT || m.type == DS_FLOW) {
			notices->granted(&m, fds[0], fds[1]);
		} else if (m.type == DS_NO_OFFER) {
			notices->none(m.id);
		} else if (m.type == DS_REFUSED) {
			notices->refused(m.id, m.reason);
		} else { /* WELCOME, a second time */
			REAL(close, fds[0]);
			hang_up(RETRY_NS);
		}
	}
	errno = saved;
}

/* The page stays: the child connects only when it says that there are offers. */
void ds_broker_child(void)
{
	bool valid = page_valid;

	hang_up(0);
	DS_SET(next_try, 0);
	believe(valid, page_udp);
}

/* ---- the page ---------------------------------------------------------------- */

/* The page's word of a TCP port (SPEC 6.2); 0: there is no page. No lock. */
static uint32_t listeners_word(uint16_t port)
{
	if (!__atomic_load_n(&page_valid, __ATOMIC_ACQUIRE))
		return 0;
	return __atomic_load_n((const uint16_t *)(const void *)(page + PAGE_LISTENERS) + port, __ATOMIC_RELAXED);
}

uint32_t ds_page_listeners(uint16_t port) { return listeners_word(port) & ~PAGE_DEEP; }

bool ds_page_deep(uint16_t port) { return listeners_word(port) & PAGE_DEEP; }

uint32_t ds_page_offers(uint32_t bucket)
{
	if (!__atomic_load_n(&page_valid, __ATOMIC_ACQUIRE))
		return 0;
	return __atomic_load_n((const uint32_t *)(const void *)(page + PAGE_OFFERS) + bucket, __ATOMIC_ACQUIRE);
}

bool ds_page_udp(void) { return __atomic_load_n(&page_valid, __ATOMIC_ACQUIRE) && __atomic_load_n(&page_udp, __ATOMIC_ACQUIRE); }

uint32_t ds_page_receivers(uint16_t port)
{
	return ds_page_udp() ? __atomic_load_n((const uint16_t *)(const void *)(page + PAGE_RECEIVERS) + port, __ATOMIC_RELAXED) & ~PAGE_DEEP : 0;
}
