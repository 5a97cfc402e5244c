/* Connects to PORT and exchanges REQUESTS bytes with what echoes there, one at a time, between two
 * calls of getppid, for a test that counts the system calls. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char b = 'x';

	if (argc != 3)
		return 2;
	at.sin_port = htons((uint16_t)atoi(argv[1]));
	getppid();
	int s = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(s, (struct sockaddr *)&at, sizeof at) != 0) {
		perror("connect");
		return 1;
	}
	for (int i = atoi(argv[2]); i > 0; i--) {
		if (send(s, &b, 1, 0) != 1 || recv(s, &b, 1, 0) != 1) {
			perror("exchange");
			return 1;
		}
	}
	getppid();
	return close(s) != 0;
}
