// A UDP socket that receives from a flow, for tests.
#ifndef READS_H
#define READS_H

#include "flow.h"

#include <poll.h>
#include <sys/mman.h>

static struct ds_dgram d;

// A receiver's end of f, which ds_dg_in_sweep can free.
static inline struct ds_dg_in *receiver(struct flow *f)
{
	struct ds_dg_in *in = mmap(NULL, sizeof *in, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	fresh(f, RING);
	f->rx.in->flags = DS_DG_TAKES_AFTER;
	f->tx.base = 1;
	in->seg = f->rx;
	in->seg.mem = NULL; // the test's
	in->alive = -1;
	in->counters = ds_stats_counters(NULL);
	return in;
}

// Sends the number v, after so many datagrams by the kernel.
static inline int say(struct flow *f, uint64_t kernel, uint32_t v)
{
	struct iovec vec;
	struct ds_cursor c = cursor_of(&vec, &v, sizeof v);
	struct ds_dg_meta m = {.kernel = kernel, .lost = 1, .len = sizeof v, .after = true};

	return ds_dg_send(&f->tx, &m, &c);
}

static inline ssize_t hear(int fd, uint32_t *v, int flags)
{
	struct iovec vec = {v, sizeof *v};
	struct msghdr m = {.msg_iov = &vec, .msg_iovlen = 1};

	return ds_dg_recvmsg(&d, fd, &m, flags);
}

// A socket with a flow that is awake, and a sender whose datagrams come by the kernel.
struct shown {
	struct flow f;
	struct ds_dg_in *in;
	struct sockaddr_in at;
	int fd, other;
};

static inline void shown_begin(struct shown *s)
{
	struct sockaddr_in from;

	s->in = receiver(&s->f);
	s->in->state = DG_IN_MEMORY;
	s->fd = udp_socket(&s->at);
	s->other = udp_socket(&from);
	d = (struct ds_dgram){.family = AF_INET, .nonblock = DS_NONBLOCK_YES, .nin = 1, .nlisted = 1, .awake = 1, .flows = {s->in}, .list = {s->in}, .looked = ds_ticks(), .swept = ds_ticks()};
	ds_dg_arm(&s->f.rx, DS_DG_AWAKE);
}

static inline void shown_end(struct shown *s)
{
	close(s->fd);
	close(s->other);
	free(s->f.mem);
	munmap(s->in, sizeof *s->in);
}

// The kernel's datagrams have one byte, those of the flow have four.
static inline void by_kernel(struct shown *s)
{
	CHECK(sendto(s->other, "k", 1, 0, (void *)&s->at, sizeof s->at) == 1, "send");
	CHECK(poll(&(struct pollfd){s->fd, POLLIN, 0}, 1, 60000) == 1, "it does not come");
}

#endif
