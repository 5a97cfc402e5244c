/* The C library's own functions, behind those that this library interposes.
 *
 * REAL(recv, fd, p, n, 0) calls the real one. It works before any constructor
 * has run and from any thread: the first use looks all of them up. A function
 * that the C library does not have is NULL; see DS_REAL_OPTIONAL.
 */
#ifndef DS_REAL_H
#define DS_REAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "segment/libc.h"
#include "segment/local.h"
#include "segment/msan.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define DS_HIDDEN __attribute__((visibility("hidden")))

/* For what each program that is started runs, at its start and its end, and for the variables that
 * this writes: they lie in few pages, beside what the dynamic linker reads and writes anyway. */
#define DS_START __attribute__((section(".text.startup")))
#define DS_START_DATA __attribute__((section(".data")))

/* For loops that poll memory until another CPU has changed it. */
static inline void ds_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* The counter that all CPUs of the host share, for stamps and short times. Its frequency varies:
 * see ds_ticks_us. */
static inline uint64_t ds_ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t t;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
#else
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

/* X(result, name, arguments). */
#define DS_REAL(X)                                                                              \
	X(int, socket, (int, int, int))                                                         \
	X(int, connect, (int, const struct sockaddr *, socklen_t))                              \
	X(int, listen, (int, int))                                                              \
	X(int, accept, (int, struct sockaddr *, socklen_t *))                                   \
	X(int, accept4, (int, struct sockaddr *, socklen_t *, int))                             \
	X(int, shutdown, (int, int))                                                            \
	X(int, getsockopt, (int, int, int, void *, socklen_t *))                                \
	X(int, setsockopt, (int, int, int, const void *, socklen_t))                            \
	X(ssize_t, read, (int, void *, size_t))                                                 \
	X(ssize_t, readv, (int, const struct iovec *, int))                                     \
	X(ssize_t, preadv, (int, const struct iovec *, int, off_t))                             \
	X(ssize_t, preadv2, (int, const struct iovec *, int, off_t, int))                       \
	X(ssize_t, recv, (int, void *, size_t, int))                                            \
	X(ssize_t, recvfrom, (int, void *, size_t, int, struct sockaddr *, socklen_t *))        \
	X(ssize_t, recvmsg, (int, struct msghdr *, int))                                        \
	X(int, recvmmsg, (int, struct mmsghdr *, unsigned, ds_mmflags, struct timespec *))      \
	X(ssize_t, write, (int, const void *, size_t))                                          \
	X(ssize_t, writev, (int, const struct iovec *, int))                                    \
	X(ssize_t, pwritev, (int, const struct iovec *, int, off_t))                            \
	X(ssize_t, pwritev2, (int, const struct iovec *, int, off_t, int))                      \
	X(ssize_t, send, (int, const void *, size_t, int))                                      \
	X(ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t)) \
	X(ssize_t, sendmsg, (int, const struct msghdr *, int))                                  \
	X(int, sendmmsg, (int, struct mmsghdr *, unsigned, ds_mmflags))                         \
	X(ssize_t, sendfile, (int, int, off_t *, size_t))                                       \
	X(ssize_t, splice, (int, off64_t *, int, off64_t *, size_t, unsigned))                  \
	X(ssize_t, tee, (int, int, size_t, unsigned))                                           \
	X(ssize_t, vmsplice, (int, const struct iovec *, size_t, unsigned))                     \
	X(int, close, (int))                                                                    \
	X(int, dup, (int))                                                                      \
	X(int, dup2, (int, int))                                                                \
	X(int, dup3, (int, int, int))                                                           \
	X(int, fcntl, (int, int, ...))                                                          \
	X(int, ioctl, (int, ds_request, ...))                                                   \
	X(int, poll, (struct pollfd *, nfds_t, int))                                            \
	X(int, ppoll, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))     \
	X(int, select, (int, fd_set *, fd_set *, fd_set *, struct timeval *))                   \
	X(int, pselect, (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *)) \
	X(int, epoll_create, (int))                                                             \
	X(int, epoll_create1, (int))                                                            \
	X(int, epoll_ctl, (int, int, int, struct epoll_event *))                                \
	X(int, epoll_wait, (int, struct epoll_event *, int, int))                               \
	X(int, epoll_pwait, (int, struct epoll_event *, int, int, const sigset_t *))            \
	X(pid_t, fork, (void))                                                                  \
	X(int, execve, (const char *, char *const[], char *const[]))                            \
	X(int, execvp, (const char *, char *const[]))                                           \
	X(int, execv, (const char *, char *const[]))                                            \
	X(int, execvpe, (const char *, char *const[], char *const[]))                           \
	X(int, fexecve, (int, char *const[], char *const[]))                                    \
	X(int, posix_spawn, (pid_t *, const char *, const posix_spawn_file_actions_t *,         \
			     const posix_spawnattr_t *, char *const[], char *const[]))          \
	X(int, posix_spawnp, (pid_t *, const char *, const posix_spawn_file_actions_t *,        \
			      const posix_spawnattr_t *, char *const[], char *const[]))         \
	X(void *, mmap, (void *, size_t, int, int, int, off_t))                                 \
	X(int, munmap, (void *, size_t))                                                        \
	X(int, mprotect, (void *, size_t, int))                                                 \
	X(void *, mremap, (void *, size_t, size_t, int, ...))                                   \
	X(FILE *, fdopen, (int, const char *))                                                  \
	X(FILE *, popen, (const char *, const char *))                                          \
	X(int, system, (const char *))                                                          \
	X(int, sigaction, (int, const struct sigaction *, struct sigaction *))                  \
	X(void, _exit, (int))                                                                   \
	X(int, prctl, (int, ...))                                                               \
	X(int, chroot, (const char *))                                                         \
	X(long, syscall, (long, ...))

/* Some C libraries lack these, or older versions do: check for NULL. */
#define DS_REAL_OPTIONAL(X)                                                                     \
	X(int, fcntl64, (int, int, ...))                                                        \
	X(int, close_range, (unsigned, unsigned, int))                                          \
	X(void, closefrom, (int))                                                               \
	X(int, epoll_pwait2, (int, struct epoll_event *, int, const struct timespec *, const sigset_t *)) \
	X(int, execveat, (int, const char *, char *const[], char *const[], int))                \
	X(pid_t, _Fork, (void))                                                                 \
	X(ssize_t, __read_chk, (int, void *, size_t, size_t))                                   \
	X(ssize_t, __recv_chk, (int, void *, size_t, size_t, int))                              \
	X(ssize_t, __recvfrom_chk, (int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *)) \
	X(int, __poll_chk, (struct pollfd *, nfds_t, int, size_t))                              \
	X(int, __ppoll_chk, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t))

struct ds_real {
#define X(result, name, args) result(*name) args;
	DS_REAL(X) DS_REAL_OPTIONAL(X)
#undef X
};

extern struct ds_real ds_real DS_HIDDEN;
extern bool ds_real_ready DS_HIDDEN;

/* Where the C library says, in one byte, whether this process has only one thread (thread.h). Set
 * by ds_real_init. */
extern const char *ds_single_thread DS_HIDDEN;

/* The function of this name behind this library, as by dlsym(RTLD_NEXT); NULL: there is none. */
void *ds_next(const char *name) DS_HIDDEN;

/* The first of all functions of this name, as by dlsym(RTLD_DEFAULT). */
void *ds_first(const char *name) DS_HIDDEN;

/* Looks up n functions at once, DS_NEXT_MOST at most: names has their names, each with its NUL.
 * Where there is none, the pointer stays as it is. */
enum { DS_NEXT_MOST = 128 };
void ds_next_all(const char *names, void *to[], size_t n) DS_HIDDEN;

/* Functions of the C library by the n names at names, each with its NUL and after the last another:
 * where they are, and how long; a NULL where there is none. *text: the C library's instructions,
 * and where they are in its file. False: it is not known. glibc only. */
struct ds_function {
	const char *at;
	size_t size;
};
struct ds_text {
	const char *begin, *end, *file, *base; /* base and an address of the file is where that is */
	off_t off;
	const char *frames; /* its table of functions, for those who unwind (.eh_frame_hdr); NULL: it has none */
};
bool ds_libc_functions(const char *names, struct ds_function f[], size_t n, struct ds_text *text) DS_HIDDEN;

/* The file that this library was loaded from, by its full name; NULL: that is not known. */
const char *ds_own_path(void) DS_HIDDEN;

/* Looks all functions up. Idempotent; any thread, at any time. */
void ds_real_init(void) DS_HIDDEN;

/* The function itself, which is not marked; REAL_NOW: once ds_real_ready is set. Another thread may
 * be storing the same value. */
#define REAL_NOW(name) __atomic_load_n(&ds_real.name, __ATOMIC_RELAXED)
#define REAL_FN(name) \
	(__builtin_expect(!__atomic_load_n(&ds_real_ready, __ATOMIC_ACQUIRE), 0) ? ds_real_init() : (void)0, REAL_NOW(name))

/* How many calls of REAL the thread is in: what those do is the kernel's, also where the C
 * library's own system calls come to this library (hooks/entry.c). A handler of a signal begins at
 * 0. */
extern DS_LOCAL int ds_thread_marked DS_HIDDEN;
#define ds_marked DS_HERE(ds_thread_marked)
static inline void ds_unmark(const int *before) { ds_marked = *before; }
#ifdef DS_FREE /* no C library calls this one */
#define DS_MARK(before) ((void)0)
#else
#define DS_MARK(before) \
	__attribute__((cleanup(ds_unmark))) int before = ds_marked; \
	ds_marked = before + 1
#endif

/* REAL(recv, fd, p, n, 0) calls it. */
#ifdef DS_MSAN
#define REAL(name, ...) name(__VA_ARGS__)
#else
#define REAL(name, ...) \
	({ \
		DS_MARK(before_##name); \
		REAL_FN(name)(__VA_ARGS__); \
	})
#endif

/* The program's syscall() is interposed (hooks/syscall.c). Inside this library, syscall() is the
 * kernel's. */
#define syscall(...) ds_syscall(__VA_ARGS__)

/* As syscall(2), in an instruction of this library's own: no other library takes its place, before
 * any constructor either. No cancellation point. */
typedef long ds_kernel_fn(long nr, ...);
extern ds_kernel_fn ds_kernel_call DS_HIDDEN;

/* How this library makes its own system calls; tests put a function of theirs before it. */
extern ds_kernel_fn *ds_kernel DS_HIDDEN;
#ifdef DS_MSAN
#define ds_syscall ds_msan_syscall
#else
#define ds_syscall(...) __atomic_load_n(&ds_kernel, __ATOMIC_RELAXED)(__VA_ARGS__)
#endif

#endif
