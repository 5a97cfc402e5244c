// Runs ../segment/testdata/*.ds, whose form is in the README.md there.
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>

static struct end e;
static uint8_t *mem;
static size_t size;
static int bell = -1;
static bool broken, gone;
enum { SHADOW, DIRECT, ENDED, BACK };
static int tx, rx; // where the directions are
static bool was_promoted, undecided;
static uint8_t switched; // what the broker says
static uint64_t promoted_at;

static size_t bytes(uint8_t *to, const char *text)
{
	char buf[4096], *save, *w;
	size_t n = 0, k = 0;

	for (; *text && k < sizeof buf - 1; text++)
		if (*text != ' ' && *text != '_')
			buf[k++] = *text;
	buf[k] = 0;
	for (w = strtok_r(buf, "+", &save); w; w = strtok_r(NULL, "+", &save)) {
		if (!strcmp(w, "-"))
			continue;
		if (w[0] == 'u') {
			uint64_t v = strtoull(w + 4, NULL, 0);
			memcpy(to + n, &v, w[1] == '3' ? 4 : 8);
			n += w[1] == '3' ? 4 : 8;
		} else if (w[0] == '@') {
			unsigned long len = 0, from = 0, skip = 0;
			sscanf(w, "@%lu:%lu:%lu", &len, &from, &skip);
			for (size_t i = skip; i < skip + len; i++)
				to[n++] = (uint8_t)(from + i + i / 251);
		} else {
			for (; w[0] && w[1]; w += 2) {
				char two[3] = {w[0], w[1], 0};
				to[n++] = (uint8_t)strtol(two, NULL, 16);
			}
		}
	}
	return n;
}

static void forget(void)
{
	if (mem)
		munmap(mem, size);
	if (bell >= 0)
		close(bell);
	if (e.seg.bell > 0)
		close(e.seg.bell);
	memset(&e, 0, sizeof e);
	mem = NULL;
	bell = -1;
	broken = gone = was_promoted = undecided = false;
	switched = 0;
	tx = rx = SHADOW;
}

static void fresh(uint32_t slots, uint64_t ring, int side)
{
	int fd, bells[2];

	CHECK(ds_seg_create(&e.seg, &some_info, slots, ring, &fd) == 0, "%s", strerror(errno));
	mem = e.seg.mem;
	size = e.seg.size;
	close(fd);
	CHECK(ds_seg_view(&e.seg, mem, size, side) == 0, "view");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, bells) < 0)
		abort();
	e.seg.bell = bells[0];
	e.seg.off = &switched;
	bell = bells[1];
}

static uint32_t peer(void) { return ds_seg_peer_attention(&e.seg); }

static const char *name(int r)
{
	switch (r) {
	case DS_AGAIN:
		return "again";
	case DS_END:
		return "eof";
	case DS_DEMOTED:
		return "demoted";
	case DS_BREACH:
		broken = true;
		return "corrupt";
	case DS_STOPPED:
		return peer() & DS_FALLEN_BACK ? "fallen-back" : peer() & DS_RESET ? "reset" : "closed";
	}
	return "ok";
}

static const char *attach(void)
{
	char c;

	switch (ds_seg_peer_state(&e.seg)) {
	case DS_OFFERED:
		if (recv(e.seg.bell, &c, 1, MSG_PEEK) == 0)
			return "closed";
		ds_seg_state(&e.seg, &e.attention, DS_ATTACHED);
		return "ok";
	case DS_WITHDRAWN:
		return "closed";
	}
	return "corrupt";
}

// What ds_tx_update does for a socket.
static const char *cannot_send(void)
{
	if (broken)
		return "corrupt";
	if (tx == SHADOW)
		return "shadow";
	if (tx == ENDED)
		return "ended";
	if (tx == BACK)
		return "demoted";
	return gone ? "closed" : NULL;
}

static const char *end_tx(int tag)
{
	const char *no = cannot_send();

	if (no)
		return no;
	if ((peer() & (DS_FALLEN_BACK | DS_CLOSED | DS_RESET)) != 0)
		return name(DS_STOPPED);
	int r = ds_tx_end(&e.seg, &e.tx, &e.attention, tag);
	if (r == 0)
		tx = tag == DS_SHUTDOWN ? ENDED : BACK;
	return name(r);
}

static const char *promote(uint64_t n)
{
	uint32_t state = ds_seg_peer_state(&e.seg);

	if (tx != SHADOW)
		return "demoted";
	if (state > DS_WITHDRAWN)
		return name(DS_BREACH);
	if (e.seg.side == 0 && state != DS_ATTACHED)
		return "again";
	int r = ds_tx_promote(&e.seg, &e.tx, &e.attention, n);
	if (r == 0)
		tx = DIRECT;
	return name(r);
}

static bool look_promoted(void)
{
	if (rx == SHADOW && !broken && !undecided)
		switch (ds_rx_promoted(&e.seg, &e.rx, &promoted_at)) {
		case 1:
			was_promoted = true;
			rx = DIRECT;
			break;
		case DS_BREACH:
			broken = true;
		}
	return was_promoted;
}

static uint8_t got[1 << 17];
static size_t ngot;

static const char *receive(size_t n)
{
	struct iovec v;
	struct ds_cursor c = cursor_of(&v, got, n);

	look_promoted();
	if (broken)
		return "corrupt";
	if (rx == SHADOW && !undecided)
		return peer() & DS_RESET ? "reset" : "shadow";
	if (rx == BACK || undecided)
		return "demoted";
	if (rx == ENDED)
		return "eof";
	ssize_t r = ds_rx_recv(&e.seg, &e.rx, &e.attention, &c, false, false);
	if (r == DS_AGAIN && ((peer() & (DS_CLOSED | DS_RESET)) || gone))
		return peer() & DS_RESET ? "reset" : "closed";
	if (r == DS_END || r == DS_DEMOTED) {
		rx = r == DS_END ? ENDED : BACK;
		ds_rx_finish(&e.seg, &e.rx, &e.attention, false);
	}
	if (r < 0)
		return name((int)r);
	ngot = (size_t)r;
	return NULL;
}

static const char *fall_back(void)
{
	if (rx == ENDED)
		return "ending";
	look_promoted();
	int r = ds_seg_fall_back(&e.seg, &e.rx, &e.attention);
	if (r == DS_AGAIN)
		return "ending";
	undecided = true; // and the queue may yet tell that it goes on
	return "ok";
}

// What ds_rx_update does for RX_FALLEN_BACK.
static const char *resume(bool speaks)
{
	if (peer() & DS_RETURNED) {
		undecided = false;
		rx = BACK;
	} else if (undecided && ((peer() & DS_STANDS) || speaks)) {
		undecided = false;
		return "yes";
	}
	return "no";
}

static ssize_t keep(void *arg, const void *p, size_t n)
{
	(void)arg;
	memcpy(got + ngot, p, n);
	ngot += n;
	return (ssize_t)n;
}

static const char *returns(void)
{
	uint64_t slot, off;
	bool ended = false;

	ngot = 0;
	if (tx == SHADOW)
		ds_attend(&e.seg, &e.attention, DS_RETURNED, 0);
	if (tx != DIRECT) {
		tx = BACK;
		return NULL;
	}
	int r = ds_tx_return_begin(&e.seg, &e.tx, &e.attention, &slot, &off);
	if (r == 0)
		r = ds_tx_return(&e.seg, &e.tx, &slot, &off, keep, NULL, &ended);
	tx = BACK;
	return r ? name(r) : NULL;
}

static const char *map_it(const char *args)
{
	static uint8_t b[4096];
	char *end;
	size_t len = strtoul(args, &end, 0), n = bytes(b, end);
	int fd = memfd_create("golden", MFD_ALLOW_SEALING);
	struct ds_seg g;

	if (ftruncate(fd, (off_t)len) < 0 || write(fd, b, n) != (ssize_t)n)
		abort();
	CHECK(ds_seg_map(&g, fd, 1) < 0, "a segment without seals was taken");
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	int r = ds_seg_map(&g, fd, 1);
	close(fd);
	if (r == 0)
		ds_seg_unmap(&g);
	return r == 0 ? "ok" : "refused";
}

static int asked;

// Does one operation; the answer, or NULL if it is the bytes in got.
static const char *answer(const char *op, char *args)
{
	static char text[64];
	static uint8_t b[1 << 17];

	if (!strcmp(op, "map"))
		return map_it(args);
	if (!strcmp(op, "attach"))
		return attach();
	if (!strcmp(op, "attached"))
		return ds_seg_peer_state(&e.seg) == DS_ATTACHED || e.seg.own->state == DS_ATTACHED ? "yes" : "no";
	if (!strcmp(op, "promote"))
		return promote(strtoull(args, NULL, 0));
	if (!strcmp(op, "promoted")) {
		if (!look_promoted())
			return "none";
		snprintf(text, sizeof text, "%llu", (unsigned long long)promoted_at);
		return text;
	}
	if (!strcmp(op, "send")) {
		struct iovec v;
		struct ds_cursor c = cursor_of(&v, b, bytes(b, args));
		const char *no = cannot_send();
		if (no)
			return no;
		ssize_t r = c.left ? ds_tx_send(&e.seg, &e.tx, &e.attention, &c) : 0;
		if (r < 0)
			return name((int)r);
		snprintf(text, sizeof text, "%zd", r);
		return text;
	}
	if (!strcmp(op, "recv"))
		return receive(strtoul(args, NULL, 0));
	if (!strcmp(op, "shutdown"))
		return end_tx(DS_SHUTDOWN);
	if (!strcmp(op, "demote"))
		return end_tx(DS_DEMOTE);
	if (!strcmp(op, "fallback"))
		return fall_back();
	if (!strcmp(op, "resume"))
		return resume(strstr(args, "yes"));
	if (!strcmp(op, "return"))
		return returns();
	if (!strcmp(op, "readable")) {
		snprintf(text, sizeof text, "%llu", (unsigned long long)ds_rx_readable(&e.seg, &e.rx));
		return text;
	}
	if (!strcmp(op, "armrx")) {
		ds_attend(&e.seg, &e.attention, DS_ARM_RX, 0);
		ds_fence(&e.seg);
		return ds_rx_hint(&e.seg, &e.rx) ? "ready" : "armed";
	}
	if (!strcmp(op, "armtx")) {
		ds_attend(&e.seg, &e.attention, DS_ARM_TX, 0);
		ds_fence(&e.seg);
		return ds_tx_room(&e.seg, &e.tx) ? "ready" : "armed";
	}
	if (!strcmp(op, "bells")) {
		ssize_t n = read(bell, b, 100);
		snprintf(text, sizeof text, "%zd", n < 0 ? 0 : n);
		return text;
	}
	if (!strcmp(op, "stamps")) {
		uint64_t last = 1, stamp = 1;
		while (args[strspn(args, " ")] && stamp >= last) {
			last = stamp;
			memcpy(&stamp, mem + strtoul(args, &args, 0), sizeof stamp);
		}
		return stamp >= last ? "yes" : "no";
	}
	return "what is this?";
}

static void line(const char *file, int lineno, char *text)
{
	static uint8_t want[1 << 17];
	char *arrow = strstr(text, "->"), *args, op[16] = "", *say = NULL;

	if (arrow) {
		*arrow = 0;
		say = arrow + 2 + strspn(arrow + 2, " ");
		say[strcspn(say, "\n")] = 0;
		for (size_t n = strlen(say); n && say[n - 1] == ' ';)
			say[--n] = 0;
	}
	if (sscanf(text, " %15s", op) != 1)
		return;
	args = strstr(text, op) + strlen(op);
	args[strcspn(args, "\n")] = 0;
	if (!strcmp(op, "case")) {
		forget();
	} else if (!strcmp(op, "new")) {
		unsigned slots;
		unsigned long ring;
		char side;
		sscanf(args, "%u %lu %c", &slots, &ring, &side);
		fresh(slots, ring, side == 's');
	} else if (!strcmp(op, "poke") || !strcmp(op, "peek")) {
		size_t off = strtoul(args, &args, 0), n = bytes(want, args);
		CHECK(off + n <= size, "%s:%d", file, lineno);
		asked++;
		if (op[1] == 'o')
			memcpy(mem + off, want, n);
		else
			CHECK(memcmp(mem + off, want, n) == 0, "%s:%d: %02x %02x %02x %02x ...", file, lineno, mem[off], mem[off + 1],
			      mem[off + 2], mem[off + 3]);
	} else if (!strcmp(op, "awake")) {
		char buf[64];
		ds_attend(&e.seg, &e.attention, 0, DS_ARM_RX | DS_ARM_TX);
		while (recv(e.seg.bell, buf, sizeof buf, MSG_DONTWAIT) > 0)
			;
		gone |= recv(e.seg.bell, buf, 1, MSG_DONTWAIT) == 0;
	} else if (!strcmp(op, "switched")) {
		switched = strstr(args, "off") != NULL;
		ds_seg_heed(&e.seg, &e.attention);
	} else if (!strcmp(op, "hangup")) {
		close(bell);
		bell = -1;
	} else if (!strcmp(op, "close") || !strcmp(op, "reset")) {
		ds_attend(&e.seg, &e.attention, DS_CLOSED | (op[0] == 'r' ? DS_RESET : 0), 0);
	} else if (say) {
		const char *a = answer(op, args);

		asked++;
		if (!a) {
			size_t n = bytes(want, say);
			CHECK(n == ngot && memcmp(want, got, n) == 0, "%s:%d: %zu bytes, not %s", file, lineno, ngot, say);
		} else if (!(strcmp(say, "some") == 0 && atoi(a) > 0)) {
			CHECK(strcmp(a, say) == 0, "%s:%d: %s%s -> %s, not %s", file, lineno, op, args, a, say);
		}
	} else {
		CHECK(false, "%s:%d: what is %s?", file, lineno, op);
	}
}

int main(void)
{
	static char text[8192];
	glob_t files;

	CHECK(glob("../segment/testdata/*.ds", 0, NULL, &files) == 0, "no vectors");
	for (size_t i = 0; i < files.gl_pathc; i++) {
		FILE *f = fopen(files.gl_pathv[i], "r");
		for (int n = 1; f && fgets(text, sizeof text, f); n++) {
			text[strcspn(text, "#")] = 0;
			line(files.gl_pathv[i], n, text);
		}
		fclose(f);
	}
	forget();
	globfree(&files);
	printf("golden: %d asked, %d failed\n", asked, failures);
	return failures || asked < 300;
}
