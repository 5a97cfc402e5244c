/* System calls that this library makes for itself. A function of the C library may be another
 * preload library's, which may hold a lock while it calls this one (fakeroot does), or note what is
 * none of its business. So the library asks the kernel. Results and errno are as those of the C
 * library's functions of the same names. */
#ifndef DS_KERNEL_H
#define DS_KERNEL_H

#include "segment/real.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

static inline int kernel_lookup(const char *path, struct stat *st, int flags) { return (int)ds_syscall(SYS_newfstatat, AT_FDCWD, path, st, flags); }
static inline int kernel_stat(const char *path, struct stat *st) { return kernel_lookup(path, st, 0); }
static inline int kernel_lstat(const char *path, struct stat *st) { return kernel_lookup(path, st, AT_SYMLINK_NOFOLLOW); }
static inline int kernel_fstat(int fd, struct stat *st) { return (int)ds_syscall(SYS_fstat, fd, st); }
static inline int kernel_statfs(const char *path, struct statfs *fs) { return (int)ds_syscall(SYS_statfs, path, fs); }
static inline int kernel_fstatfs(int fd, struct statfs *fs) { return (int)ds_syscall(SYS_fstatfs, fd, fs); }
static inline int kernel_access(const char *path, int how) { return (int)ds_syscall(SYS_faccessat, AT_FDCWD, path, how); }
static inline int kernel_open(const char *path, int flags) { return (int)ds_syscall(SYS_openat, AT_FDCWD, path, flags); }
static inline ssize_t kernel_readlink(const char *path, char *p, size_t n) { return ds_syscall(SYS_readlinkat, AT_FDCWD, path, p, n); }
static inline ssize_t kernel_pread(int fd, void *p, size_t n, off_t at) { return ds_syscall(SYS_pread64, fd, p, n, at); }
static inline off_t kernel_lseek(int fd, off_t at, int from) { return ds_syscall(SYS_lseek, fd, at, from); }
static inline int kernel_ftruncate(int fd, off_t n) { return (int)ds_syscall(SYS_ftruncate, fd, n); }
static inline int kernel_memfd(const char *name, unsigned flags) { return (int)ds_syscall(SYS_memfd_create, name, flags); }
static inline int kernel_eventfd(unsigned n, int flags) { return (int)ds_syscall(SYS_eventfd2, n, flags); }
static inline int kernel_pipe(int ends[2], int flags) { return (int)ds_syscall(SYS_pipe2, ends, flags); }
static inline int kernel_socketpair(int type, int ends[2]) { return (int)ds_syscall(SYS_socketpair, AF_UNIX, type, 0, ends); }
static inline int kernel_getsockname(int fd, struct sockaddr *addr, socklen_t *len) { return (int)ds_syscall(SYS_getsockname, fd, addr, len); }
static inline int kernel_getpeername(int fd, struct sockaddr *addr, socklen_t *len) { return (int)ds_syscall(SYS_getpeername, fd, addr, len); }
static inline int kernel_madvise(void *p, size_t n, int how) { return (int)ds_syscall(SYS_madvise, p, n, how); }
static inline int kernel_getrlimit(int which, struct rlimit *r) { return (int)ds_syscall(SYS_prlimit64, 0, which, NULL, r); }
static inline ssize_t kernel_getrandom(void *p, size_t n, unsigned flags) { return ds_syscall(SYS_getrandom, p, n, flags); }
static inline pid_t kernel_getpid(void) { return (pid_t)ds_syscall(SYS_getpid); }
static inline uid_t kernel_geteuid(void) { return (uid_t)ds_syscall(SYS_geteuid); }

#endif
