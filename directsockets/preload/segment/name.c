#include "segment/name.h"
#include "segment/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
	PROCESSES = 1 << 14, /* 1 << PLACE_P */
	THREADS = 1 << 18,   /* 1 << PLACE_T */
	PLACE_P = 14,
	TIMES_P = 14,
	PLACE_T = 18,
	TIMES_T = 11,
	ID = 22, /* bits of a thread ID: the kernel's PID_MAX_LIMIT */
	IDS = 1 << ID,
	TRIES = 4096, /* places that are looked at */

	/* Kinds of names. */
	THREAD = 1 << 29,
	PROCESS = 1 << 28,
	NO_PLACE = 1 << 23, /* of a process that has got no place in the table */
	WHOLE = 1 << 22,    /* with it, or with a root's ID: the process, not the thread */
};

/* What processes share. A thread's place says to which process it was given. */
struct table {
	dev_t dev; /* of its file */
	ino_t ino;
	uint32_t next_process, next_thread; /* where to look first: in turn, so that a place is free for long */
	uint32_t times[PROCESSES];	    /* place 0 is the root's */
	uint64_t thread[THREADS];	    /* times | name of the process, 28 bits | thread ID; 0: free */
};

static struct table *table;
static int lock_fd;
static bool root = true; /* this process made the table, or there is none */
static bool sealed;
uint32_t ds_name_own;

/* ---- record locks ----------------------------------------------------------------- */

/* As fcntl, of the byte that stands for the process at that place. */
static int record(int cmd, int type, uint32_t place, struct flock *l)
{
	*l = (struct flock){.l_type = (short)type, .l_whence = SEEK_SET, .l_start = (off_t)place, .l_len = 1};
	return (int)ds_syscall(SYS_fcntl, lock_fd, cmd, l);
}

/* Has no process the lock of that place? This one does not. */
static bool unlocked(uint32_t place)
{
	struct flock l;

	return record(F_GETLK, F_WRLCK, place, &l) == 0 && l.l_type == F_UNLCK;
}

/* ---- the table -------------------------------------------------------------------- */

void ds_name_share(int (*keep)(int fd))
{
	int saved = errno, fd;
	struct table *t = MAP_FAILED;
	struct flock l;
	struct stat st;

	if (table || sealed)
		return;
	fd = kernel_memfd("exnet-ds-names", MFD_CLOEXEC);
	if (fd >= 0 && ds_truncate(fd, sizeof *t) == 0 && kernel_fstat(fd, &st) == 0)
		t = REAL(mmap, NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (t != MAP_FAILED) {
		t->dev = st.st_dev;
		t->ino = st.st_ino;
		lock_fd = keep(fd); /* before the lock: to close a copy of the descriptor releases it */
		record(F_SETLK, F_WRLCK, 0, &l);
		table = t;
	} else if (fd >= 0) {
		REAL(close, fd);
	}
	errno = saved;
}

void ds_name_child(void)
{
	ds_name_own = 0;
	root = !table;
}

void ds_name_seal(void) { __atomic_store_n(&sealed, true, __ATOMIC_RELAXED); }

static uint32_t own_tid(void) { return (uint32_t)ds_syscall(SYS_gettid); }
static uint32_t own_pid(void) { return (uint32_t)ds_syscall(SYS_getpid); }

/* ---- processes -------------------------------------------------------------------- */

/* Is lock_fd the table's still? A program may have closed it by a system call of its own. */
static bool still_there(void)
{
	struct stat st;

	return kernel_fstat(lock_fd, &st) == 0 && st.st_dev == table->dev && st.st_ino == table->ino;
}

/* A place in the table; 0: there is none. Whoever gets the lock has the place: its last owner is
 * dead. */
static uint32_t process_place(void)
{
	struct flock l;

	for (int i = 0; i < PROCESSES && (i > 0 || still_there()); i++) {
		uint32_t place = __atomic_fetch_add(&table->next_process, 1, __ATOMIC_RELAXED) % PROCESSES;
		if (place == 0)
			continue;
		if (record(F_SETLK, F_WRLCK, place, &l) == 0) {
			uint32_t times = __atomic_add_fetch(&table->times[place], 1, __ATOMIC_ACQ_REL);
			return PROCESS | times % (1 << TIMES_P) << PLACE_P | place;
		}
		if (errno != EAGAIN && errno != EACCES)
			break;
	}
	return 0;
}

static uint32_t place_of(uint32_t name) { return name & (PROCESSES - 1); }

/* Is the process of that name, which is not this one, dead? */
static bool process_dead(uint32_t name)
{
	uint32_t place = place_of(name), times = __atomic_load_n(&table->times[place], __ATOMIC_ACQUIRE);

	return (name >> PLACE_P) % (1 << TIMES_P) != times % (1 << TIMES_P) || unlocked(place);
}

uint32_t ds_name_process_ask(void)
{
	uint32_t name = __atomic_load_n(&ds_name_own, __ATOMIC_ACQUIRE), none = 0;
	int saved = errno;
	struct flock l;

	if (__builtin_expect(name != 0, 1))
		return name;
	if (!root && !__atomic_load_n(&sealed, __ATOMIC_RELAXED))
		name = process_place();
	bool placed = name;
	if (!placed)
		name = (root ? WHOLE : NO_PLACE | WHOLE) | own_pid();
	if (!__atomic_compare_exchange_n(&ds_name_own, &none, name, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		if (placed) /* another thread was faster */
			record(F_SETLK, F_UNLCK, place_of(name), &l);
		name = none;
	}
	errno = saved;
	return name;
}

/* ---- threads ---------------------------------------------------------------------- */

bool ds_id_dead(uint32_t tid)
{
	char path[32] = "/proc/", text[512], digits[12], *end;
	int n = 0, len = 6, fd;
	ssize_t got;

	if (ds_syscall(SYS_kill, (pid_t)tid, 0) < 0 && errno == ESRCH)
		return true;
	do
		digits[n++] = (char)('0' + tid % 10);
	while (tid /= 10);
	while (n)
		path[len++] = digits[--n];
	memcpy(path + len, "/stat", 6);
	fd = (int)ds_syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	got = ds_syscall(SYS_read, fd, text, sizeof text - 1);
	ds_syscall(SYS_close, fd);
	if (got <= 0)
		return false;
	text[got] = 0;
	end = strrchr(text, ')');
	return end && end[1] == ' ' && (end[2] == 'Z' || end[2] == 'X');
}

/* Is the one dead to which a place was given with this word? */
static bool given_to_dead(uint64_t word)
{
	uint32_t of = PROCESS | (uint32_t)(word >> ID & (PROCESS - 1)), tid = (uint32_t)(word & (IDS - 1));

	return of == __atomic_load_n(&ds_name_own, __ATOMIC_ACQUIRE) ? ds_id_dead(tid) : process_dead(of);
}

/* A place in the table for a thread of the process `of`; 0: there is none. */
static uint32_t thread_place(uint32_t of, uint32_t tid)
{
	for (int i = 0; i < TRIES; i++) {
		uint32_t place = __atomic_fetch_add(&table->next_thread, 1, __ATOMIC_RELAXED) % THREADS;
		uint64_t word = __atomic_load_n(&table->thread[place], __ATOMIC_ACQUIRE);
		if (word && !given_to_dead(word))
			continue;
		uint64_t times = ((word >> (ID + PLACE_P + TIMES_P)) + 1) % (1 << TIMES_T);
		uint64_t want = times << (ID + PLACE_P + TIMES_P) | (uint64_t)(of & (PROCESS - 1)) << ID | tid;
		if (__atomic_compare_exchange_n(&table->thread[place], &word, want, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return THREAD | (uint32_t)times << PLACE_T | place;
	}
	return 0;
}

uint32_t ds_name_thread(void)
{
	uint32_t tid = own_tid() & (IDS - 1), of = root ? 0 : ds_name_process(), name = 0;
	int saved = errno;

	if (root)
		return tid;
	if ((of & PROCESS) && !__atomic_load_n(&sealed, __ATOMIC_RELAXED))
		name = thread_place(of, tid);
	errno = saved;
	return name ? name : NO_PLACE | tid;
}

/* Has the one that this name gives by its ID ended? */
static bool id_dead(uint32_t name)
{
	if (table && !root && !(name & NO_PLACE)) /* the root, whose IDs may be another namespace's */
		return unlocked(0);
	return ds_id_dead(name & (IDS - 1));
}

bool ds_name_dead(uint32_t name)
{
	int saved = errno;
	bool dead;

	if (name & THREAD) {
		uint64_t word = table ? __atomic_load_n(&table->thread[name & (THREADS - 1)], __ATOMIC_ACQUIRE) : 0;
		uint32_t times = name >> PLACE_T & ((1 << TIMES_T) - 1);
		dead = word >> (ID + PLACE_P + TIMES_P) != times || given_to_dead(word);
	} else if (name & PROCESS) {
		dead = name != __atomic_load_n(&ds_name_own, __ATOMIC_ACQUIRE) && (!table || process_dead(name));
	} else {
		dead = id_dead(name);
	}
	errno = saved;
	return dead;
}
