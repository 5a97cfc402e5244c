#include "agent.h"
#include "raw.h"
#include "rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Linux 6.8; older headers lack it. */
struct move {
	uint64_t dst, src, len, mode;
	int64_t move;
};
#define MOVE _IOWR(UFFDIO, 0x05, struct move)
#define MOVE_DONTWAKE 1

#define POPULATE_WRITE 23 /* MADV_POPULATE_WRITE, Linux 5.14 */
#define NEW_UFFD _IO(0xAA, 0x00) /* USERFAULTFD_IOC_NEW of /dev/userfaultfd */

/* What the agent has. */
struct agent {
	struct pg_area *area;
	int socket, uffd;
};

/* Ends the process: what it has elsewhere cannot be had any more. One line says so, on what is the
 * program's standard error now. Not by SIGBUS: a thread that waits for a page of the pager's takes
 * no signal but SIGKILL. */
static void end_process(struct pg_area *area, bool refused)
{
	static const char gone[] = "exn-mem: the pager has ended, and with it memory of this program: the program is killed\n";
	static const char filter[] = "exn-mem: a filter of this program (seccomp) refuses the calls that its memory needs: the program is killed\n";
	const char *text = refused ? filter : gone;
	if (__atomic_exchange_n(&area->ended, 1, __ATOMIC_ACQ_REL))
		PG_CALL(SYS_ppoll, 0, 0, 0, 0); /* until the other thread has said it */
	long fd = PG_CALL(SYS_openat, AT_FDCWD, "/proc/self/fd/2", O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK, 0);

	if (fd >= 0)
		PG_CALL(SYS_write, fd, text, refused ? sizeof filter - 1 : sizeof gone - 1, 0);
	PG_CALL(SYS_kill, PG_CALL(SYS_getpid, 0, 0, 0, 0), SIGKILL, 0, 0);
}

/* Ends the process when the pager ends. arg is the agent. It touches no memory but its stack and
 * the first page of the area, which are there. */
static void watch(void *arg)
{
	const struct agent *a = arg;
	struct pollfd p = {.fd = a->socket};

	while (PG_CALL(SYS_ppoll, &p, 1, 0, 0) <= 0 || !(p.revents & (POLLHUP | POLLERR | POLLNVAL)))
		;
	end_process(a->area, false);
}

/* Starts the watcher, which has the descriptors of the agent. Returns true if it runs. */
static bool start_watcher(struct agent *a)
{
	const unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;

	return pg_thread(watch, a, a->area->watch + PG_WATCH, flags) > 0;
}

/* Lets the thread that started the agent go on. */
static void tell_ready(struct pg_area *area)
{
	__atomic_store_n(&area->ready, 1, __ATOMIC_RELEASE);
	PG_CALL(SYS_futex, &area->ready, FUTEX_WAKE_PRIVATE, 1 << 30, 0);
}

/* The thread keeps the user's ID of the program, but no capability, also where the program gives up
 * root later. */
static void drop_rights(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};

	PG_CALL(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0);
	PG_CALL(SYS_capset, &head, none, 0, 0);
}

/* Makes a userfaultfd. Returns it or the negative number of an error. */
static int make_uffd(void)
{
	long fd = PG_CALL(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK, 0, 0, 0), device;

	if (fd >= 0)
		return (int)fd;
	device = PG_CALL(SYS_openat, AT_FDCWD, "/dev/userfaultfd", O_RDWR | O_CLOEXEC, 0);
	if (device < 0)
		return (int)fd;
	fd = PG_CALL(SYS_ioctl, device, NEW_UFFD, O_CLOEXEC | O_NONBLOCK, 0);
	PG_CALL(SYS_close, device, 0, 0, 0);
	return (int)fd;
}

/* Connects to the pager and introduces the process. Returns true if it is paged from now on. */
static bool meet(struct agent *a)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	uint64_t base = (uint64_t)a->area;
	struct pg_hello hello = {
		.magic = PG_MAGIC,
		.token = *(volatile uint64_t *)&a->area->mark.token, /* a page that the pager may bring */
		.base = base,
		.slots = (uint64_t)a->area->slots,
		.end = base + PG_AREA_SIZE,
	};
	struct pg_welcome welcome = {0};

	for (size_t i = 0; i < sizeof a->area->path; i++)
		to.sun_path[i] = a->area->path[i];
	a->socket = (int)PG_CALL(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, 0);
	if (a->socket < 0 || PG_CALL(SYS_connect, a->socket, &to, sizeof to, 0) < 0)
		return false;
	a->uffd = -1;
	if (!hello.token) {
		int made = make_uffd();

		if (made < 0)
			hello.why = (uint32_t)-made;
		else
			a->uffd = made;
	}
	if (rpc_send(a->socket, &hello, sizeof hello, &a->uffd, a->uffd >= 0, 0) != sizeof hello)
		return false;
	int fd = -1, n = 1;

	if (rpc_receive(a->socket, &welcome, sizeof welcome, &fd, &n, 0) != sizeof welcome)
		return false;
	if (hello.token)
		a->uffd = fd;
	return welcome.magic == PG_MAGIC && !welcome.refused && a->uffd >= 0;
}

/* Moves the pages of an entry into their slots. */
static struct pg_done move_entry(const struct agent *a, const struct pg_entry *e)
{
	struct pg_done done = {0, 0};

	if (e->slot >= PG_SLOTS || e->count > PG_SLOTS - e->slot)
		return (struct pg_done){0, EINVAL};
	while (done.count < e->count) {
		uint64_t at = (uint64_t)done.count * PG_PAGE;
		struct move m = {(uint64_t)a->area->slots + (uint64_t)e->slot * PG_PAGE + at, e->address + at, (uint64_t)(e->count - done.count) * PG_PAGE, MOVE_DONTWAKE, 0};
		long status = PG_CALL(SYS_ioctl, a->uffd, MOVE, &m, 0);

		if (m.move > 0)
			done.count += (uint32_t)((uint64_t)m.move / PG_PAGE);
		if (status < 0 && m.move <= 0) {
			done.error = (int32_t)-status;
			break;
		}
	}
	return done;
}

/* Gives the slots of an entry back. */
static struct pg_done drop_entry(const struct agent *a, const struct pg_entry *e)
{
	long status = -EINVAL;

	if (e->slot < PG_SLOTS && e->count <= PG_SLOTS - e->slot)
		status = PG_CALL(SYS_madvise, a->area->slots + (uint64_t)e->slot * PG_PAGE, (uint64_t)e->count * PG_PAGE, MADV_DONTNEED, 0);
	return (struct pg_done){status < 0 ? 0 : e->count, (int32_t)-status};
}

/* Makes the pages of an entry the process's own. */
static struct pg_done own_entry(const struct pg_entry *e)
{
	long status = PG_CALL(SYS_madvise, e->address, (uint64_t)e->count * PG_PAGE, POPULATE_WRITE, 0);

	return (struct pg_done){status < 0 ? 0 : e->count, (int32_t)-status};
}

/* Does an entry of a command. */
static struct pg_done do_entry(const struct agent *a, uint32_t op, const struct pg_entry *e)
{
	switch (op) {
	case PG_MOVE:
		return move_entry(a, e);
	case PG_DROP:
		return drop_entry(a, e);
	case PG_OWN:
		return own_entry(e);
	}
	return (struct pg_done){0, EINVAL};
}

/* Does what the pager says, until it has ended. Returns true if a call was refused instead. */
static bool serve(const struct agent *a)
{
	struct pg_command command;
	struct pg_reply reply;

	for (;;) {
		int none = 0;
		long n = rpc_receive(a->socket, &command, sizeof command, NULL, &none, 0);

		if (n < (long)offsetof(struct pg_command, entry) || command.entries > PG_ENTRIES)
			return n == -EPERM || n == -EACCES || n == -ENOSYS;
		reply.op = command.op;
		reply.entries = command.entries;
		for (uint32_t i = 0; i < command.entries; i++)
			reply.done[i] = do_entry(a, command.op, &command.entry[i]);
		size_t length = offsetof(struct pg_reply, done) + reply.entries * sizeof reply.done[0];

		n = rpc_send(a->socket, &reply, length, NULL, 0, 0);
		if (n != (long)length)
			return n == -EPERM || n == -EACCES || n == -ENOSYS;
	}
}

int pg_agent(void *arg)
{
	struct agent a = {.area = arg, .socket = -1, .uffd = -1};

	/* The descriptors are this thread's own from here on: the program closes what it likes, and
	 * sees none of these. */
	PG_CALL(SYS_close_range, 0, ~0U, 0, 0);
	PG_CALL(SYS_prctl, PR_SET_NAME, "exn-mem", 0, 0);
	bool paged = meet(&a);

	drop_rights();
	if (!paged || !start_watcher(&a)) {
		if (__atomic_load_n(&a.area->adopted, __ATOMIC_RELAXED))
			end_process(a.area, false);
		tell_ready(a.area);
		return 0;
	}
	__atomic_store_n(&a.area->adopted, 1, __ATOMIC_RELAXED);
	tell_ready(a.area);
	end_process(a.area, serve(&a));
	return 0;
}
