/* What exn-run, the tracer and the program share while the library gets into a static program:
 * exn-run makes a plan (inject/plan.go), the tracer (trace.c) has the program map the library's
 * code, and the program does the rest (boot.c). These files need no other of the library: it has
 * not begun. */
#ifndef DS_TRACE_H
#define DS_TRACE_H

#include <stdint.h>
#include <sys/syscall.h>

#define TRACE_EXPORT __attribute__((visibility("default")))

/* Where it failed, for exn-run to say (inject/launch.go). */
enum trace_step { TRACE_DONE, TRACE_READ, TRACE_SECURE, TRACE_RESERVE, TRACE_OPEN, TRACE_MAP, TRACE_START };

struct trace_segment {
	uint64_t address, offset, size, memory, protection; /* as in the file, whole pages but for size */
};

enum { TRACE_SEGMENTS = 8 };

/* The plan. Addresses of the program are from its base. */
struct trace {
	uint32_t ready;	 /* exn-run: the tracer may begin; a futex */
	int32_t seized;	 /* the tracer: 1, or -errno; a futex */
	int32_t tracer;	 /* its process */
	int32_t thread;	 /* exn-run's, which becomes the program */
	uint64_t device, inode, length, seconds, nanoseconds; /* of the program's file */
	uint64_t movable, entry, gate, go;
	const char *library;
	uint64_t library_length; /* of its name, with the 0 */
	uint64_t at, whole;	 /* of the library and the stubs */
	uint64_t boot, code, segments; /* code: which segment has ds_free_boot */
	struct trace_segment segment[TRACE_SEGMENTS];
	const void *stub_bytes;
	uint64_t stubs, stubs_length, stubs_size, table, text, text_size;
	char *const *report; /* what exn-run is started with to say how it went */
	char *report_step, *report_error;
	uint64_t explain, kill_at; /* kill_at: the step at which a test kills the tracer; 0: none */
	/* What the tracer adds for the program, and what that answers. */
	uint64_t base, library_fd, stack, frame;
	int64_t step, result;
};

/* result until boot.c has ended. */
#define TRACE_PENDING 1

/* A jump, and where it is written from the base; 0: the table ends. */
struct trace_jump {
	uint64_t at;
	uint8_t bytes[8];
};

static inline long trace_call(long nr, long a, long b, long c, long d, long e, long f)
{
#ifdef __aarch64__
	register long x8 __asm__("x8") = nr, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;

	__asm__ volatile("syscall" : "+a"(nr) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return nr;
#endif
}

#endif
