/* Oncilla's managed memory (Young, chapter 6; OCM) on leases: memory of another node, which a
 * program copies from and to, and a local buffer that belongs to it. The names, values and
 * structures are those of Oncilla; the library is libocm.so.
 *
 * Functions that return int return 0, or -1 with errno. Several threads may use different
 * allocations at the same time. */
#ifndef ONCILLAMEM_H
#define ONCILLAMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h> /* as Oncilla's has it: programs rely on that */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lib_alloc *ocm_alloc_t;

/* What an allocation is. The remote kinds are all leases; the local ones are memory of this
 * process; those of GPUs are refused (ENOTSUP). */
enum ocm_kind {
	OCM_LOCAL_HOST = 1,
	OCM_LOCAL_RMA,
	OCM_REMOTE_RMA,
	OCM_LOCAL_RDMA,
	OCM_REMOTE_RDMA,
	OCM_LOCAL_GPU,
	OCM_REMOTE_GPU,
};

/* What to copy: offsets and a number of bytes. */
struct ocm_params {
	uint64_t src_offset;
	uint64_t dest_offset;
	uint64_t src_offset_2;  /* ocm_copy: in the remote memory of the source */
	uint64_t dest_offset_2; /* ocm_copy: in the remote memory of the destination */
	uint64_t bytes;
	int op_flag; /* 0: read, 1: write */
};
typedef struct ocm_params *ocm_param_t;

struct ocm_alloc_params {
	uint64_t local_alloc_bytes; /* of the local buffer */
	uint64_t rem_alloc_bytes;   /* of the remote memory; of remote kinds */
	enum ocm_kind kind;
};
typedef struct ocm_alloc_params *ocm_alloc_param_t;

/* ocm_init finds the node: that of $EXN_MEMORY, or of this network namespace. ocm_tini frees all
 * allocations that are left. */
int ocm_init(void);
int ocm_tini(void);

/* ocm_alloc allocates; both memories are zeros. The lender is the nearest node that has enough. It
 * returns NULL, with errno and one line on standard error, if it gets no memory. */
ocm_alloc_t ocm_alloc(ocm_alloc_param_t what);
int ocm_free(ocm_alloc_t a);

/* ocm_localbuf gives the local buffer. It does not move. */
int ocm_localbuf(ocm_alloc_t a, void **buf, size_t *len);
bool ocm_is_remote(ocm_alloc_t a);
enum ocm_kind ocm_alloc_kind(ocm_alloc_t a);

/* ocm_remote_sz gives the size of the remote memory; EINVAL: there is none. */
int ocm_remote_sz(ocm_alloc_t a, size_t *len);

/* ocm_copy_out and ocm_copy_in copy all of an allocation, its remote memory if it has one, to or
 * from as many bytes of this process. */
int ocm_copy_out(void *dst, ocm_alloc_t src);
int ocm_copy_in(ocm_alloc_t dst, void *src);

/* ocm_copy copies bytes from src to dst; with op_flag 0, from dst to src. Of a local allocation
 * src_offset or dest_offset counts; of a remote one src_offset_2 or dest_offset_2 is in its remote
 * memory, and the bytes pass through its local buffer from src_offset or dest_offset on: in
 * pieces if that has less room. EINVAL: not within the memory; ESTALE: the lender has taken the
 * memory back; EIO: the lender is gone. */
int ocm_copy(ocm_alloc_t dst, ocm_alloc_t src, ocm_param_t what);

/* ocm_copy_onesided copies between the local buffer, at src_offset, and the remote memory, at
 * dest_offset, of one allocation: to the latter with op_flag 1. */
int ocm_copy_onesided(ocm_alloc_t a, ocm_param_t what);

#ifdef __cplusplus
}
#endif
#endif
