/* The memory of a flow: made, mapped and checked (SPEC 10.2). */
#include "segment/dgram.h"
#include "segment/segment_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, HEADER = 85 };

static const char magic[8] = {'E', 'X', 'T', '-', 'D', 'G', 0, 1};

void ds_dg_header(uint8_t *m, const struct ds_info *info, uint64_t ring)
{
	uint32_t version = 1;
	uint64_t size = DS_DG_RING + ring;

	memcpy(m, magic, 8);
	memcpy(m + 8, &version, 4);
	memcpy(m + 16, &ring, 8);
	memcpy(m + 24, &size, 8);
	memcpy(m + 32, info->nonce, 16);
	memcpy(m + 48, info->addr[0], 16);
	memcpy(m + 64, info->addr[1], 16);
	memcpy(m + 80, &info->port[0], 2);
	memcpy(m + 82, &info->port[1], 2);
}

int ds_dg_view(struct ds_dgseg *g, uint8_t *mem, size_t size, bool sender)
{
	uint8_t h[HEADER], *s = mem + DS_CTRL, *r = mem + 2 * DS_CTRL;
	uint32_t version;
	uint64_t ring, said;

	ds_copy_in(h, mem, sizeof h); /* the only time that it is read */
	memcpy(&version, h + 8, 4);
	memcpy(&ring, h + 16, 8);
	memcpy(&said, h + 24, 8);
	if (memcmp(h, magic, 8) != 0 || version != 1 || ring < DS_DG_MIN_RING || ring > DS_DG_MAX_RING || (ring & (ring - 1)))
		return -1;
	if (said != size || size != DS_DG_RING + ring || h[84])
		return -1;
	memset(g, 0, sizeof *g);
	memcpy(g->info.nonce, h + 32, 16);
	memcpy(g->info.addr[0], h + 48, 16);
	memcpy(g->info.addr[1], h + 64, 16);
	memcpy(&g->info.port[0], h + 80, 2);
	memcpy(&g->info.port[1], h + 82, 2);
	g->mem = mem;
	g->size = size;
	g->ring = mem + DS_DG_RING;
	g->bytes = ring;
	g->stop = UINT64_MAX;
	g->lap[0] = g->lap[1] = ds_ticks();
	if (sender) {
		g->out = (struct ds_dg_sender *)(void *)s;
		g->to = (const volatile struct ds_dg_receiver *)(void *)r;
	} else {
		g->in = (struct ds_dg_receiver *)(void *)r;
		g->from = (const volatile struct ds_dg_sender *)(void *)s;
	}
	return 0;
}

int ds_dg_create(struct ds_dgseg *g, const struct ds_info *info, uint64_t ring, int *out)
{
	size_t size = DS_DG_RING + ring;
	int saved, fd = kernel_memfd("exnet-dg", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t *mem;

	if (fd < 0)
		return -1;
	if (ds_truncate(fd, size) < 0 || REAL(fcntl, fd, F_ADD_SEALS, SEALS) < 0 || !(mem = ds_map_new(fd, size))) {
		saved = errno;
		REAL(close, fd);
		errno = saved;
		return -1;
	}
	ds_dg_header(mem, info, ring);
	if (ds_dg_view(g, mem, size, true) < 0) {
		ds_unmap(mem, size);
		REAL(close, fd);
		errno = EINVAL;
		return -1;
	}
	((struct ds_dg_receiver *)(void *)(mem + 2 * DS_CTRL))->armed = 1; /* until the receiver says otherwise */
	*out = fd;
	return 0;
}

int ds_dg_map(struct ds_dgseg *g, int fd)
{
	struct stat st;
	struct statfs fs;
	int seals = REAL(fcntl, fd, F_GET_SEALS, 0);

	if (seals < 0 || (seals & SEALS) != SEALS || kernel_fstat(fd, &st) < 0)
		return -1;
	if (kernel_fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC) /* not hugetlbfs, where a missing page is a SIGBUS */
		return -1;
	if (st.st_size < DS_DG_RING + DS_DG_MIN_RING || st.st_size > DS_DG_RING + DS_DG_MAX_RING)
		return -1;
	uint8_t *mem = ds_map(fd, (size_t)st.st_size);
	if (!mem)
		return -1;
	if (ds_dg_view(g, mem, (size_t)st.st_size, false) < 0) {
		ds_unmap(mem, (size_t)st.st_size);
		return -1;
	}
	return 0;
}

void ds_dg_unmap(struct ds_dgseg *g)
{
	if (g->mem)
		ds_unmap(g->mem, g->size);
	g->mem = NULL;
}
