// A program that the library cannot reach, to be linked statically: cat.
#include <unistd.h>

int main(void)
{
	static char buf[65536];
	ssize_t n, done, rc;

	while ((n = read(0, buf, sizeof buf)) > 0)
		for (done = 0; done < n; done += rc)
			if ((rc = write(1, buf + done, (size_t)(n - done))) < 0)
				return 1;
	return n < 0;
}
