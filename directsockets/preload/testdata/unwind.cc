// Threads that end, or are cancelled, in and around calls that the library takes over: what a C++
// program sees of it. unwind FROM [direct]: from this case on, on connections that are direct.
#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdexcept>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

int ends[2];

struct Tidy {
	const char *name;
	~Tidy() { printf(" ~%s", name); }
};

char buf[64];

void wait(int how)
{
	Tidy inner{"inner"};
	pollfd p{ends[0], POLLIN, 0};
	epoll_event ev{};

	switch (how) {
	case 0: (void)!recv(ends[0], buf, 1, 0); break;
	case 1: (void)!read(ends[0], buf, 1); break;
	case 2: poll(&p, 1, -1); break;
	case 3: {
		int ep = epoll_create1(0);
		ev.events = EPOLLIN;
		epoll_ctl(ep, EPOLL_CTL_ADD, ends[0], &ev);
		epoll_wait(ep, &ev, 1, -1);
		break;
	}
	case 4: {
		static char full[1 << 20];
		for (;;)
			(void)!send(ends[0], full, sizeof full, MSG_NOSIGNAL);
	}
	case 5: pthread_exit(nullptr);
	case 6: throw std::runtime_error("thrown");
	}
}

void *thread(void *arg)
{
	Tidy outer{"outer"};

	try {
		wait(static_cast<int>(reinterpret_cast<long>(arg)));
	} catch (const std::exception &e) {
		printf(" %s", e.what());
	} catch (...) { // a cancelled thread's, which goes on
		printf(" ...");
		throw;
	}
	return arg;
}

void fail(const char *what)
{
	perror(what);
	exit(1);
}

} // namespace

int main(int argc, char *argv[])
{
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	sockaddr_in a{};
	socklen_t len = sizeof a;

	setvbuf(stdout, nullptr, _IONBF, 0);
	a.sin_family = AF_INET;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, reinterpret_cast<sockaddr *>(&a), len) < 0 || listen(listener, 8) < 0 ||
	    getsockname(listener, reinterpret_cast<sockaddr *>(&a), &len) < 0)
		fail("listen");
	for (int how = argc > 1 ? atoi(argv[1]) : 0; how < 7; how++) {
		ends[0] = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(ends[0], reinterpret_cast<sockaddr *>(&a), len) < 0 || (ends[1] = accept(listener, nullptr, nullptr)) < 0)
			fail("connect");
		auto mode = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "exnds_mode"));
		for (int i = 0; i < 100000 && (i < 100 || (argc > 2 && mode && mode(ends[0]) != 3)); i++)
			if (write(ends[0], "x", 1) != 1 || read(ends[1], buf, 1) != 1 || write(ends[1], "y", 1) != 1 || read(ends[0], buf, 1) != 1)
				fail("exchange");
		if (argc > 2 && (!mode || mode(ends[0]) != 3)) {
			fprintf(stderr, "%s: not direct\n", argv[2]);
			return 3;
		}
		pthread_t t;
		void *result;
		printf("%d:", how);
		pthread_create(&t, nullptr, thread, reinterpret_cast<void *>(static_cast<long>(how)));
		if (how < 5) {
			usleep(20000); // so that it waits, mostly
			pthread_cancel(t);
		}
		pthread_join(t, &result);
		puts(result == PTHREAD_CANCELED ? " cancelled" : result ? " returned" : " exited");
		close(ends[0]);
		close(ends[1]);
	}
	return 0;
}
