/* The least that two processes do to join two network namespaces by TUN devices: a ring of frames
 * in shared memory for each direction, and a byte on a socket where the reader sleeps. What exn0
 * between two daemons takes longer than this is exn0's own.
 *
 *	relay COMMAND [ARGUMENT ...]    runs COMMAND in the namespace of 10.77.0.1
 *
 * 10.77.0.2 is in the namespace of the process $PEER: nsenter -n -t $PEER. Needs root. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAMES = 32, FRAME = 65536 + 64 };

struct ring {
	_Alignas(64) _Atomic unsigned written, asleep;
	_Alignas(64) _Atomic unsigned read;
	unsigned length[FRAMES];
	char frame[FRAMES][FRAME];
};

static int must(int r, const char *what)
{
	if (r < 0) {
		perror(what);
		exit(1);
	}
	return r;
}

/* A device in a namespace of its own. TCP's segments pass it whole. */
static int device(const char *configure)
{
	struct ifreq r = {.ifr_name = "bound0", .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};

	must(unshare(CLONE_NEWNET), "unshare");
	int tun = must(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), "/dev/net/tun");
	must(ioctl(tun, TUNSETIFF, &r), "TUNSETIFF");
	must(ioctl(tun, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4), "TUNSETOFFLOAD");
	must(system(configure) ? -1 : 0, configure);
	return tun;
}

/* Until the other process has ended. */
static void relay(int tun, int bell, struct ring *out, struct ring *in)
{
	struct pollfd p[2] = {{tun, POLLIN, 0}, {bell, POLLIN, 0}};
	char bytes[64];
	ssize_t n;

	for (;;) {
		int idle = 1;

		for (; out->written - out->read < FRAMES && (n = read(tun, out->frame[out->written % FRAMES], FRAME)) > 0; idle = 0) {
			out->length[out->written % FRAMES] = (unsigned)n;
			out->written++;
			if (atomic_exchange(&out->asleep, 0))
				send(bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		}
		for (; in->read != in->written; idle = 0, in->read++)
			n = write(tun, in->frame[in->read % FRAMES], in->length[in->read % FRAMES]);
		if (!idle)
			continue;
		in->asleep = 1;
		if (out->written - out->read == FRAMES)
			sched_yield();
		else if (in->read == in->written && poll(p, 2, -1) > 0 && p[1].revents && recv(bell, bytes, sizeof bytes, 0) <= 0)
			exit(0);
	}
}

int main(int argc, char **argv)
{
	struct ring *r = mmap(NULL, 2 * sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int bell[2], status = 1;
	char peer[16];

	must(argc > 1 && r != MAP_FAILED ? 0 : -1, "relay COMMAND");
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bell), "socketpair");
	pid_t far = must(fork(), "fork");
	if (!far) {
		close(bell[0]);
		int tun = device("ip address add 10.77.0.2/24 dev bound0 && ip link set bound0 mtu 65520 up");
		must((int)send(bell[1], "", 1, 0), "send");
		relay(tun, bell[1], r + 1, r);
	}
	close(bell[1]);
	int tun = device("ip address add 10.77.0.1/24 dev bound0 && ip link set bound0 mtu 65520 up");
	must((int)recv(bell[0], peer, 1, 0) - 1, "the other process");
	snprintf(peer, sizeof peer, "%d", far);
	setenv("PEER", peer, 1);
	pid_t command = must(fork(), "fork");
	if (!command)
		must(execvp(argv[1], argv + 1), argv[1]);
	pid_t near = must(fork(), "fork");
	if (!near)
		relay(tun, bell[0], r, r + 1);
	close(bell[0]);
	waitpid(command, &status, 0);
	must(kill(far, SIGKILL), "kill"); /* then near ends */
	while (wait(NULL) > 0)
		;
	return status ? 1 : 0;
}
