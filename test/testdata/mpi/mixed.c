// mixed.c: rounds of communication with checked data, in an order and with sizes of chance. All
// ranks draw the same numbers. mixed SECONDS [SEED [KERNELS]]: KERNELS are letters of v
// (alltoallv), h (halo), t (derived types), r (tags in reverse order, from any source), w
// (windows), m (threads); windows and threads exclude each other in Open MPI 4.1.
#include <mpi.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, ranks, wrong;
static uint64_t state;

// draw returns a number of chance, the same in all ranks.
static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

// value is what element i of a message of kind k from a rank is.
static uint64_t value(uint64_t rank, uint64_t k, uint64_t i)
{
	uint64_t x = rank * 0x9E3779B97F4A7C15ull ^ k * 0xC2B2AE3D27D4EB4Full ^ i * 0x165667B19E3779F9ull;
	x ^= x >> 29;
	x *= 0xBF58476D1CE4E5B9ull;
	return x ^ x >> 32;
}

#define check(ok, ...)                                                                                                         \
	do {                                                                                                                   \
		if (!(ok) && __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED) < 5) {                                            \
			fprintf(stderr, "rank %d: ", me);                                                                      \
			fprintf(stderr, __VA_ARGS__);                                                                          \
			fputc('\n', stderr);                                                                                   \
		}                                                                                                              \
	} while (0)

static void *need(size_t n)
{
	void *p = malloc(n > 0 ? n : 1);
	if (p == NULL)
		MPI_Abort(MPI_COMM_WORLD, 2);
	return p;
}

// some_size is of chance, over all ways that a message may go.
static int some_size(void)
{
	static const int most[] = {1, 8, 64, 1000, 4096, 16384, 16448, 70000, 200003, 1 << 20, 4 << 20};
	return (int)(draw() % (uint64_t)most[draw() % (sizeof(most) / sizeof(*most))]) + 1;
}

static void alltoallv(uint64_t k)
{
	int *n = need(sizeof(int) * (size_t)(ranks * ranks)), *out = need(sizeof(int) * (size_t)ranks), *in = need(sizeof(int) * (size_t)ranks);
	int *to = need(sizeof(int) * (size_t)ranks), *from = need(sizeof(int) * (size_t)ranks), sends = 0, gets = 0;
	for (int i = 0; i < ranks * ranks; i++)
		n[i] = draw() % 4 == 0 ? 0 : some_size() % 300000;
	for (int r = 0; r < ranks; r++) {
		out[r] = n[me * ranks + r];
		in[r] = n[r * ranks + me];
		to[r] = sends;
		from[r] = gets;
		sends += out[r];
		gets += in[r];
	}
	uint8_t *a = need((size_t)sends), *b = need((size_t)gets);
	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < out[r]; i++)
			a[to[r] + i] = (uint8_t)value((uint64_t)(me * 1000 + r), k, (uint64_t)i);
	MPI_Alltoallv(a, out, to, MPI_BYTE, b, in, from, MPI_BYTE, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < in[r]; i++)
			check(b[from[r] + i] == (uint8_t)value((uint64_t)(r * 1000 + me), k, (uint64_t)i), "alltoallv: byte %d of rank %d", i, r);
	free(a), free(b), free(n), free(out), free(in), free(to), free(from);
}

// halo exchanges the borders of a grid, of which one is a column.
static void halo(uint64_t k)
{
	enum { N = 200 };
	static double g[N + 2][N + 2];
	int dims[2] = {0, 0}, wraps[2] = {1, 1}, at[2], up, down, left, right;
	MPI_Comm cart;
	MPI_Datatype column;
	MPI_Dims_create(ranks, 2, dims);
	MPI_Cart_create(MPI_COMM_WORLD, 2, dims, wraps, 0, &cart);
	MPI_Cart_coords(cart, me, 2, at);
	MPI_Type_vector(N, 1, N + 2, MPI_DOUBLE, &column);
	MPI_Type_commit(&column);
	MPI_Cart_shift(cart, 0, 1, &up, &down);
	MPI_Cart_shift(cart, 1, 1, &left, &right);
	int height = dims[0] * N, width = dims[1] * N;
	double base = (double)(k % 1000) * 1e7;
	for (int i = 1; i <= N; i++)
		for (int j = 1; j <= N; j++)
			g[i][j] = base + (at[0] * N + i - 1) * 1000.0 + (at[1] * N + j - 1);
	for (int round = 0; round < 5; round++) {
		MPI_Request q[8];
		MPI_Irecv(&g[0][1], N, MPI_DOUBLE, up, 1, cart, q);
		MPI_Irecv(&g[N + 1][1], N, MPI_DOUBLE, down, 2, cart, q + 1);
		MPI_Irecv(&g[1][0], 1, column, left, 3, cart, q + 2);
		MPI_Irecv(&g[1][N + 1], 1, column, right, 4, cart, q + 3);
		MPI_Isend(&g[N][1], N, MPI_DOUBLE, down, 1, cart, q + 4);
		MPI_Isend(&g[1][1], N, MPI_DOUBLE, up, 2, cart, q + 5);
		MPI_Isend(&g[1][N], 1, column, right, 3, cart, q + 6);
		MPI_Isend(&g[1][1], 1, column, left, 4, cart, q + 7);
		MPI_Waitall(8, q, MPI_STATUSES_IGNORE);
		for (int j = 1; j <= N; j++) {
			check(g[0][j] == base + ((at[0] * N - 1 + height) % height) * 1000.0 + at[1] * N + j - 1, "halo: above %d", j);
			check(g[N + 1][j] == base + ((at[0] * N + N) % height) * 1000.0 + at[1] * N + j - 1, "halo: below %d", j);
			check(g[j][0] == base + (at[0] * N + j - 1) * 1000.0 + (at[1] * N - 1 + width) % width, "halo: left of %d", j);
			check(g[j][N + 1] == base + (at[0] * N + j - 1) * 1000.0 + (at[1] * N + N) % width, "halo: right of %d", j);
		}
	}
	MPI_Type_free(&column);
	MPI_Comm_free(&cart);
}

struct item {
	char a;
	double b;
	short c[3];
	int64_t d;
};

static void types(uint64_t k)
{
	int lengths[4] = {1, 1, 3, 1}, next = (me + 1) % ranks, last = (me + ranks - 1) % ranks, n = some_size() % 30000 + 1;
	MPI_Aint places[4] = {offsetof(struct item, a), offsetof(struct item, b), offsetof(struct item, c), offsetof(struct item, d)};
	MPI_Datatype kinds[4] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT64_T}, packed, item, holes;
	MPI_Type_create_struct(4, lengths, places, kinds, &packed);
	MPI_Type_create_resized(packed, 0, sizeof(struct item), &item);
	MPI_Type_commit(&item);
	struct item *a = calloc((size_t)n, sizeof(*a)), *b = calloc((size_t)n, sizeof(*b));
	for (int i = 0; i < n; i++)
		a[i] = (struct item){(char)i, i * 1.5 + me, {0, 0, (short)(i * 3)}, (int64_t)value((uint64_t)me, k, (uint64_t)i)};
	MPI_Sendrecv(a, n, item, next, 5, b, n, item, last, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < n; i++)
		check(b[i].a == (char)i && b[i].b == i * 1.5 + last && b[i].c[2] == (short)(i * 3) && b[i].d == (int64_t)value((uint64_t)last, k, (uint64_t)i),
		      "types: element %d", i);
	free(a), free(b);
	MPI_Type_free(&item);
	MPI_Type_free(&packed);
	// Runs of integers, with holes between them.
	enum { RUNS = 1000 };
	static int runs[RUNS], starts[RUNS];
	int end = 0;
	for (int i = 0; i < RUNS; i++) {
		runs[i] = 1 + (int)(draw() % 37);
		starts[i] = end;
		end += runs[i] + 1 + (int)(draw() % 5);
	}
	MPI_Type_indexed(RUNS, runs, starts, MPI_INT, &holes);
	MPI_Type_commit(&holes);
	int *x = need(sizeof(int) * (size_t)end), *y = need(sizeof(int) * (size_t)end);
	for (int i = 0; i < end; i++) {
		x[i] = (int)value((uint64_t)me, k + 1, (uint64_t)i);
		y[i] = -1;
	}
	MPI_Sendrecv(x, 1, holes, next, 6, y, 1, holes, last, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < RUNS; i++) {
		for (int j = 0; j < runs[i]; j++)
			check(y[starts[i] + j] == (int)value((uint64_t)last, k + 1, (uint64_t)(starts[i] + j)), "types: run %d", i);
		for (int j = starts[i] + runs[i]; i + 1 < RUNS && j < starts[i + 1]; j++)
			check(y[j] == -1, "types: hole %d", i);
	}
	free(x), free(y);
	MPI_Type_free(&holes);
}

// tags sends many messages, which are received in reverse order, from any source.
static void tags(uint64_t k)
{
	int many = (int)(draw() % 1500) + 1, next = (me + 1) % ranks, last = (me + ranks - 1) % ranks, small = draw() % 2 == 0;
	if (!small)
		many = many % 40 + 1;
	int *sizes = need(sizeof(int) * (size_t)many), most = 0;
	uint64_t **out = need(sizeof(*out) * (size_t)many);
	MPI_Request *q = need(sizeof(*q) * (size_t)many);
	for (int i = 0; i < many; i++) {
		sizes[i] = small ? 1 + (int)(draw() % 8) : some_size() / 8 + 1;
		most = sizes[i] > most ? sizes[i] : most;
		out[i] = need(8 * (size_t)sizes[i]);
		for (int j = 0; j < sizes[i]; j++)
			out[i][j] = value((uint64_t)me, k + (uint64_t)i, (uint64_t)j);
		MPI_Isend(out[i], sizes[i], MPI_UINT64_T, next, i, MPI_COMM_WORLD, q + i);
	}
	uint64_t *in = need(8 * (size_t)most);
	for (int i = many - 1; i >= 0; i--) {
		MPI_Status s;
		int n = 0;
		MPI_Recv(in, most, MPI_UINT64_T, MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &s);
		MPI_Get_count(&s, MPI_UINT64_T, &n);
		check(s.MPI_SOURCE == last && n == sizes[i], "tags: message %d has %d elements from rank %d, want %d", i, n, s.MPI_SOURCE, sizes[i]);
		for (int j = 0; j < n && j < sizes[i]; j++)
			check(in[j] == value((uint64_t)last, k + (uint64_t)i, (uint64_t)j), "tags: element %d of message %d", j, i);
	}
	MPI_Waitall(many, q, MPI_STATUSES_IGNORE);
	for (int i = 0; i < many; i++)
		free(out[i]);
	free(in), free(q), free(out), free(sizes);
}

static void windows(uint64_t k)
{
	int n = some_size() / 8 + 1100, next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
	int64_t *w, *a = need(8 * (size_t)n), *b = need(8 * (size_t)n), one = 1, old;
	MPI_Win win;
	MPI_Win_allocate(8 * n, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &w, &win);
	memset(w, 0, 8 * (size_t)n);
	for (int i = 0; i < n; i++)
		a[i] = (int64_t)(value((uint64_t)me, k, (uint64_t)i) >> 8);
	MPI_Win_fence(0, win);
	MPI_Put(a, n, MPI_INT64_T, next, 0, n, MPI_INT64_T, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < n; i++)
		check(w[i] == (int64_t)(value((uint64_t)last, k, (uint64_t)i) >> 8), "windows: put %d", i);
	MPI_Win_fence(0, win);
	MPI_Get(b, n, MPI_INT64_T, next, 0, n, MPI_INT64_T, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < n; i++)
		check(b[i] == a[i], "windows: get %d", i);
	memset(w, 0, 8 * (size_t)n);
	MPI_Win_fence(0, win);
	for (int r = 0; r < ranks; r++)
		MPI_Accumulate(a, 1000, MPI_INT64_T, r, 100, 1000, MPI_INT64_T, MPI_SUM, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < 1000; i++) {
		int64_t sum = 0;
		for (int r = 0; r < ranks; r++)
			sum += (int64_t)(value((uint64_t)r, k, (uint64_t)i) >> 8);
		check(w[100 + i] == sum, "windows: sum %d", i);
	}
	w[0] = 0;
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < 50; i++) {
		MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	if (me == 0) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
		check(w[0] == 50 * ranks, "windows: %ld counted", (long)w[0]);
		MPI_Win_unlock(0, win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&win);
	free(a), free(b);
}

enum { THREADS = 3, TURNS = 20 };
static int thread_sizes[THREADS][TURNS];
static uint64_t thread_kind;

static void *thread(void *arg)
{
	int t = (int)(intptr_t)arg, next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
	for (int i = 0; i < TURNS; i++) {
		int n = thread_sizes[t][i];
		uint64_t *a = need(8 * (size_t)n), *b = need(8 * (size_t)n), k = thread_kind + (uint64_t)(t * TURNS + i);
		for (int j = 0; j < n; j++)
			a[j] = value((uint64_t)me, k, (uint64_t)j);
		MPI_Request q[2];
		MPI_Irecv(b, n, MPI_UINT64_T, last, 100 + t, MPI_COMM_WORLD, q);
		MPI_Isend(a, n, MPI_UINT64_T, next, 100 + t, MPI_COMM_WORLD, q + 1);
		MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
		for (int j = 0; j < n; j++)
			check(b[j] == value((uint64_t)last, k, (uint64_t)j), "threads: element %d of turn %d of thread %d", j, i, t);
		free(a), free(b);
	}
	return NULL;
}

static void threads(uint64_t k)
{
	pthread_t all[THREADS];
	for (int t = 0; t < THREADS; t++)
		for (int i = 0; i < TURNS; i++)
			thread_sizes[t][i] = some_size() / 16 + 1;
	thread_kind = k;
	for (int t = 0; t < THREADS; t++)
		if (pthread_create(&all[t], NULL, thread, (void *)(intptr_t)t) != 0)
			MPI_Abort(MPI_COMM_WORLD, 2);
	for (int t = 0; t < THREADS; t++)
		pthread_join(all[t], NULL);
}

int main(int argc, char **argv)
{
	int provided, rounds = 0, on = 1, all = 0;
	const char *kernels = argc > 3 ? argv[3] : "vhtrw";
	double end = argc > 1 ? atof(argv[1]) : 1;
	MPI_Init_thread(&argc, &argv, strchr(kernels, 'm') != NULL ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	state = (argc > 2 ? strtoull(argv[2], NULL, 0) : 1) * 0x9E3779B97F4A7C15ull | 1;
	end += MPI_Wtime();
	for (; on; rounds++) {
		char kernel = kernels[draw() % strlen(kernels)];
		uint64_t k = draw();
		switch (kernel) {
		case 'v': alltoallv(k); break;
		case 'h': halo(k); break;
		case 't': types(k); break;
		case 'r': tags(k); break;
		case 'w': windows(k); break;
		case 'm':
			if (provided == MPI_THREAD_MULTIPLE)
				threads(k);
		}
		on = MPI_Wtime() < end;
		MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD);
		MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		if (all > 0) {
			if (me == 0)
				fprintf(stderr, "round %d, kernel %c: %d wrong\n", rounds, kernel, all);
			break;
		}
	}
	if (me == 0)
		printf("mixed: %d ranks, %d rounds%s, %s\n", ranks, rounds, provided == MPI_THREAD_MULTIPLE ? " with threads" : "", all > 0 ? "WRONG" : "right");
	MPI_Finalize();
	return all > 0;
}
