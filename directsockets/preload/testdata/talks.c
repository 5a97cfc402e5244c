/* A connection of a process with itself, of which each end sends and receives until the standard
 * input ends. */
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;
	char b = 'x';

	if (bind(l, (struct sockaddr *)&at, len) || listen(l, 1) || getsockname(l, (struct sockaddr *)&at, &len))
		return 1;
	if (connect(c, (struct sockaddr *)&at, len) || (s = accept(l, NULL, NULL)) < 0 || close(l))
		return 2;
	for (struct pollfd in = {0, POLLIN, 0}; poll(&in, 1, 1) == 0;)
		if (write(c, &b, 1) != 1 || read(s, &b, 1) != 1 || write(s, &b, 1) != 1 || read(c, &b, 1) != 1)
			return 3;
	return 0;
}
