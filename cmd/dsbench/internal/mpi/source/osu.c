/* osu WARM-UP SECONDS SIZE...: latency, bandwidth and message rate between two ranks, as the OSU
 * Micro-Benchmarks define them: half a round trip; windows of 64 messages, each window
 * acknowledged. About so many seconds for each, after so many for the connections. Rank 0 prints
 * "latency SIZE MICROSECONDS", "bandwidth SIZE GBIT/S", "rate SIZE MILLION/S", and in the end
 * "end". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64 };

static int me;
static char *out, *in;

static void ping_pong(int size, long n)
{
	for (long i = 0; i < n; i++) {
		if (me == 0)
			MPI_Send(out, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
		MPI_Recv(in, size, MPI_BYTE, !me, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (me == 1)
			MPI_Send(out, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
	}
}

static void windows(int size, long n)
{
	MPI_Request r[WINDOW];
	MPI_Status done[WINDOW];

	for (long i = 0; i < n; i++) {
		for (int j = 0; j < WINDOW; j++) {
			if (me == 0)
				MPI_Isend(out, size, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &r[j]);
			else
				MPI_Irecv(in, size, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &r[j]);
		}
		MPI_Waitall(WINDOW, r, done);
		if (me == 0)
			MPI_Recv(in, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(out, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
	}
}

/* How long one of many turns takes on rank 0: more of them, until they take so many seconds. */
static double turn(void (*run)(int size, long n), int size, double seconds)
{
	double t = 0;
	long n = 1;

	for (;;) {
		MPI_Barrier(MPI_COMM_WORLD);
		double begin = MPI_Wtime();
		run(size, n);
		t = MPI_Wtime() - begin;
		MPI_Bcast(&t, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
		if (t >= 0.8 * seconds)
			return t / (double)n;
		n = t < seconds / 16 ? 4 * n : (long)((double)n * seconds / t) + 1;
	}
}

int main(int argc, char **argv)
{
	int ranks, most = 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 3; i < argc; i++)
		most = atoi(argv[i]) > most ? atoi(argv[i]) : most;
	out = malloc((size_t)most);
	in = malloc((size_t)most);
	if (ranks != 2 || argc < 4 || !out || !in) {
		fprintf(stderr, "osu: wants two ranks, seconds twice, sizes and memory for them\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	memset(out, 'o', (size_t)most);
	turn(ping_pong, most, atof(argv[1]));
	for (int i = 3; i < argc; i++) {
		int size = atoi(argv[i]);
		double latency = turn(ping_pong, size, atof(argv[2])) / 2, window = turn(windows, size, atof(argv[2]));
		if (me)
			continue;
		printf("latency %d %.4f\n", size, latency * 1e6);
		printf("bandwidth %d %.6f\n", size, WINDOW * 8e-9 * size / window);
		printf("rate %d %.6f\n", size, WINDOW * 1e-6 / window);
		fflush(stdout);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (!me) {
		puts("end");
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
