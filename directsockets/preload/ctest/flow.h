// A flow in the memory of one process, for tests.
#ifndef FLOW_H
#define FLOW_H

#include "harness.h"

#include "conn/dgram.h"
#include "conn/inner.h"

enum { RING = DS_DG_MIN_RING };

struct flow {
	uint8_t *mem;
	struct ds_dgseg tx, rx;
};

static inline void fresh(struct flow *f, uint64_t ring)
{
	size_t size = DS_DG_RING + ring;

	memset(f, 0, sizeof *f);
	f->mem = aligned_alloc(4096, size);
	memset(f->mem, 0, size);
	ds_dg_header(f->mem, &some_info, ring);
	CHECK(ds_dg_view(&f->tx, f->mem, size, true) == 0 && ds_dg_view(&f->rx, f->mem, size, false) == 0, "view");
}

static inline int give(struct flow *f, const void *p, size_t n)
{
	struct iovec v;
	struct ds_cursor c = cursor_of(&v, (void *)(uintptr_t)p, n);
	struct ds_dg_meta m = {.len = (uint32_t)n, .ttl = 64};
	int rc = ds_dg_send(&f->tx, &m, &c);

	CHECK(c.left == (rc == DS_DG_SENT ? 0 : n), "%d: %zu left", rc, c.left);
	return rc;
}

// Takes the next datagram: its length, or -1.
static inline int take(struct flow *f, void *to)
{
	struct ds_dg_meta m;
	const volatile uint8_t *bytes;

	if (!ds_dg_next(&f->rx, &m, &bytes))
		return -1;
	ds_dg_copy(to, bytes, m.len);
	ds_dg_take(&f->rx, &m);
	return (int)m.len;
}

// A UDP socket at an address of its own.
static inline int udp_socket(struct sockaddr_in *a)
{
	socklen_t n = sizeof *a;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)a, n) == 0 && getsockname(fd, (struct sockaddr *)a, &n) == 0, "socket");
	return fd;
}

// A flow from one socket to another, as far as their addresses go.
static inline void flow_ends(struct ds_dg_out *o, struct sockaddr_in *from, struct sockaddr_in *to)
{
	struct ds_info *i = &o->seg.info;

	CHECK(ds_address((void *)from, i->addr[0], &i->port[0]) && ds_address((void *)to, i->addr[1], &i->port[1]), "addresses");
	CHECK(ds_dg_reached(i->addr[0], i->port[0], i->addr[1], i->port[1], &o->cookie), "the kernel knows no receiver");
}

#endif
