// Calls by a number, and two changes of numbers of their socket (conn/numbers.h): a caller is
// stopped after each instruction by which it begins a call, and again before the second change. No
// number changes while a call goes by it.
#include "harness.h"

#include "conn/numbers.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	NUMBERS = 2, MINE = 8, OTHERS = 0,
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(DS_MSAN)
	MOST = 8, EACH = 32, // a call takes thousands of instructions: not each of them
#else
	MOST = 400, EACH = 1,
#endif
};

// What the caller and who changes the numbers share.
static struct {
	struct ds_numbered n;
	uintptr_t table[NUMBERS];
	int gone[NUMBERS]; // the number is another file's
	int by;		   // the number that the call goes by; -1: none is left
	int late;	   // it went by that although it was gone
} *h;

// One call, by a number that is still the socket's.
static void call(void)
{
	DS_BY_NUMBER(kernel);

	ds_by_number_begin(&kernel, &h->n, false);
	h->by = -1;
	for (int i = NUMBERS; i-- > 0;)
		if (__atomic_load_n(&h->table[i], __ATOMIC_SEQ_CST) == MINE)
			h->by = i;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (h->by >= 0 && __atomic_load_n(&h->gone[h->by], __ATOMIC_SEQ_CST))
		h->late = 1;
}

static void calls(void)
{
	static const char several = 0;

	ds_single_thread = &several;
	ds_me();
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(1);
	for (;;) {
		raise(SIGSTOP);
		call();
	}
}

// Has the caller run until it stops: how.
static int runs(pid_t pid, int how)
{
	int st = 0;

	CHECK(ptrace(how, pid, NULL, NULL) == 0 && waitpid(pid, &st, 0) == pid && WIFSTOPPED(st), "%#x", st);
	return WSTOPSIG(st);
}

// The caller makes so many steps; false: the call has ended before.
static bool steps(pid_t pid, int n)
{
	for (int i = 0; i < n; i++)
		if (runs(pid, PTRACE_SINGLESTEP) == SIGSTOP)
			return false;
	return true;
}

// dup2 gives number i to another file. False: it waits for the call.
static bool changes(int i)
{
	__atomic_store_n(&h->table[i], OTHERS, __ATOMIC_SEQ_CST);
	if (h->n.calls[h->n.changes & 1] || h->n.brief)
		return false;
	ds_by_number_await(&h->n);
	h->gone[i] = 1;
	return true;
}

enum at { ENDED, WAITED, CHANGED };

// The changes come after the i-th instruction and j more. ENDED: the call had ended before,
// WAITED: the first waited for it.
static enum at change_at(pid_t pid, int i, int j)
{
	enum at at = ENDED;

	h->n = (struct ds_numbered){.changes = (unsigned)below(2)};
	h->table[0] = h->table[1] = MINE;
	h->gone[0] = h->gone[1] = h->late = 0;
	bool under_way = steps(pid, i);
	if (under_way)
		at = changes(0) ? CHANGED : WAITED;
	if (at == CHANGED && !(under_way = steps(pid, j)))
		at = ENDED;
	if (at == CHANGED)
		changes(1);
	if (under_way)
		CHECK(runs(pid, PTRACE_CONT) == SIGSTOP, "it does not stop");
	CHECK(!h->late, "after %d instructions and %d more: by number %d", i, j, h->by);
	return at;
}

int main(void)
{
	h = mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = fork();
	if (pid == 0)
		calls();
	int st, changed = 0, i = 0;
	if (waitpid(pid, &st, 0) != pid || !WIFSTOPPED(st)) {
		printf("numbers: nothing can be traced here\n");
		return 0;
	}
	for (; change_at(pid, i, 0) == CHANGED; i += EACH) // it waits from when the call is counted
		for (int j = 1; j < MOST && change_at(pid, i, j) == CHANGED; j++)
			changed++;
	CHECK(i > 1, "a change waits for a call that has not begun");
	kill(pid, SIGKILL);
	printf("numbers: %d instructions, %d pairs of changes, %d failed\n", i, changed, failures);
	return failures != 0;
}
