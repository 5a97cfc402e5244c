/* Tests Oncilla's interface. usage: oncilla [hold]: hold waits for a line on standard input before
 * it reads, and expects that the lender has gone or has taken its memory back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../include/oncillamem.h"

#define CHECK(x)                                                                  \
	do {                                                                      \
		if (!(x)) {                                                       \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, strerror(errno)); \
			exit(1);                                                  \
		}                                                                 \
	} while (0)

enum { LOCAL = 1 << 20, REMOTE = (4 << 20) + 5, SMALL = 4099 };

static ocm_alloc_t allocate(enum ocm_kind kind, uint64_t local, uint64_t remote) {
	struct ocm_alloc_params p = {.kind = kind, .local_alloc_bytes = local, .rem_alloc_bytes = remote};
	return ocm_alloc(&p);
}

static unsigned char *buffer(ocm_alloc_t a) {
	void *b;
	size_t n;
	CHECK(ocm_localbuf(a, &b, &n) == 0 && n > 0);
	return b;
}

static void fill(unsigned char *b, size_t n, unsigned seed) {
	for (size_t i = 0; i < n; i++)
		b[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
}

/* onesided writes and reads between the local buffer and the remote memory. */
static void onesided(void) {
	ocm_alloc_t a = allocate(OCM_REMOTE_RMA, LOCAL, REMOTE);
	CHECK(a && ocm_is_remote(a) && ocm_alloc_kind(a) == OCM_REMOTE_RMA);
	size_t n;
	CHECK(ocm_remote_sz(a, &n) == 0 && n == REMOTE);
	unsigned char *b = buffer(a), *want = malloc(LOCAL);
	CHECK(want);
	fill(want, LOCAL, 1);
	memcpy(b, want, LOCAL);
	struct ocm_params p = {.dest_offset = REMOTE - LOCAL, .bytes = LOCAL, .op_flag = 1};
	CHECK(ocm_copy_onesided(a, &p) == 0);
	memset(b, 0, LOCAL);
	p = (struct ocm_params){.src_offset = 7, .dest_offset = REMOTE - 100, .bytes = 100};
	CHECK(ocm_copy_onesided(a, &p) == 0 && memcmp(b + 7, want + LOCAL - 100, 100) == 0 && b[6] == 0 && b[107] == 0);
	struct ocm_params bad[] = {
		{.bytes = LOCAL + 1},
		{.src_offset = 1, .bytes = LOCAL},
		{.dest_offset = REMOTE, .bytes = 1},
		{.dest_offset = UINT64_MAX, .bytes = 2},
		{.src_offset = UINT64_MAX, .bytes = 2},
		{.bytes = UINT64_MAX},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(ocm_copy_onesided(a, &bad[i]) == -1 && errno == EINVAL);
	CHECK(ocm_free(a) == 0 && ocm_free(a) == -1);
	free(want);
}

/* pieces copies by way of a local buffer that is far smaller than what is copied. */
static void pieces(void) {
	ocm_alloc_t host = allocate(OCM_LOCAL_HOST, LOCAL, 0), back = allocate(OCM_LOCAL_RDMA, LOCAL, 0);
	ocm_alloc_t one = allocate(OCM_REMOTE_RDMA, SMALL, REMOTE), other = allocate(OCM_REMOTE_RMA, 1000, REMOTE);
	CHECK(host && back && one && other && !ocm_is_remote(host));
	fill(buffer(host), LOCAL, 2);
	struct ocm_params p = {.src_offset = 3, .dest_offset = 99, .dest_offset_2 = 5000, .bytes = LOCAL - 3, .op_flag = 1};
	CHECK(ocm_copy(one, host, &p) == 0);
	p = (struct ocm_params){.src_offset_2 = 5000, .dest_offset_2 = 11, .bytes = LOCAL - 3, .op_flag = 1};
	CHECK(ocm_copy(other, one, &p) == 0);
	p = (struct ocm_params){.src_offset_2 = 11, .dest_offset = 3, .bytes = LOCAL - 3, .op_flag = 0}; /* other way round */
	CHECK(ocm_copy(other, back, &p) == 0);
	CHECK(memcmp(buffer(host) + 3, buffer(back) + 3, LOCAL - 3) == 0);
	CHECK(buffer(back)[0] == 0 && buffer(back)[2] == 0);
	p = (struct ocm_params){.dest_offset = 1, .src_offset = 2, .bytes = 100, .op_flag = 1};
	CHECK(ocm_copy(back, host, &p) == 0 && memcmp(buffer(back) + 1, buffer(host) + 2, 100) == 0);
	p.bytes = LOCAL;
	CHECK(ocm_copy(back, host, &p) == -1 && errno == EINVAL);
	p = (struct ocm_params){.dest_offset = SMALL, .bytes = 1, .op_flag = 1};
	CHECK(ocm_copy(one, host, &p) == -1 && errno == EINVAL);
	p = (struct ocm_params){.dest_offset_2 = REMOTE, .bytes = 1, .op_flag = 1};
	CHECK(ocm_copy(one, host, &p) == -1 && errno == EINVAL);

	unsigned char *all = malloc(REMOTE), *again = malloc(REMOTE);
	CHECK(all && again);
	fill(all, REMOTE, 3);
	CHECK(ocm_copy_in(one, all) == 0 && ocm_copy_out(again, one) == 0 && memcmp(all, again, REMOTE) == 0);
	free(all);
	free(again);
	CHECK(ocm_free(other) == 0); /* ocm_tini has the rest */
}

static void refused(void) {
	size_t n;
	ocm_alloc_t a = allocate(OCM_LOCAL_HOST, 1, 0);
	struct ocm_params p = {.bytes = 1};
	CHECK(a && ocm_remote_sz(a, &n) == -1 && ocm_copy_onesided(a, &p) == -1);
	CHECK(!allocate(OCM_LOCAL_GPU, 1, 1) && errno == ENOTSUP);
	CHECK(!allocate(0, 1, 1) && !allocate(OCM_LOCAL_HOST, 0, 1) && !allocate(OCM_REMOTE_RMA, 1, 0));
	CHECK(!allocate(OCM_REMOTE_RMA, 1, UINT64_C(1) << 60));
}

int main(int argc, char **argv) {
	CHECK(ocm_init() == 0);
	if (argc > 1 && strcmp(argv[1], "hold") == 0) {
		ocm_alloc_t a = allocate(OCM_REMOTE_RMA, LOCAL, REMOTE);
		struct ocm_params p = {.bytes = LOCAL, .op_flag = 1};
		CHECK(a && ocm_copy_onesided(a, &p) == 0);
		puts("held");
		fflush(stdout);
		getchar();
		CHECK(ocm_copy_onesided(a, &p) == -1 && (errno == EIO || errno == ESTALE));
	} else {
		onesided();
		pieces();
		refused();
	}
	CHECK(ocm_tini() == 0);
	puts("ok");
	return 0;
}
