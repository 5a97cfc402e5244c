/* pinger ADDRESS COUNT: sends COUNT PINGs to redis over each of its connections, which it makes one
 * after the other until it is ended, and waits for each answer. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char *argv[])
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(6379)};
	char answer[7];

	if (argc != 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 1;
	for (;;) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
			return 2;
		for (int i = 0; i < atoi(argv[2]); i++)
			if (send(fd, "PING\r\n", 6, 0) != 6 || recv(fd, answer, 7, MSG_WAITALL) != 7 || memcmp(answer, "+PONG\r\n", 7))
				return 3;
		close(fd);
	}
}
