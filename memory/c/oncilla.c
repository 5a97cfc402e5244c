#include "include/oncillamem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exnmem.h"

#define API __attribute__((visibility("default")))

struct lib_alloc {
	struct lib_alloc *next;
	enum ocm_kind kind;
	char *local;
	uint64_t local_bytes;
	struct exnmem *remote; /* NULL: a local kind */
	uint64_t remote_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct lib_alloc *all; /* guarded by lock, as their next */

static int fail(int error) {
	errno = error;
	return -1;
}

API int ocm_init(void) { return exnmem_present(NULL); }

/* release gives back what an allocation has. It is in no list. */
static void release(struct lib_alloc *a) {
	if (a->remote)
		exnmem_return(a->remote);
	free(a->local);
	free(a);
}

API int ocm_tini(void) {
	pthread_mutex_lock(&lock);
	struct lib_alloc *list = all;
	all = NULL;
	pthread_mutex_unlock(&lock);
	while (list) {
		struct lib_alloc *next = list->next;
		release(list);
		list = next;
	}
	return 0;
}

/* borrow gets the remote memory of an allocation. */
static int borrow(struct lib_alloc *a, uint64_t bytes) {
	char why[256] = "no memory";
	if (bytes == 0 || bytes > UINT64_MAX - EXNMEM_PAGE)
		return fail(EINVAL);
	struct exnmem_config c = {.node = -1, .size = (bytes + EXNMEM_PAGE - 1) / EXNMEM_PAGE * EXNMEM_PAGE};
	a->remote = exnmem_borrow(&c, why, sizeof(why));
	if (a->remote && exnmem_watch(a->remote) == 0) {
		a->remote_bytes = bytes;
		return 0;
	}
	int e = errno;
	fprintf(stderr, "libocm: %s\n", a->remote ? strerror(e) : why);
	errno = e;
	return -1;
}

API ocm_alloc_t ocm_alloc(ocm_alloc_param_t what) {
	bool remote = false;
	if (!what || what->local_alloc_bytes == 0 || what->local_alloc_bytes > SIZE_MAX) {
		errno = EINVAL;
		return NULL;
	}
	switch (what->kind) {
	case OCM_REMOTE_RMA:
	case OCM_REMOTE_RDMA:
		remote = true;
		break;
	case OCM_LOCAL_HOST:
	case OCM_LOCAL_RMA:
	case OCM_LOCAL_RDMA:
		break;
	default:
		errno = ENOTSUP;
		return NULL;
	}
	struct lib_alloc *a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->kind = what->kind;
	a->local_bytes = what->local_alloc_bytes;
	a->local = calloc(1, a->local_bytes);
	if (!a->local || (remote && borrow(a, what->rem_alloc_bytes) < 0)) {
		int e = errno;
		release(a);
		errno = e;
		return NULL;
	}
	pthread_mutex_lock(&lock);
	a->next = all;
	all = a;
	pthread_mutex_unlock(&lock);
	return a;
}

API int ocm_free(ocm_alloc_t a) {
	pthread_mutex_lock(&lock);
	struct lib_alloc **at = &all;
	while (*at && *at != a)
		at = &(*at)->next;
	bool there = a && *at;
	if (there)
		*at = a->next;
	pthread_mutex_unlock(&lock);
	if (!there)
		return fail(EINVAL);
	release(a);
	return 0;
}

API int ocm_localbuf(ocm_alloc_t a, void **buf, size_t *len) {
	if (!a || !buf || !len)
		return fail(EINVAL);
	*buf = a->local;
	*len = a->local_bytes;
	return 0;
}

API bool ocm_is_remote(ocm_alloc_t a) { return a && a->remote; }

API enum ocm_kind ocm_alloc_kind(ocm_alloc_t a) { return a->kind; }

API int ocm_remote_sz(ocm_alloc_t a, size_t *len) {
	if (!a || !len || !a->remote)
		return fail(EINVAL);
	*len = a->remote_bytes;
	return 0;
}

static bool within(uint64_t at, uint64_t n, uint64_t size) { return n <= size && at <= size - n; }

API int ocm_copy_out(void *dst, ocm_alloc_t src) {
	if (!dst || !src)
		return fail(EINVAL);
	if (src->remote)
		return exnmem_read(src->remote, dst, src->remote_bytes, 0);
	memcpy(dst, src->local, src->local_bytes);
	return 0;
}

API int ocm_copy_in(ocm_alloc_t dst, void *src) {
	if (!dst || !src)
		return fail(EINVAL);
	if (dst->remote)
		return exnmem_write(dst->remote, src, dst->remote_bytes, 0);
	memcpy(dst->local, src, dst->local_bytes);
	return 0;
}

/* side is one end of a copy: of local memory, or of remote memory by way of a buffer. */
struct side {
	struct lib_alloc *a;
	uint64_t at;   /* in the memory that is meant */
	char *buffer;  /* of remote memory: where it passes through */
	uint64_t room; /* there */
};

/* prepare checks an end. local and remote are its offsets. */
static int prepare(struct side *s, ocm_alloc_t a, uint64_t local, uint64_t remote, uint64_t n) {
	*s = (struct side){.a = a, .at = local, .room = n};
	if (!a->remote)
		return within(local, n, a->local_bytes) ? 0 : fail(EINVAL);
	if (!within(remote, n, a->remote_bytes) || local >= a->local_bytes)
		return fail(EINVAL);
	s->at = remote;
	s->buffer = a->local + local;
	s->room = a->local_bytes - local;
	return 0;
}

/* take makes n bytes, from done on, readable, and returns where: NULL with errno if it cannot. */
static char *take(struct side *s, uint64_t done, uint64_t n) {
	if (!s->a->remote)
		return s->a->local + s->at + done;
	return exnmem_read(s->a->remote, s->buffer, n, s->at + done) < 0 ? NULL : s->buffer;
}

static int put(struct side *s, const char *from, uint64_t done, uint64_t n) {
	char *to = s->a->remote ? s->buffer : s->a->local + s->at + done;
	if (to != from)
		memmove(to, from, n);
	return s->a->remote ? exnmem_write(s->a->remote, to, n, s->at + done) : 0;
}

API int ocm_copy(ocm_alloc_t dst, ocm_alloc_t src, ocm_param_t what) {
	if (!dst || !src || !what)
		return fail(EINVAL);
	if (!what->op_flag) {
		ocm_alloc_t was = dst;
		dst = src;
		src = was;
	}
	struct side from, to;
	if (prepare(&from, src, what->src_offset, what->src_offset_2, what->bytes) < 0 ||
	    prepare(&to, dst, what->dest_offset, what->dest_offset_2, what->bytes) < 0)
		return -1;
	uint64_t most = from.room < to.room ? from.room : to.room;
	for (uint64_t done = 0; done < what->bytes;) {
		uint64_t n = what->bytes - done < most ? what->bytes - done : most;
		const char *p = take(&from, done, n);
		if (!p || put(&to, p, done, n) < 0)
			return -1;
		done += n;
	}
	return 0;
}

API int ocm_copy_onesided(ocm_alloc_t a, ocm_param_t what) {
	if (!a || !what || !a->remote)
		return fail(EINVAL);
	uint64_t here = what->src_offset, there = what->dest_offset, n = what->bytes;
	if (!within(here, n, a->local_bytes) || !within(there, n, a->remote_bytes))
		return fail(EINVAL);
	if (what->op_flag)
		return exnmem_write(a->remote, a->local + here, n, there);
	return exnmem_read(a->remote, a->local + here, n, there);
}
