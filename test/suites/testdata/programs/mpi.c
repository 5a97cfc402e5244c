/* Ping-pong of many sizes, all to all and reductions, whose results are checked. mpi SIZE */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void wrong(const char *what, long where) {
	fprintf(stderr, "%s: wrong at %ld\n", what, where);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void pingpong(int rank, int ranks) {
	int peer = rank ^ 1;

	for (int n = 1; n <= 4 << 20; n = n * 3 + 1) {
		unsigned char *out = malloc(n), *in = malloc(n);

		for (int i = 0; i < n; i++)
			out[i] = (unsigned char)(i * 7 + rank);
		for (int turn = 0; peer < ranks && turn < 10; turn++) {
			MPI_Sendrecv(out, n, MPI_BYTE, peer, n & 1000, in, n, MPI_BYTE, peer, n & 1000, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			for (int i = 0; i < n; i++)
				if (in[i] != (unsigned char)(i * 7 + peer))
					wrong("ping-pong", i);
		}
		free(out);
		free(in);
	}
}

static void all_to_all(int rank, int ranks) {
	enum { EACH = 20000 };
	int *out = malloc(sizeof(int) * EACH * ranks), *in = malloc(sizeof(int) * EACH * ranks);

	for (int i = 0; i < EACH * ranks; i++)
		out[i] = rank * 1000000 + i;
	MPI_Alltoall(out, EACH, MPI_INT, in, EACH, MPI_INT, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		for (int i = 0; i < EACH; i++)
			if (in[from * EACH + i] != from * 1000000 + rank * EACH + i)
				wrong("all to all", i);
	free(out);
	free(in);
}

int main(int argc, char **argv) {
	int rank, ranks, rounds = 3 * (argc > 1 ? atoi(argv[1]) : 1);

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int round = 0; round < rounds; round++) {
		pingpong(rank, ranks);
		all_to_all(rank, ranks);
		for (int i = 0; i < 200; i++) {
			long mine = rank + i, sum = 0;

			MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
			if (sum != (long)ranks * i + ranks * (ranks - 1) / 2)
				wrong("sum", i);
			MPI_Barrier(MPI_COMM_WORLD);
		}
	}
	if (rank == 0)
		printf("all right\n");
	MPI_Finalize();
	return 0;
}
