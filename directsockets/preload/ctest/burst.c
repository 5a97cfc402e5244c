/* burst recv EACH: binds a UDP socket, prints its port, and a line when the last of a burst of EACH
 * datagrams has come. burst send PORT EACH: sends a burst for each byte of its input. Datagrams are
 * numbered; one out of order, and one that was lost, ends recv. At the end (an empty datagram, the
 * end of the input) either prints how many went through memory, and how many by the kernel. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void told(int from)
{
	uint64_t n[4] = {0};
	void (*moved)(uint64_t *) = (void (*)(uint64_t *))dlsym(RTLD_DEFAULT, "exnds_datagrams");

	if (moved)
		moved(n);
	printf("%llu %llu\n", (unsigned long long)n[from], (unsigned long long)n[from + 1]);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_DGRAM, 0), send_it = argc == 4;
	uint32_t number = 0, got[64];
	uint32_t each = (uint32_t)atoi(argv[argc - 1]);

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) || getsockname(fd, (struct sockaddr *)&a, &len))
		return 1;
	if (send_it) {
		a.sin_port = htons((uint16_t)atoi(argv[2]));
		if (connect(fd, (struct sockaddr *)&a, len))
			return 1;
		for (char c; read(0, &c, 1) == 1;)
			for (uint32_t i = 0; i < each; i++, number++)
				if (send(fd, &number, sizeof number, 0) < 0)
					return 1;
		told(0);
		return 0;
	}
	printf("%d\n", ntohs(a.sin_port));
	for (;; number++) {
		ssize_t n = recv(fd, got, sizeof got, 0);
		if (n == 0)
			break;
		if (n < (ssize_t)sizeof number || got[0] != number) {
			printf("%u in place of %u\n", got[0], number);
			return 1;
		}
		if (number % each == each - 1)
			printf("all\n");
	}
	told(2);
	return 0;
}
