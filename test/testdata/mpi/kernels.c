/* Four kernels of parallel programs with known results: the exchanges of NPB's CG, a reduction to
 * all, all to all, and a halo. kernels [--until FILE] [cg|allreduce|alltoall|halo]..., all of them
 * if none is named. cg and allreduce take a power of two ranks. With --until all ranks talk to all
 * until FILE exists, before the kernels begin. Rank 0 prints a line for each; exit status 1 if a
 * result is wrong. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int me, ranks;

static void *get(size_t n)
{
	void *p = calloc(n ? n : 1, 1);

	if (!p) {
		fprintf(stderr, "kernels: no memory for %zu bytes\n", n);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	return p;
}

/* Sends a and receives b, of the same peer. */
static void exchange(const void *a, int na, void *b, int nb, MPI_Datatype type, int peer)
{
	MPI_Sendrecv(a, na, type, peer, 1, b, nb, type, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Is it true on all ranks? */
static int everywhere(int ok)
{
	int all;

	MPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	return all;
}

/* --- cg: conjugate gradients for a dense matrix, cut into rows * cols blocks as NPB cuts its
 * own. */

enum { ORDER = 1024 };

struct grid {
	int rows, cols, row, col; /* of ranks, and this rank's place */
	int height, width;	  /* of a block */
	int transpose, from;	  /* the partner of the transposition, and where in a row's part its share begins */
};

/* The matrix: symmetric, its diagonal larger than the rest of the row. */
static double element(int i, int j) { return i == j ? 4 : 1 / (1 + (double)(i - j) * (i - j)); }

static struct grid cut(void)
{
	struct grid g = {.rows = 1, .cols = 1};

	while (g.rows * g.cols < ranks)
		*(g.cols > g.rows ? &g.rows : &g.cols) *= 2;
	g.row = me / g.cols;
	g.col = me % g.cols;
	g.height = ORDER / g.rows;
	g.width = ORDER / g.cols;
	if (g.rows == g.cols) {
		g.transpose = me % g.rows * g.rows + me / g.rows;
	} else {
		g.transpose = 2 * (me / 2 % g.rows * g.rows + me / 2 / g.rows) + me % 2;
		g.from = me % 2 * g.height / 2;
	}
	return g;
}

/* Adds n numbers over the ranks of a row of the grid, by steps of doubling distance. */
static void add_row(const struct grid *g, double *v, double *other, int n)
{
	for (int d = 1; d < g->cols; d *= 2) {
		exchange(v, n, other, n, MPI_DOUBLE, g->row * g->cols + (g->col ^ d));
		for (int i = 0; i < n; i++)
			v[i] += other[i];
	}
}

static double dot(const struct grid *g, const double *a, const double *b)
{
	double sum = 0, other;

	for (int i = 0; i < g->width; i++)
		sum += a[i] * b[i];
	add_row(g, &sum, &other, 1);
	return sum;
}

/* q = A p, both spread over the columns of the grid. */
static void multiply(const struct grid *g, const double *a, const double *p, double *q, double *part, double *other)
{
	for (int i = 0; i < g->height; i++) {
		part[i] = 0;
		for (int j = 0; j < g->width; j++)
			part[i] += a[i * g->width + j] * p[j];
	}
	add_row(g, part, other, g->height);
	exchange(part + g->from, g->width, q, g->width, MPI_DOUBLE, g->transpose);
}

/* Solves A x = A (1, 2, ..., ORDER). */
static int cg(char *said, size_t n)
{
	struct grid g = cut();
	double *a = get(sizeof *a * (size_t)g.height * (size_t)g.width), *v[6], worst = 0, all;

	for (int i = 0; i < 6; i++)
		v[i] = get(sizeof **v * (size_t)(g.height + g.width));
	double *x = v[0], *r = v[1], *p = v[2], *q = v[3], *part = v[4], *other = v[5];
	for (int i = 0; i < g.height; i++)
		for (int j = 0; j < g.width; j++)
			a[i * g.width + j] = element(g.row * g.height + i, g.col * g.width + j);
	for (int j = 0; j < g.width; j++)
		p[j] = 1 + g.col * g.width + j;
	multiply(&g, a, p, r, part, other);
	memcpy(p, r, sizeof *p * (size_t)g.width);
	double rho = dot(&g, r, r), first = rho;
	int steps = 0;
	for (; steps < 200 && rho > first * 1e-28; steps++) {
		multiply(&g, a, p, q, part, other);
		double alpha = rho / dot(&g, p, q), old = rho;
		for (int j = 0; j < g.width; j++) {
			x[j] += alpha * p[j];
			r[j] -= alpha * q[j];
		}
		rho = dot(&g, r, r);
		for (int j = 0; j < g.width; j++)
			p[j] = r[j] + rho / old * p[j];
	}
	for (int j = 0; j < g.width; j++)
		worst = fmax(worst, fabs(x[j] - (1 + g.col * g.width + j)));
	MPI_Allreduce(&worst, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	snprintf(said, n, "%d steps, %dx%d blocks", steps, g.rows, g.cols);
	free(a);
	for (int i = 0; i < 6; i++)
		free(v[i]);
	return all < 1e-8 * ORDER;
}

/* --- allreduce: by recursive doubling, and as MPI does it. */

static int allreduce(char *said, size_t n)
{
	enum { MOST = 1 << 16 };
	int64_t *a = get(MOST * sizeof *a), *b = get(MOST * sizeof *b), *c = get(MOST * sizeof *c);
	int ok = 1, sizes = 0;

	for (int len = 1; len <= MOST; len *= 4, sizes++) {
		for (int i = 0; i < len; i++)
			a[i] = (int64_t)i * 1000003 + me * me;
		MPI_Allreduce(a, c, len, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
		for (int d = 1; d < ranks; d *= 2) {
			exchange(a, len, b, len, MPI_INT64_T, me ^ d);
			for (int i = 0; i < len; i++)
				a[i] += b[i];
		}
		int64_t squares = (int64_t)(ranks - 1) * ranks * (2 * ranks - 1) / 6;
		for (int i = 0; i < len; i++)
			ok &= a[i] == c[i] && a[i] == (int64_t)ranks * i * 1000003 + squares;
	}
	snprintf(said, n, "%d sizes to %d KiB", sizes, (int)(MOST * sizeof *a >> 10));
	free(a);
	free(b);
	free(c);
	return everywhere(ok);
}

/* --- alltoall: each byte says whence it came and whither it goes. */

static int alltoall(char *said, size_t n)
{
	enum { MOST = 1 << 15 };
	unsigned char *out = get((size_t)ranks * MOST), *in = get((size_t)ranks * MOST);
	int ok = 1, sizes = 0;

	for (int len = 1; len <= MOST; len *= 8, sizes++) {
		for (int r = 0; r < ranks; r++)
			for (int i = 0; i < len; i++)
				out[r * len + i] = (unsigned char)(me * 31 + r * 7 + i);
		memset(in, 0, (size_t)ranks * MOST);
		MPI_Alltoall(out, len, MPI_BYTE, in, len, MPI_BYTE, MPI_COMM_WORLD);
		for (int r = 0; r < ranks; r++)
			for (int i = 0; i < len; i++)
				ok &= in[r * len + i] == (unsigned char)(r * 31 + me * 7 + i);
	}
	snprintf(said, n, "%d sizes to %d KiB", sizes, MOST >> 10);
	free(out);
	free(in);
	return everywhere(ok);
}

/* --- halo: a field that spreads over a grid of cells, cut into strips; the whole of it is computed
 * on each rank, too. */

enum { CELLS = 240, TURNS = 50 };

/* One step of rows 1 to n of a field with a frame. */
static void spread(const double *from, double *to, int n)
{
	for (int i = 1; i <= n; i++)
		for (int j = 1; j <= CELLS; j++) {
			const double *f = from + i * (CELLS + 2) + j;
			to[i * (CELLS + 2) + j] = 0.25 * (f[-1] + f[1] + f[-CELLS - 2] + f[CELLS + 2]);
		}
}

static double at_first(int i, int j) { return (i * 37 + j * 11) % 101; }

/* Rows first to first + n - 1 as they are at first; what is outside is 0. */
static double *field(int first, int n)
{
	double *f = get(sizeof *f * (size_t)(n + 2) * (CELLS + 2));

	for (int i = 1; i <= n; i++)
		for (int j = 1; j <= CELLS; j++)
			f[i * (CELLS + 2) + j] = at_first(first + i, j);
	return f;
}

static void swap(double **a, double **b)
{
	double *c = *a;

	*a = *b;
	*b = c;
}

static int halo(char *said, size_t n)
{
	int first = CELLS * me / ranks, mine = CELLS * (me + 1) / ranks - first;
	int up = me ? me - 1 : MPI_PROC_NULL, down = me < ranks - 1 ? me + 1 : MPI_PROC_NULL, ok = 1;
	double *a = field(first, mine), *b = field(first, mine), *whole = field(0, CELLS), *next = field(0, CELLS);

	for (int turn = 0; turn < TURNS; turn++) {
		MPI_Request r[4];
		MPI_Status done[4];
		MPI_Irecv(a, CELLS + 2, MPI_DOUBLE, up, 2, MPI_COMM_WORLD, &r[0]);
		MPI_Irecv(a + (mine + 1) * (CELLS + 2), CELLS + 2, MPI_DOUBLE, down, 3, MPI_COMM_WORLD, &r[1]);
		MPI_Isend(a + CELLS + 2, CELLS + 2, MPI_DOUBLE, up, 3, MPI_COMM_WORLD, &r[2]);
		MPI_Isend(a + mine * (CELLS + 2), CELLS + 2, MPI_DOUBLE, down, 2, MPI_COMM_WORLD, &r[3]);
		MPI_Waitall(4, r, done);
		spread(a, b, mine);
		swap(&a, &b);
		spread(whole, next, CELLS);
		swap(&whole, &next);
	}
	for (int i = 1; i <= mine; i++)
		ok &= !memcmp(a + i * (CELLS + 2) + 1, whole + (first + i) * (CELLS + 2) + 1, CELLS * sizeof *a);
	snprintf(said, n, "%d turns of %dx%d cells", TURNS, CELLS, CELLS);
	free(a);
	free(b);
	free(whole);
	free(next);
	return everywhere(ok);
}

/* Talks to all ranks until file exists: they leave in the same turn, because rank 0 alone looks. */
static void talk(const char *file)
{
	int *out = get((size_t)ranks * sizeof *out), *in = get((size_t)ranks * sizeof *in);

	do {
		for (int i = 0; i < ranks; i++)
			out[i] = !me && !access(file, F_OK);
		MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
	} while (!in[0]);
	free(out);
	free(in);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(char *said, size_t n);
	} all[] = {{"cg", cg}, {"allreduce", allreduce}, {"alltoall", alltoall}, {"halo", halo}};
	int wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc > 2 && !strcmp(argv[1], "--until")) {
		talk(argv[2]);
		argc -= 2;
		argv += 2;
	}
	for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
		char said[80];
		int wanted = argc == 1;
		for (int i = 1; i < argc; i++)
			wanted |= !strcmp(argv[i], all[k].name);
		if (!wanted)
			continue;
		double begin = MPI_Wtime();
		int ok = all[k].run(said, sizeof said);
		wrong |= !ok;
		if (!me)
			printf("%s: %s, %s, %.3f s\n", all[k].name, ok ? "right" : "WRONG", said, MPI_Wtime() - begin);
	}
	MPI_Finalize();
	return wrong;
}
