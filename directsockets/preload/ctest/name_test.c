// Names of threads and processes, also of those that are process 1 of a PID namespace of their own
// and share memory: nobody is taken for another, and the dead are known.
#include "harness.h"

#include "segment/lock.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct shared {
	struct ds_lock lock;
	uint32_t root, name[2];
	int how[2];
} *sh;

static int keep(int fd) { return fd; }

// A child: apart, in a PID namespace of its own. -1: that is not allowed here.
static pid_t child(bool apart)
{
	int flags = CLONE_NEWPID | (getuid() ? CLONE_NEWUSER : 0);

	ds_name_share(keep);
	pid_t pid = apart ? (pid_t)ds_syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0) : fork();
	if (pid == 0)
		ds_me_child();
	return pid;
}

static void tell(int fd) { CHECK(write(fd, "x", 1) == 1, "pipe"); }

static void hear(int fd)
{
	char c;

	CHECK(read(fd, &c, 1) == 1, "the other process has ended");
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

// One of two children of the process that has the lock. The first holds it until it is killed; then
// the second gets it.
static void one_of_two(int i, int up, int go)
{
	sh->name[i] = ds_me();
	tell(up);
	hear(go);
	CHECK(!ds_name_dead(sh->root) && !ds_name_dead(sh->name[!i]) && !ds_name_dead(sh->name[i]), "taken for dead by %d", i);
	CHECK(!ds_name_dead(ds_name_process()), "process");
	tell(up);
	hear(go);
	tell(up);
	sh->how[i] = 1 + ds_lock(&sh->lock, false);
	tell(up);
	while (i == 0)
		pause();
	hear(go);
	_exit(failures != 0);
}

// Two children share a lock with their parent.
static void two(bool apart)
{
	int up[2][2], go[2][2], st = -1;
	pid_t pid[2];

	memset(sh, 0, sizeof *sh);
	CHECK(ds_lock(&sh->lock, false) == DS_TAKEN, "at first");
	sh->root = ds_me();
	for (int i = 0; i < 2; i++) {
		if (pipe(up[i]) || pipe(go[i]))
			abort();
		pid[i] = child(apart);
		if (pid[i] < 0) {
			printf("no PID namespace: %m\n");
			ds_unlock(&sh->lock, false);
			return;
		}
		if (pid[i])
			continue;
		CHECK(!apart || getpid() == 1, "process %d", getpid());
		one_of_two(i, up[i][1], go[i][0]);
	}
	for (int i = 0; i < 2; i++)
		hear(up[i][0]);
	CHECK(sh->name[0] != sh->name[1] && sh->name[0] != sh->root && sh->name[1] != sh->root, "%#x %#x %#x", sh->root, sh->name[0], sh->name[1]);
	CHECK(!ds_name_dead(sh->name[0]) && !ds_name_dead(sh->name[1]), "taken for dead by their parent");
	for (int i = 0; i < 2; i++) {
		tell(go[i][1]);
		hear(up[i][0]);
	}
	ds_unlock(&sh->lock, false);
	tell(go[0][1]);
	hear(up[0][0]);
	hear(up[0][0]);
	CHECK(sh->how[0] == 1 + DS_TAKEN, "how %d", sh->how[0] - 1);
	tell(go[1][1]);
	hear(up[1][0]);
	end(pid[0]);
	hear(up[1][0]);
	CHECK(sh->how[1] == 1 + DS_INHERITED, "how %d", sh->how[1] - 1);
	CHECK(ds_name_dead(sh->name[0]) && !ds_name_dead(sh->name[1]), "who was killed?");
	tell(go[1][1]);
	waitpid(pid[1], &st, 0);
	CHECK(st == 0, "the second: %#x", st);
	CHECK(ds_name_dead(sh->name[1]), "that has ended");
	CHECK(ds_lock(&sh->lock, false) == DS_INHERITED, "at last");
	ds_unlock(&sh->lock, false);
	for (int i = 0; i < 4; i++) {
		close(up[i / 2][i % 2]);
		close(go[i / 2][i % 2]);
	}
}

// The root of all ends: its children know.
static void orphaned(void)
{
	int up[2], go[2];
	char c;

	if (pipe(up) || pipe(go))
		abort();
	pid_t parent = fork();
	if (parent == 0) {
		ds_me_child();
		uint32_t thread = ds_me(), process = ds_name_process();
		if (child(true) == 0) {
			CHECK(!ds_name_dead(thread) && !ds_name_dead(process), "while it lives");
			tell(up[1]);
			hear(go[0]);
			CHECK(ds_name_dead(thread) && ds_name_dead(process), "its parent");
			c = failures ? 'f' : 'o';
			CHECK(write(up[1], &c, 1) == 1, "pipe");
			_exit(0);
		}
		pause();
	}
	hear(up[0]);
	end(parent);
	tell(go[1]);
	CHECK(read(up[0], &c, 1) == 1 && c == 'o', "%c", c);
	close(up[0]), close(up[1]), close(go[0]), close(go[1]);
}

// A process takes all names there are, and what the kernel calls it when none is left. When it is
// dead they are given to others, as other names.
static void all(void)
{
	enum { PLACES = 1 << 18 };
	pid_t pid = child(false);
	int st;

	if (pid == 0) {
		uint32_t first = ds_me(), last = 0;
		for (int i = 0; i < PLACES; i++) {
			ds_self.name = 0;
			last = ds_me();
			CHECK(last != first, "round %d", i);
		}
		CHECK((last & 0xffffff) == (1u << 23 | (uint32_t)ds_syscall(SYS_gettid)), "%#x", last);
		sh->name[0] = first;
		_exit(failures != 0);
	}
	waitpid(pid, &st, 0);
	CHECK(st == 0, "%#x", st);
	for (int i = 0; i < 3; i++) {
		pid = child(false);
		if (pid == 0) {
			sh->name[1] = ds_me();
			for (int k = 0; k < PLACES / 2; k++) {
				CHECK(ds_self.name & 1 << 29 && ds_self.name != sh->name[0], "%#x", ds_self.name);
				ds_self.name = 0;
				ds_me();
			}
			_exit(failures != 0);
		}
		waitpid(pid, &st, 0);
		CHECK(st == 0, "%#x", st);
		CHECK(ds_name_dead(sh->name[0]) && ds_name_dead(sh->name[1]), "dead");
	}
}

static void *tell_name(void *to)
{
	*(uint32_t *)to = ds_me();
	return NULL;
}

// The threads of a process are told apart, and it knows which of them have ended.
static void many(void)
{
	uint32_t before = 0;

	for (int i = 0; i < 200; i++) {
		pid_t pid = child(false);
		if (pid == 0) {
			pthread_t t;
			uint32_t other = 0;
			pthread_create(&t, NULL, tell_name, &other);
			pthread_join(t, NULL);
			sh->name[0] = ds_me();
			CHECK(other && other != ds_me(), "%#x", other);
			for (int k = 0; !ds_name_dead(other) && k < 60000; k++)
				usleep(1000); // joined, it may not have ended altogether
			CHECK(ds_name_dead(other) && !ds_name_dead(ds_me()), "its thread has ended");
			_exit(failures != 0);
		}
		int st;
		waitpid(pid, &st, 0);
		CHECK(st == 0 && sh->name[0] != before, "%#x, %#x", st, sh->name[0]);
		before = sh->name[0];
	}
}

// Without a table, names are the kernel's, and it is asked about them.
static void before(void)
{
	CHECK(ds_me() == (uint32_t)ds_syscall(SYS_gettid), "%#x", ds_me());
	CHECK(!ds_name_dead(ds_me()) && !ds_name_dead(ds_name_process()), "alive");
	CHECK(ds_name_process() != ds_me(), "%#x", ds_me());
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	before();
	orphaned();
	two(false);
	two(true);
	many();
	all();
	printf("name: %d failed\n", failures);
	return failures != 0;
}
