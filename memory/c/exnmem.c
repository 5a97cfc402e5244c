#define _GNU_SOURCE
#include "exnmem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "message.h"
#include "window.h"

struct exnmem {
	int conn; /* to the node: the lease */
	uint64_t size;
	int lender;
	char *huge; /* mapping of huge pages, which pwrite(2) does not take; NULL: others */

	pthread_rwlock_t lock; /* held to read by accesses, to write by the end of the lease */
	int memory;            /* -1: the lease has ended, which is the only change of its state here */
	int ended;             /* errno of accesses then */

	struct window *window; /* of a lease of another host; NULL: of this one */

	bool watching;
	pthread_t watcher;
};

/* node_connect connects to the node, which must be root's or this user's. */
static int node_connect(const char *socket_name) {
	const char *name = socket_name ? socket_name : getenv("EXN_MEMORY");
	uid_t user;
	int fd = rpc_dial(name && *name ? name : "@exn-memory", 0, &user);
	if (fd >= 0 && user != 0 && user != geteuid()) {
		close(fd);
		fd = -EACCES;
	}
	if (fd >= 0)
		return fd;
	errno = -fd;
	return -1;
}

int exnmem_present(const char *socket) {
	int fd = node_connect(socket);
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

/* refused writes why there is no lease into one line. */
static void refused(const struct message *m, const struct exnmem_config *cfg, char *why, size_t n) {
	unsigned long long size = cfg->size, left = m->b;
	switch (m->status) {
	case STATUS_VERSION:
		snprintf(why, n, "node %d has version %llu of the protocol, this program %d: use programs of one release", m->node,
			 (unsigned long long)m->a, MESSAGE_VERSION);
		break;
	case STATUS_FULL:
		snprintf(why, n, "%llu bytes are more than there is: node %d has %llu left", size, m->node, left);
		break;
	case STATUS_LIMIT:
		snprintf(why, n, "%llu bytes are more than node %d lends to this node or user: %llu are left of the limit", size,
			 m->node, left);
		break;
	case STATUS_NO_NODE:
		snprintf(why, n, "node %d is not there", m->node);
		break;
	case STATUS_NO_LENDER:
		if (cfg->node >= 0)
			snprintf(why, n, "node %d lends no memory: start it with --lend SIZE", cfg->node);
		else
			snprintf(why, n, "no other node lends memory: start one with exn-tun up --lend SIZE");
		break;
	case STATUS_HUGE:
		snprintf(why, n, "node %d has no huge pages for %llu bytes: reserve some there (sysctl vm.nr_hugepages)", m->node,
			 size);
		break;
	case STATUS_BUSY:
		snprintf(why, n, "this user has too many leases: end some");
		break;
	case STATUS_MEMORY:
		snprintf(why, n, "the host of node %d has no memory for %llu bytes: %llu are left", m->node, size, left);
		break;
	default:
		snprintf(why, n, "the node refuses a lease of %llu bytes: status %d", size, m->status);
	}
}

/* is_loan says whether a descriptor is what a lender lends: memory that nobody makes longer. Of a
 * file of its own, a lender could have a read never end. */
static bool is_loan(int fd) { return rpc_sealed(fd, F_SEAL_GROW | F_SEAL_SEAL); }

/* is_window says whether a descriptor is a window, which stays as long as it is: a page that is
 * missing, also of huge pages, would be a SIGBUS. */
static bool is_window(int fd) {
	struct stat st;
	struct statfs fs;
	return rpc_sealed(fd, F_SEAL_SHRINK) && fstat(fd, &st) == 0 && st.st_size == (off_t)WINDOW_SLOTS * WINDOW_SLOT &&
		   fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

/* ask sends the request for the lease, and returns the descriptor of its memory. */
static int ask(int conn, const struct exnmem_config *cfg, struct message *m, char *why, size_t why_size) {
	struct message want = {.op = OP_BORROW, .number = 1, .a = MESSAGE_VERSION, .b = cfg->size, .c = cfg->min};
	uint64_t least = cfg->min ? cfg->min : cfg->size;
	int fd = -1, n = 1;
	if (cfg->huge)
		want.flags |= FLAG_HUGE;
	if (cfg->node >= 0) {
		want.flags |= FLAG_NODE;
		want.node = (uint16_t)cfg->node;
	}
	bool answered = message_send(conn, &want) && rpc_receive(conn, m, sizeof(*m), &fd, &n, 0) == MESSAGE_SIZE;
	if (!answered) {
		snprintf(why, why_size, "the node does not answer");
		errno = EIO;
	} else if (m->op != OP_BORROW || m->status != STATUS_OK) {
		refused(m, cfg, why, why_size);
		errno = ENOMEM;
	} else if (fd < 0 || m->b < least || m->b > cfg->size || m->b % (cfg->huge ? EXNMEM_HUGE : EXNMEM_PAGE) ||
		   !(m->flags & FLAG_FAR ? is_window(fd) : is_loan(fd))) {
		snprintf(why, why_size, "the node's answer makes no sense");
		errno = EPROTO;
	} else {
		return fd;
	}
	int e = errno;
	if (fd >= 0)
		close(fd);
	errno = e;
	return -1;
}

struct exnmem *exnmem_borrow(const struct exnmem_config *cfg, char *why, size_t why_size) {
	uint64_t unit = cfg->huge ? EXNMEM_HUGE : EXNMEM_PAGE;
	if (cfg->size == 0 || cfg->size % unit || cfg->min > cfg->size || cfg->min % unit || cfg->node > 0xffff) {
		snprintf(why, why_size, "a size of %llu bytes: use a multiple of %llu", (unsigned long long)cfg->size,
			 (unsigned long long)unit);
		errno = EINVAL;
		return NULL;
	}
	struct exnmem *m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	struct message got;
	m->conn = node_connect(cfg->socket);
	if (m->conn < 0) {
		snprintf(why, why_size, "no node is up here: start one with exn-tun up: %s", strerror(errno));
		goto fail;
	}
	m->memory = ask(m->conn, cfg, &got, why, why_size);
	if (m->memory < 0)
		goto fail;
	m->size = got.b;
	m->lender = got.node;
	if (got.flags & FLAG_FAR) {
		m->window = window_open(m->conn, m->memory, m->size);
		close(m->memory);
		if (!m->window) {
			snprintf(why, why_size, "cannot map the window: %s", strerror(errno));
			goto fail;
		}
	} else if (cfg->huge) {
		m->huge = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, m->memory, 0);
		if (m->huge == MAP_FAILED) {
			snprintf(why, why_size, "cannot map the memory: %s", strerror(errno));
			close(m->memory);
			goto fail;
		}
	}
	pthread_rwlock_init(&m->lock, NULL);
	return m;
fail:;
	int e = errno;
	if (m->conn >= 0)
		close(m->conn);
	free(m);
	errno = e;
	return NULL;
}

/* end ends the lease: accesses fail with the error from now on, and the memory is not held here any
 * more. */
static void end(struct exnmem *m, int error) {
	if (m->window) {
		window_end(m->window, error);
		return;
	}
	pthread_rwlock_wrlock(&m->lock);
	if (m->memory >= 0) {
		close(m->memory);
		if (m->huge)
			munmap(m->huge, m->size);
		m->memory = -1;
		m->ended = error;
	}
	pthread_rwlock_unlock(&m->lock);
}

/* watch reads what the node says until the lease has ended. */
static void *watch(void *p) {
	struct exnmem *m = p;
	for (;;) {
		struct message got;
		int none = 0;
		if (rpc_receive(m->conn, &got, sizeof(got), NULL, &none, 0) != MESSAGE_SIZE) { /* this node has ended, or exnmem_return was called */
			end(m, EIO);
			return NULL;
		}
		if (m->window && (got.op == OP_GET || got.op == OP_PUT || got.op == OP_ZERO))
			window_answer(m->window, got.number, got.status);
		if (got.op == OP_REVOKE) {
			struct message back = {.op = OP_RETURN};
			end(m, ESTALE);
			message_send(m->conn, &back);
			return NULL;
		}
		if (got.op == OP_GONE) {
			bool lost = got.status == STATUS_LOST || got.status == STATUS_NO_LEASE || got.status == STATUS_NO_NODE;
			end(m, lost ? EIO : ESTALE);
			return NULL;
		}
	}
}

int exnmem_watch(struct exnmem *m) {
	int e = pthread_create(&m->watcher, NULL, watch, m);
	m->watching = e == 0;
	errno = e;
	return e ? -1 : 0;
}

uint64_t exnmem_size(const struct exnmem *m) { return m->size; }

int exnmem_lender(const struct exnmem *m) { return m->lender; }

/* begin checks an access and holds the lease until finish. */
static int begin(struct exnmem *m, uint64_t n, uint64_t at) {
	if (n > m->size || at > m->size - n) {
		errno = EINVAL;
		return -1;
	}
	pthread_rwlock_rdlock(&m->lock);
	if (m->memory >= 0)
		return 0;
	int e = m->ended;
	pthread_rwlock_unlock(&m->lock);
	errno = e;
	return -1;
}

/* finish ends an access. A negative result is that of a system call that failed, 0 that of a file
 * which has been cut. */
static int finish(struct exnmem *m, ssize_t result) {
	int e = result == 0 || errno == EPERM || errno == EFAULT ? ESTALE : errno;
	pthread_rwlock_unlock(&m->lock);
	if (result > 0)
		return 0;
	errno = e;
	return -1;
}

/* copy moves bytes from or to huge pages. The kernel does it, and returns an error where the
 * process would get SIGBUS. */
static ssize_t copy(const struct exnmem *m, void *here, size_t n, uint64_t at, bool write) {
	struct iovec mine = {here, n}, theirs = {m->huge + at, n};
	return write ? process_vm_writev(getpid(), &mine, 1, &theirs, 1, 0) : process_vm_readv(getpid(), &mine, 1, &theirs, 1, 0);
}

/* move copies bytes between here and the memory of this host. */
static int move(struct exnmem *m, char *here, size_t n, uint64_t at, bool write) {
	if (begin(m, n, at) < 0)
		return -1;
	for (size_t done = 0; done < n;) {
		off_t off = (off_t)(at + done);
		ssize_t got;
		if (m->huge)
			got = copy(m, here + done, n - done, at + done, write);
		else
			got = write ? pwrite(m->memory, here + done, n - done, off) : pread(m->memory, here + done, n - done, off);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return finish(m, got);
		done += (size_t)got;
	}
	return finish(m, 1);
}

static const char zeros[2 * EXNMEM_PAGE];

/* punch gives whole pages back to the lender. */
static int punch(struct exnmem *m, uint64_t n, uint64_t at) {
	struct stat st;
	if (begin(m, n, at) < 0)
		return -1;
	int r = fstat(m->memory, &st);
	/* Of a file that has been cut, a hole beyond its end would be no error. */
	if (r == 0 && (uint64_t)st.st_size >= at + n)
		r = fallocate(m->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)n) < 0 ? -1 : 1;
	return finish(m, r);
}

/* whole finds the whole pages of a range, from first to last. Without any, both are its end. */
static void whole(const struct exnmem *m, uint64_t n, uint64_t at, uint64_t *first, uint64_t *last) {
	uint64_t unit = m->huge ? EXNMEM_HUGE : EXNMEM_PAGE;
	*first = (at + unit - 1) / unit * unit;
	*last = (at + n) / unit * unit;
	if (*first >= *last)
		*first = *last = at + n;
}

/* zero makes zeros in memory of this host. */
static int zero(struct exnmem *m, uint64_t n, uint64_t at) {
	uint64_t first, last;
	if (n > m->size || at > m->size - n) {
		errno = EINVAL;
		return -1;
	}
	whole(m, n, at, &first, &last);
	if (first < last && punch(m, last - first, first) < 0)
		return -1;
	uint64_t ends[2][2] = {{at, first}, {last, at + n}};
	for (int i = 0; i < 2; i++)
		for (uint64_t from = ends[i][0]; from < ends[i][1];) {
			uint64_t some = ends[i][1] - from < sizeof(zeros) ? ends[i][1] - from : sizeof(zeros);
			if (move(m, (char *)(uintptr_t)zeros, some, from, true) < 0)
				return -1;
			from += some;
		}
	return 0;
}

void exnmem_begin(struct exnmem_op *o, struct exnmem *m, enum exnmem_kind kind, void *here, uint64_t n, uint64_t at) {
	static const uint16_t ops[] = {[EXNMEM_READ] = OP_GET, [EXNMEM_WRITE] = OP_PUT, [EXNMEM_ZERO] = OP_ZERO};
	uint64_t first = at, last = at + n;
	*o = (struct exnmem_op){.m = m, .kind = kind, .here = here, .n = n, .at = at};
	if (kind == EXNMEM_ZERO)
		whole(m, n, at, &first, &last);
	if (n > m->size || at > m->size - n) /* the window says so */
		first = at, last = at + n;
	window_begin(&o->parts[0], ops[kind], here, last - first, first);
	window_begin(&o->parts[1], OP_PUT, (char *)(uintptr_t)zeros, first - at, at);
	window_begin(&o->parts[2], OP_PUT, (char *)(uintptr_t)zeros, at + n - last, last);
}

int exnmem_wait(struct exnmem_op *o, const struct timespec *until) {
	if (o->m->window) {
		for (; o->next < 3; o->next++)
			if (window_wait(o->m->window, &o->parts[o->next], until) < 0)
				return -1;
		return 0;
	}
	return o->kind == EXNMEM_ZERO ? zero(o->m, o->n, o->at) : move(o->m, o->here, o->n, o->at, o->kind == EXNMEM_WRITE);
}

uint64_t exnmem_left(const struct exnmem_op *o) { return o->parts[0].n + o->parts[1].n + o->parts[2].n; }

void exnmem_leave(struct exnmem_op *o) {
	if (o->m->window)
		window_leave(o->m->window, &o->parts[0]);
}

/* carry_out does an operation to its end. */
static int carry_out(struct exnmem *m, enum exnmem_kind kind, void *here, uint64_t n, uint64_t at) {
	struct exnmem_op o;
	exnmem_begin(&o, m, kind, here, n, at);
	return exnmem_wait(&o, NULL);
}

int exnmem_read(struct exnmem *m, void *to, size_t n, uint64_t at) { return carry_out(m, EXNMEM_READ, to, n, at); }

int exnmem_write(struct exnmem *m, const void *from, size_t n, uint64_t at) {
	return carry_out(m, EXNMEM_WRITE, (void *)(uintptr_t)from, n, at);
}

int exnmem_zero(struct exnmem *m, uint64_t n, uint64_t at) { return carry_out(m, EXNMEM_ZERO, NULL, n, at); }

void exnmem_give_up(struct exnmem *m) {
	struct message back = {.op = OP_RETURN};
	end(m, EIO);
	message_send(m->conn, &back); /* or it has ended */
}

uint64_t exnmem_next(struct exnmem *m, uint64_t at, bool data) {
	if (m->huge || m->window || begin(m, 0, at) < 0)
		return data ? at : m->size;
	off_t next = lseek(m->memory, (off_t)at, data ? SEEK_DATA : SEEK_HOLE);
	struct stat st;
	/* A file that has been cut is no hole: who reads there is to hear of it. */
	bool cut = fstat(m->memory, &st) < 0 || (uint64_t)st.st_size < m->size;
	finish(m, 1);
	if (cut)
		return data ? at : m->size;
	if (next < 0 || (uint64_t)next > m->size) /* no more data */
		return m->size;
	return (uint64_t)next;
}

void exnmem_return(struct exnmem *m) {
	exnmem_give_up(m);
	/* The node ends the connection when the memory is back: the end of the watcher, too. */
	if (m->watching) {
		pthread_join(m->watcher, NULL);
	} else {
		char rest[MESSAGE_SIZE];
		while (recv(m->conn, rest, sizeof(rest), 0) > 0)
			;
	}
	close(m->conn);
	if (m->window)
		window_close(m->window);
	pthread_rwlock_destroy(&m->lock);
	free(m);
}
