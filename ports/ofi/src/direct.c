// direct.c: bytes that are read where they are in the peer's program, once, if the kernel lets this
// process do so. Both are one user's then: the nodes connect no other ports in both directions. In
// each read, a random word of the peer's says before and after the bytes that this is still the
// peer's process, and that the connection stands: otherwise the bytes may be others already.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exnet.h"

// fetch reads n bytes between two looks at the peer's word. It returns whether all came, and the
// word was right.
static bool fetch(const struct source *s, void *to, uint64_t n, uint64_t from)
{
	uint64_t before = 0, after = 0;
	struct iovec mine[3] = {{&before, sizeof(before)}, {to, n}, {&after, sizeof(after)}};
	struct iovec word = {(void *)(uintptr_t)s->at, sizeof(before)};
	struct iovec theirs[3] = {word, {(void *)(uintptr_t)from, n}, word};
	ssize_t got = process_vm_readv(s->pid, mine, 3, theirs, 3, 0);
	return got == (ssize_t)(2 * sizeof(before) + n) && before == s->word && after == s->word;
}

bool direct_open(struct source *s, const struct cm_head *peer)
{
	char path[32];
	struct stat st;
	*s = (struct source){.pid = (pid_t)peer->pid, .at = peer->word_at, .word = peer->word};
	snprintf(path, sizeof(path), "/proc/%d", s->pid);
	s->reads = exfi_settings.direct && s->pid > 0 && s->word != 0 && stat(path, &st) == 0 && st.st_uid == geteuid() && fetch(s, NULL, 0, 0);
	return s->reads;
}

int direct_process(const struct source *s)
{
	// The number is the peer's before and after: so it was meanwhile.
	int fd = s->reads && fetch(s, NULL, 0, 0) ? (int)syscall(SYS_pidfd_open, s->pid, 0) : -1;
	if (fd >= 0 && !fetch(s, NULL, 0, 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

bool direct_writes(const struct source *s, int process)
{
	uint64_t words[2];
	struct iovec mine = {words, sizeof(words)}, theirs = {(void *)(uintptr_t)s->at, sizeof(words)};
	struct pollfd p = {.fd = process, .events = POLLIN};
	ssize_t got = process_vm_readv(s->pid, &mine, 1, &theirs, 1, 0);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	// An endpoint that is closed, or down, does not write.
	if (got == (ssize_t)sizeof(words) && (words[0] != s->word || words[1] == 0))
		return false;
	if (got < 0 && errno == EFAULT)
		return false;
	return poll(&p, 1, 0) != 1 || !(p.revents & POLLIN);
}

bool direct_read(const struct source *s, void *to, uint64_t n, uint64_t from)
{
	return s->reads && fetch(s, to, n, from);
}
