// A plain TCP server with epoll that sends back what it receives: knows nothing of direct sockets.
// It prints its port, and ends with its standard input.
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
	static char buf[70000];
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int ln = socket(AF_INET, SOCK_STREAM, 0), ep = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLIN, .data.fd = ln}, in = {.events = EPOLLIN, .data.fd = 0};

	if (bind(ln, (struct sockaddr *)&a, len) < 0 || listen(ln, 100) < 0 || getsockname(ln, (struct sockaddr *)&a, &len) < 0 ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, ln, &e) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, 0, &in) < 0)
		return 1;
	printf("%d\n", ntohs(a.sin_port));
	fflush(stdout);
	while (epoll_wait(ep, &e, 1, -1) == 1) {
		int fd = e.data.fd;

		if (fd == 0)
			return 0;
		if (fd == ln) {
			int c = accept(ln, NULL, NULL);
			e = (struct epoll_event){.events = EPOLLIN, .data.fd = c};
			epoll_ctl(ep, EPOLL_CTL_ADD, c, &e);
			continue;
		}
		ssize_t n = recv(fd, buf, sizeof buf, MSG_DONTWAIT), done = 0, k;
		if (n < 0 && errno == EAGAIN)
			continue;
		while (done < n && (k = send(fd, buf + done, (size_t)(n - done), MSG_NOSIGNAL | MSG_DONTWAIT)) > 0)
			done += k;
		if (n <= 0 || done < n) // who does not read what comes back is given up
			close(fd);
	}
	return 2;
}
