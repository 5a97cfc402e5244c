// pages.c: registering a page moves it into the port's memory, which peers can reach, and maps it
// at its old address. A page that several regions share is there once. A page that cannot move
// stays, and the node reads and writes it.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <fcntl.h>

#include "pages.h"

// How many unused pages stay in the port's memory for the next registration. More go back to the
// system.
enum { KEPT_PAGES = 4096 };

// Stands for the file page of a page that stays in the program's own memory.
#define IN_PLACE UINT32_MAX

static size_t slot_of(const struct rma2_endpoint *e, uintptr_t page)
{
	return (page * 0x9e3779b97f4a7c15ull >> 32) & (e->shared_room - 1);
}

// find returns the entry of a page, or NULL.
static struct shared_page *find(struct rma2_endpoint *e, uintptr_t page)
{
	if (e->shared_count == 0)
		return NULL;
	for (size_t i = slot_of(e, page);; i = (i + 1) & (e->shared_room - 1)) {
		if (e->shared[i].page == page)
			return &e->shared[i];
		if (e->shared[i].page == 0)
			return NULL;
	}
}

static void put_page(struct rma2_endpoint *e, struct shared_page p)
{
	size_t i = slot_of(e, p.page);
	while (e->shared[i].page != 0)
		i = (i + 1) & (e->shared_room - 1);
	e->shared[i] = p;
}

// reserve makes room for n more entries.
static bool reserve(struct rma2_endpoint *e, size_t n)
{
	size_t room = e->shared_room;
	while (room < 2 * (e->shared_count + n))
		room = room ? 2 * room : 64;
	if (room == e->shared_room)
		return true;
	struct shared_page *now = calloc(room, sizeof(*now)), *old = e->shared;
	size_t had = e->shared_room;
	if (now == NULL)
		return false;
	e->shared = now;
	e->shared_room = room;
	for (size_t i = 0; i < had; i++)
		if (old[i].page != 0)
			put_page(e, old[i]);
	free(old);
	return true;
}

// drop_page removes an entry and closes the gap.
static void drop_page(struct rma2_endpoint *e, struct shared_page *p)
{
	size_t mask = e->shared_room - 1, hole = (size_t)(p - e->shared);
	e->shared_count--;
	for (size_t i = (hole + 1) & mask; e->shared[i].page != 0; i = (i + 1) & mask) {
		size_t home = slot_of(e, e->shared[i].page);
		if (((i - home) & mask) >= ((i - hole) & mask)) {
			e->shared[hole] = e->shared[i];
			hole = i;
		}
	}
	e->shared[hole].page = 0;
}

static off_t offset_of(uint32_t file)
{
	return (off_t)(EXN_ARENA_OFF + (uint64_t)file * EXN_PAGE);
}

// fetch copies from pages of the program. Whole pages hold more than the caller's object, so the
// address sanitizer would reject memcpy and pwrite.
__attribute__((no_sanitize("address"))) static void fetch(uint64_t *to, const volatile uint64_t *from, size_t size)
{
	for (size_t i = 0; i < size / sizeof(*to); i++)
		to[i] = from[i];
}

// readable asks the system, which reads a set of signals from the address before it rejects the
// call.
static bool readable(const char *at, size_t size)
{
	for (size_t i = 0; i < size; i += EXN_PAGE)
		if (syscall(SYS_rt_sigprocmask, -1, at + i, NULL, 8) == 0 || errno != EINVAL)
			return false;
	return true;
}

// swap_in copies pages to the port's memory and maps it over them.
__attribute__((noinline)) static bool swap_in(RMA2_Port e, void *at, size_t size, off_t off)
{
	int fd = e->port.memory_fd;
	bool warm = (size_t)off + size <= EXN_ARENA_OFF + e->warm;
	if (warm && !readable(at, size))
		return false;
	if (warm)
		fetch((uint64_t *)(e->port.memory + off), at, size);
	for (size_t done = 0; !warm && done < size;) {
		long n = syscall(SYS_pwrite64, fd, (char *)at + done, size - done, off + (off_t)done);
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, off) != MAP_FAILED;
}

// swap_out makes pages private again and keeps their content.
__attribute__((noinline)) static bool swap_out(RMA2_Port e, void *at, size_t size, off_t off)
{
	int fd = e->port.memory_fd;
	char *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (mem == MAP_FAILED)
		return false;
	for (size_t done = 0; done < size;) {
		ssize_t n = pread(fd, mem + done, size - done, off + (off_t)done);
		if (n <= 0) {
			munmap(mem, size);
			return false;
		}
		done += (size_t)n;
	}
	return mremap(mem, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED;
}

// below runs a swap two pages further down the stack: the memory may be the caller's own stack,
// whose changes between the copy and the mapping would be lost. The compiler has to believe that
// all of the gap is used, before and after the call, or it leaves the gap out.
__attribute__((noinline)) static bool below(bool (*swap)(RMA2_Port, void *, size_t, off_t), RMA2_Port e, void *at, size_t size, off_t off)
{
	char gap[2 * EXN_PAGE];
	__asm__ volatile("" : : "r"(gap) : "memory");
	bool ok = swap(e, at, size, off);
	__asm__ volatile("" : : "r"(gap) : "memory");
	return ok;
}

// is_shared returns whether other processes may share the memory, so that it cannot move. The
// system makes a second mapping only of shared memory.
static bool is_shared(void *at)
{
	void *twin = mremap(at, 0, EXN_PAGE, MREMAP_MAYMOVE);
	if (twin == MAP_FAILED)
		return false;
	munmap(twin, EXN_PAGE);
	return true;
}

// The open ports, by the files that hold their memory.
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rma2_endpoint *open_ports;

void rma_pages_open(RMA2_Port e)
{
	struct stat st;
	e->file = fstat(e->port.memory_fd, &st) == 0 ? st.st_ino : 0;
	pthread_mutex_lock(&open_lock);
	e->next_open = open_ports;
	open_ports = e;
	pthread_mutex_unlock(&open_lock);
}

void rma_pages_close(RMA2_Port e)
{
	pthread_mutex_lock(&open_lock);
	struct rma2_endpoint **at = &open_ports;
	while (*at != NULL && *at != e)
		at = &(*at)->next_open;
	if (*at != NULL)
		*at = e->next_open;
	pthread_mutex_unlock(&open_lock);
}

static bool is_open(ino_t file)
{
	pthread_mutex_lock(&open_lock);
	struct rma2_endpoint *e = open_ports;
	while (e != NULL && e->file != file)
		e = e->next_open;
	pthread_mutex_unlock(&open_lock);
	return e != NULL;
}

// is_left returns whether a page is in the memory of a closed port, which no process shares.
static bool is_left(const void *at)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512], name[64];
	unsigned long from, to, file;
	bool left = false;
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%lx-%lx %*s %*s %*s %lu %63s", &from, &to, &file, name) == 4 && (uintptr_t)at - from < to - from)
			left = strcmp(name, "/memfd:exnet-port-memory") == 0 && !is_open(file);
	if (f != NULL)
		fclose(f);
	return left;
}

// keep leaves n pages in place, for the node to read and write.
static bool keep(RMA2_Port e, uintptr_t page, uint32_t n)
{
	if (!readable((char *)(page * EXN_PAGE), n * EXN_PAGE) || !exn_port_reach(&e->port))
		return false;
	for (uint32_t i = 0; i < n; i++)
		put_page(e, (struct shared_page){page + i, IN_PLACE, 0});
	e->shared_count += n;
	return true;
}

// share moves n pages, none of them shared yet, into the port's memory, or keeps them in place.
static bool share(RMA2_Port e, uintptr_t page, uint32_t n)
{
	void *at = (void *)(page * EXN_PAGE);
	if (is_shared(at) && !is_left(at))
		return keep(e, page, n);
	int64_t file = rma_runs_take(&e->pages, n);
	if (file < 0)
		return keep(e, page, n);
	if (!below(swap_in, e, at, n * EXN_PAGE, offset_of((uint32_t)file))) {
		rma_runs_give(&e->pages, (uint32_t)file, n);
		return keep(e, page, n);
	}
	for (uint32_t i = 0; i < n; i++)
		put_page(e, (struct shared_page){page + i, (uint32_t)file + i, 0});
	e->shared_count += n;
	return true;
}

// take_back makes n consecutive pages private that are no longer registered.
static void take_back(RMA2_Port e, uintptr_t page, uint32_t file, uint32_t n)
{
	// If that fails, the program keeps the pages that peers could see, and the port does not
	// use them again.
	if (!below(swap_out, e, (void *)(page * EXN_PAGE), n * EXN_PAGE, offset_of(file)))
		return;
	rma_give(e, &e->pages, file, n);
}

void rma_pages_trim(RMA2_Port e, uint32_t file, uint32_t n)
{
	if (file + n > e->shared_count + KEPT_PAGES)
		(void)fallocate(e->port.memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset_of(file), (off_t)(n * EXN_PAGE));
}

void rma_pages_release(RMA2_Port e, uintptr_t page, uint32_t n)
{
	uint32_t run = 0, file = 0;
	for (uint32_t i = 0; i <= n; i++) {
		struct shared_page *p = i < n ? find(e, page + i) : NULL;
		bool last = p != NULL && --p->uses == 0;
		if (run > 0 && (!last || p->file != file + run)) {
			take_back(e, page + i - run, file, run);
			run = 0;
		}
		if (!last)
			continue;
		if (p->file != IN_PLACE && run++ == 0)
			file = p->file;
		drop_page(e, p);
	}
}

bool rma_pages_acquire(RMA2_Port e, uintptr_t page, uint32_t n)
{
	if (!reserve(e, n))
		return false;
	uint32_t done = 0;
	while (done < n) {
		uint32_t run = 0;
		while (done + run < n && find(e, page + done + run) == NULL)
			run++;
		if (run > 0 && !share(e, page + done, run))
			break;
		uint32_t stop = run > 0 ? done + run : done + 1;
		for (; done < stop; done++)
			find(e, page + done)->uses++;
	}
	if (done == n)
		return true;
	rma_pages_release(e, page, done);
	return false;
}

uint64_t rma_pages_entry(RMA2_Port e, uintptr_t page)
{
	uint32_t file = find(e, page)->file;
	if (file != IN_PLACE)
		return (uint64_t)file + 1;
	return EXN_IN_PLACE | (page & 0xfffff) << EXN_PLACE_LOW | (page >> 20 & 0xffff) << EXN_PLACE_HIGH;
}
