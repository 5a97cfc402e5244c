/* Ranks with threads that all talk at once (MPI_THREAD_MULTIPLE), and a child that each forks
 * meanwhile. ranks [kill]: with kill, the last rank then ends by SIGKILL, and the others wait for a
 * message of it. Rank 0 prints a line; exit status 1 if a byte was wrong. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 20, LARGE = 300000 };

static int me, ranks, wrong;

static unsigned char byte(int from, int thread, int round, int i)
{
	return (unsigned char)(from * 31 + thread * 7 + round + i + (i >> 8));
}

/* Each thread exchanges messages of several sizes with the same thread of all ranks. */
static void *talk(void *arg)
{
	static const int sizes[] = {1, 100, 1000, 20000, LARGE};
	int thread = (int)(long)arg;
	unsigned char *out = malloc(LARGE), *in = malloc(LARGE);

	for (int round = 0; round < ROUNDS; round++) {
		int n = sizes[round % 5];

		for (int step = 1; step < ranks; step++) {
			int to = (me + step) % ranks, from = (me - step + ranks) % ranks;

			for (int i = 0; i < n; i++)
				out[i] = byte(me, thread, round, i);
			memset(in, 0, (size_t)n);
			MPI_Sendrecv(out, n, MPI_BYTE, to, thread, in, n, MPI_BYTE, from, thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			for (int i = 0; i < n; i++)
				if (in[i] != byte(from, thread, round, i))
					__atomic_store_n(&wrong, 1, __ATOMIC_RELAXED);
		}
	}
	free(out);
	free(in);
	return NULL;
}

int main(int argc, char **argv)
{
	int level, all, status;
	pthread_t threads[THREADS];

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (level != MPI_THREAD_MULTIPLE) {
		fprintf(stderr, "ranks: level %d\n", level);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, talk, (void *)i);
	pid_t child = fork();
	if (child == 0)
		_exit(7);
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
		wrong = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (me == 0) {
		printf("threads of %d ranks: %s\n", ranks, all ? "wrong" : "right");
		fflush(stdout);
	}
	if (argc > 1 && strcmp(argv[1], "kill") == 0) {
		if (me == ranks - 1) {
			sleep(1); /* the others wait */
			kill(getpid(), SIGKILL);
		}
		char c;
		MPI_Recv(&c, 1, MPI_CHAR, ranks - 1, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		printf("rank %d got a message of a rank that is dead\n", me);
	}
	MPI_Finalize();
	return all;
}
