/* The tracer by which a static program gets the library while it starts. exn-run runs it in a
 * process of its own that shares exn-run's memory, which it keeps when exn-run becomes the program.
 * It uses no other part of the library, allocates nothing, and takes no signals.
 *
 * The program never depends on it. A system call that it has the program make returns to a gate
 * that restores all registers from a frame on the stack: without the tracer the program goes on
 * from there, plain. Three calls map the library's code, which does the rest (boot.c). */
#include "free/trace.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

TRACE_EXPORT void ds_free_trace(struct trace *t);

enum { RED_ZONE = 128, ALIGN = 64, PAGE = 4096, MOST_PATH = 64, MOST_AUXV = 1024, WAIT_SECONDS = 20, SIGNALS_BYTES = 8 };
enum { EVENT_BITS = 16, EVENT_STOP = 128, AT_CALL = SIGTRAP | 0x80, GET_MASK = 0x420a, SET_MASK = 0x420b };

#ifdef __aarch64__
enum { FRAME_SIZE = 4688, FRAME_MASK = 168, FRAME_REGISTERS = 304 + 8, FRAME_RECORDS = 592, FPSIMD = 0x46508001, FPSIMD_SIZE = 528 };
static const uint32_t gate_code[] = {0xd4000001, 0xd2801168, 0xd4000001};

static uint64_t stack_of(const struct user_regs_struct *r) { return r->sp; }
static long answer_of(const struct user_regs_struct *r) { return (long)r->regs[0]; }

/* The frame that rt_sigreturn reads: it restores these registers, and those of vectors as a program
 * begins with them. */
static void make_frame(char *b, const struct user_regs_struct *r, uint64_t mask)
{
	*(uint64_t *)(void *)(b + FRAME_MASK) = mask;
	*(struct user_regs_struct *)(void *)(b + FRAME_REGISTERS) = *r;
	((uint32_t *)(void *)(b + FRAME_RECORDS))[0] = FPSIMD;
	((uint32_t *)(void *)(b + FRAME_RECORDS))[1] = FPSIMD_SIZE;
}

static void set_call(struct user_regs_struct *r, uint64_t pc, uint64_t sp, long nr, const long a[6])
{
	r->pc = pc;
	r->sp = sp;
	r->regs[8] = (uint64_t)nr;
	for (int i = 0; i < 6; i++)
		r->regs[i] = (uint64_t)a[i];
}

static void set_boot(struct user_regs_struct *r, uint64_t pc, uint64_t sp, uint64_t argument)
{
	r->pc = pc;
	r->sp = sp;
	r->regs[0] = argument;
}

/* At the end of execve the kernel shows a tracer another x7. */
static void correct(struct user_regs_struct *r) { r->regs[7] = 0; }
#else
enum { FRAME_SIZE = 1024 };
/* syscall; mov $SYS_rt_sigreturn, %eax; syscall */
static const uint8_t gate_code[] = {0x0f, 0x05, 0xb8, 15, 0, 0, 0, 0x0f, 0x05};

static uint64_t stack_of(const struct user_regs_struct *r) { return r->rsp; }
static long answer_of(const struct user_regs_struct *r) { return (long)r->rax; }

/* The frame that rt_sigreturn reads (struct ucontext): it restores these registers, and those of
 * vectors as a program begins with them. It has no stack for signals: the kernel refuses that. */
static void make_frame(char *b, const struct user_regs_struct *r, uint64_t mask)
{
	enum { SIGCONTEXT_SS = 2, STRICT_RESTORE_SS = 4, RESERVED = 13 };
	const uint64_t words[] = {SIGCONTEXT_SS | STRICT_RESTORE_SS, 0, 0, 0, 0, r->r8, r->r9, r->r10, r->r11, r->r12, r->r13, r->r14, r->r15,
				  r->rdi, r->rsi, r->rbp, r->rbx, r->rdx, r->rax, r->rcx, r->rsp, r->rip, r->eflags, r->cs | r->ss << 48};
	uint64_t *to = (uint64_t *)(void *)b;

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		*to++ = words[i];
	to[RESERVED] = mask;
}

static void set_call(struct user_regs_struct *r, uint64_t pc, uint64_t sp, long nr, const long a[6])
{
	r->rip = pc;
	r->rsp = sp;
	r->rax = (uint64_t)nr;
	r->orig_rax = ~0ull;
	r->rdi = (uint64_t)a[0];
	r->rsi = (uint64_t)a[1];
	r->rdx = (uint64_t)a[2];
	r->r10 = (uint64_t)a[3];
	r->r8 = (uint64_t)a[4];
	r->r9 = (uint64_t)a[5];
}

static void set_boot(struct user_regs_struct *r, uint64_t pc, uint64_t sp, uint64_t argument)
{
	r->rip = pc;
	r->rsp = sp - sizeof(uint64_t); /* as if it had been called */
	r->orig_rax = ~0ull;
	r->rdi = argument;
}

static void correct(struct user_regs_struct *r) { (void)r; }
#endif

/* What the tracer knows of the program. */
struct traced {
	struct trace *plan;
	long pid;
	int mem;			/* /proc/PID/mem */
	struct user_regs_struct start;	/* where the program is to go on */
	uint64_t mask, frame, gate, arguments;
	uint64_t steps;
};

static long trace_request(long what, long pid, long address, long data) { return trace_call(SYS_ptrace, what, pid, address, data, 0, 0); }

/* A step, at which a test kills the tracer. */
static void at_step(struct traced *s)
{
	if (++s->steps == s->plan->kill_at)
		trace_call(SYS_kill, trace_call(SYS_getpid, 0, 0, 0, 0, 0, 0), SIGKILL, 0, 0, 0, 0);
}

/* Writes a number, and returns its end. */
static char *put_number(char *to, uint64_t n)
{
	char digits[20];
	int i = 0;

	do
		digits[i++] = (char)('0' + n % 10);
	while (n /= 10);
	while (i > 0)
		*to++ = digits[--i];
	*to = 0;
	return to;
}

/* Writes the path of a file of a process. */
static void proc_path(char *to, long pid, const char *name)
{
	const char *proc = "/proc/";

	while (*proc)
		*to++ = *proc++;
	to = put_number(to, (uint64_t)pid);
	while ((*to++ = *name++))
		;
}

static int proc_open(long pid, const char *name, int flags)
{
	char path[MOST_PATH];

	proc_path(path, pid, name);
	return (int)trace_call(SYS_openat, AT_FDCWD, (long)path, flags | O_CLOEXEC, 0, 0, 0);
}

static bool set_registers(const struct traced *s, const struct user_regs_struct *r)
{
	struct iovec v = {(void *)(uintptr_t)r, sizeof *r};

	return trace_request(PTRACE_SETREGSET, s->pid, NT_PRSTATUS, (long)&v) == 0;
}

static bool get_registers(const struct traced *s, struct user_regs_struct *r)
{
	struct iovec v = {r, sizeof *r};

	return trace_request(PTRACE_GETREGSET, s->pid, NT_PRSTATUS, (long)&v) == 0;
}

static bool put(const struct traced *s, uint64_t at, const void *from, uint64_t n)
{
	return trace_call(SYS_pwrite64, s->mem, (long)from, (long)n, (long)at, 0, 0) == (long)n;
}

static bool get(const struct traced *s, uint64_t at, void *to, uint64_t n)
{
	return trace_call(SYS_pread64, s->mem, (long)to, (long)n, (long)at, 0, 0) == (long)n;
}

/* Whether boot.c has ended. */
static bool has_booted(struct traced *s)
{
	return get(s, s->arguments + offsetof(struct trace, result), &s->plan->result, sizeof s->plan->result) && s->plan->result != TRACE_PENDING;
}

/* Has the program go on (how is PTRACE_CONT or PTRACE_SYSCALL; 0: it does) until it stops at a
 * system call, for execve, or, if it boots, at the end of that. Signals reach it, and it may be
 * stopped as any other. False: it has ended. */
static bool wait_for(struct traced *s, long how, bool boots)
{
	bool going = how == 0;
	long signal = 0, next = going ? PTRACE_CONT : how;

	for (;;) {
		int status = 0;

		if (!going && trace_request(next, s->pid, 0, signal) < 0)
			return false;
		going = false;
		signal = 0;
		long pid = trace_call(SYS_wait4, -1, (long)&status, __WALL, 0, 0, 0);
		if (pid == -EINTR) {
			going = true;
			continue;
		}
		if (pid < 0 || !WIFSTOPPED(status))
			return false;
		s->pid = pid;
		switch (status >> EVENT_BITS) {
		case PTRACE_EVENT_EXEC:
			return true;
		case EVENT_STOP:
			if (WSTOPSIG(status) != SIGTRAP) {
				if (trace_request(PTRACE_LISTEN, pid, 0, 0) < 0)
					return false;
				going = true;
			}
			break;
		case 0:
			if (WSTOPSIG(status) == AT_CALL)
				return true;
			if (boots && WSTOPSIG(status) == SIGURG && has_booted(s))
				return true;
			signal = WSTOPSIG(status);
		}
	}
}

/* Has the program make a system call. */
static long call(struct traced *s, long nr, long a, long b, long c, long d, long e, long f)
{
	const long list[] = {a, b, c, d, e, f};
	struct user_regs_struct r = s->start;

	set_call(&r, s->gate, s->frame, nr, list);
	if (!set_registers(s, &r))
		return -ESRCH;
	for (int i = 0; i < 2; i++) { /* it begins, it ends */
		if (!wait_for(s, PTRACE_SYSCALL, false))
			return -ESRCH;
		at_step(s);
	}
	return get_registers(s, &r) ? answer_of(&r) : -ESRCH;
}

static bool failed(long rc) { return rc < 0 && rc > -PAGE; }

/* Whether the program is the one that the plan is for. */
static bool is_planned(const struct traced *s)
{
	const struct trace *t = s->plan;
	char path[MOST_PATH];
	struct stat st;

	proc_path(path, s->pid, "/exe");
	return trace_call(SYS_newfstatat, AT_FDCWD, (long)path, (long)&st, 0, 0, 0) == 0 && st.st_dev == t->device && st.st_ino == t->inode &&
	       (uint64_t)st.st_size == t->length && (uint64_t)st.st_mtim.tv_sec == t->seconds && (uint64_t)st.st_mtim.tv_nsec == t->nanoseconds;
}

/* Learns how the program is at its start, and writes the frame by which it comes back to that. */
static long read_start(struct traced *s)
{
	struct trace *t = s->plan;
	uint64_t auxv[MOST_AUXV / sizeof(uint64_t)], secure = 0, entry = 0;
	_Alignas(16) char frame[FRAME_SIZE];
	int fd = proc_open(s->pid, "/auxv", O_RDONLY);
	long n = fd < 0 ? fd : trace_call(SYS_read, fd, (long)auxv, sizeof auxv, 0, 0, 0);

	if (fd >= 0)
		trace_call(SYS_close, fd, 0, 0, 0, 0, 0);
	if (n < 0)
		return n;
	for (size_t i = 0; i + 1 < (size_t)n / sizeof *auxv; i += 2)
		if (auxv[i] == AT_SECURE)
			secure = auxv[i + 1];
		else if (auxv[i] == AT_ENTRY)
			entry = auxv[i + 1];
	if (secure) {
		t->step = TRACE_SECURE;
		return -EPERM;
	}
	t->base = t->movable ? entry - t->entry : 0;
	s->gate = t->base + t->gate;
	if (!get_registers(s, &s->start) || trace_request(GET_MASK, s->pid, SIGNALS_BYTES, (long)&s->mask) < 0)
		return -ESRCH;
	correct(&s->start);
	for (size_t i = 0; i < sizeof frame / sizeof(uint64_t); i++)
		((volatile uint64_t *)(void *)frame)[i] = 0;
	make_frame(frame, &s->start, s->mask);
	t->stack = stack_of(&s->start);
	t->frame = s->frame = (t->stack - RED_ZONE - sizeof frame) & -(uint64_t)ALIGN;
	s->arguments = (s->frame - sizeof *t) & -(uint64_t)ALIGN;
	return put(s, s->frame, frame, sizeof frame) ? 0 : -EFAULT;
}

/* Maps the library's code, and has the program do the rest. */
static long map_code(struct traced *s)
{
	struct trace *t = s->plan;
	const struct trace_segment *code = &t->segment[t->code];
	uint64_t at = t->base + t->at, name = (s->arguments - t->library_length) & -(uint64_t)ALIGN, skip = code->address % PAGE;
	struct user_regs_struct r = s->start;

	t->step = TRACE_RESERVE;
	long rc = call(s, SYS_mmap, (long)at, (long)t->whole, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (failed(rc))
		return rc;
	t->step = TRACE_OPEN;
	if (!put(s, t->base + t->stubs, t->stub_bytes, t->stubs_length) || !put(s, name, t->library, t->library_length))
		return -EFAULT;
	rc = call(s, SYS_openat, AT_FDCWD, (long)name, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (failed(rc))
		return rc;
	t->library_fd = (uint64_t)rc;
	t->step = TRACE_MAP;
	rc = call(s, SYS_mmap, (long)(at + code->address - skip), (long)(code->size + skip), (long)code->protection, MAP_PRIVATE | MAP_FIXED,
		  (long)t->library_fd, (long)(code->offset - skip));
	if (failed(rc)) {
		call(s, SYS_close, (long)t->library_fd, 0, 0, 0, 0, 0);
		return rc;
	}
	t->result = TRACE_PENDING;
	set_boot(&r, at + t->boot, name - ALIGN, s->arguments);
	if (!put(s, s->arguments, t, sizeof *t) || !set_registers(s, &r))
		return -EFAULT;
	at_step(s);
	if (!wait_for(s, PTRACE_CONT, true))
		return -ESRCH;
	get(s, s->arguments + offsetof(struct trace, step), &t->step, sizeof t->step);
	return t->result;
}

/* Puts the library into the program. If that fails, the program is as it was, and nothing stays
 * mapped. */
static long put_library(struct traced *s)
{
	struct trace *t = s->plan;
	uint8_t unused[sizeof gate_code];

	t->step = TRACE_READ;
	s->mem = proc_open(s->pid, "/mem", O_RDWR);
	long rc = s->mem < 0 ? s->mem : read_start(s);
	if (rc < 0)
		return rc;
	if (!get(s, s->gate, unused, sizeof unused) || !put(s, s->gate, gate_code, sizeof gate_code))
		return -EFAULT;
	at_step(s);
	rc = map_code(s);
	if (rc < 0) {
		if (t->step != TRACE_RESERVE)
			call(s, SYS_munmap, (long)(t->base + t->at), (long)t->whole, 0, 0, 0, 0);
		set_registers(s, &s->start);
		trace_request(SET_MASK, s->pid, SIGNALS_BYTES, (long)&s->mask);
	}
	put(s, s->gate, unused, sizeof unused);
	return rc;
}

/* Waits until exn-run knows this process. */
static bool told(struct trace *t)
{
	const struct timespec most = {.tv_sec = WAIT_SECONDS};

	while (!__atomic_load_n(&t->ready, __ATOMIC_ACQUIRE))
		if (trace_call(SYS_futex, (long)&t->ready, FUTEX_WAIT, 0, (long)&most, 0, 0) == -ETIMEDOUT)
			return false;
	return true;
}

/* Begins to trace exn-run's thread, and tells it so. */
static bool seize(struct trace *t)
{
	long rc = trace_request(PTRACE_SEIZE, t->thread, 0, PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD);

	__atomic_store_n(&t->seized, rc < 0 ? (int32_t)rc : 1, __ATOMIC_RELEASE);
	trace_call(SYS_futex, (long)&t->seized, FUTEX_WAKE, 1, 0, 0, 0);
	return rc == 0;
}

static void trace(struct trace *t)
{
	struct traced s = {.plan = t, .pid = t->thread};

	if (!told(t) || !seize(t))
		return;
	at_step(&s);
	if (!wait_for(&s, 0, false))
		return;
	at_step(&s);
	if (!wait_for(&s, PTRACE_SYSCALL, false) || !is_planned(&s)) { /* the end of execve */
		trace_request(PTRACE_DETACH, s.pid, 0, 0);
		return;
	}
	long rc = put_library(&s);
	trace_request(PTRACE_DETACH, s.pid, 0, 0);
	if (rc == -ESRCH || (rc == 0 && !t->explain))
		return;
	char *const no_environment = NULL;
	put_number(t->report_step, rc < 0 ? (uint64_t)t->step : TRACE_DONE);
	put_number(t->report_error, (uint64_t)-rc);
	trace_call(SYS_execve, (long)"/proc/self/exe", (long)t->report, (long)&no_environment, 0, 0, 0);
}

/* Called on a stack of its own, in a process of its own with all signals blocked. */
void ds_free_trace(struct trace *t)
{
	trace_call(SYS_setsid, 0, 0, 0, 0, 0, 0);
	trace_call(SYS_close, 0, 0, 0, 0, 0, 0);
	trace_call(SYS_close, 1, 0, 0, 0, 0, 0);
	trace_call(SYS_close_range, 3, ~0u, 0, 0, 0, 0);
	trace(t);
	trace_call(SYS_exit_group, 0, 0, 0, 0, 0, 0);
	__builtin_trap();
}
