/* Which objects are looked at for system calls of their own (sites.c): before the program's first
 * thread makes others, the program, its small libraries and those with Go. Later, each library that
 * the program opens (dlopen), before its code runs. What is in no function of the table for those
 * who unwind, or in a program without that table (Bun, Deno), is read from some bytes before it. If
 * one of them cannot be replaced, all sockets stay the kernel's: it may be a socket's, whose bytes
 * would pass those in memory. */
#include "hooks/go.h"
#include "hooks/around.h"
#include "hooks/sites.h"

#ifdef DS_PATCH
#include <errno.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

enum {
	PROGRAM_MOST = 256 << 20, /* bytes of text that are looked at: of the program, Go's, or what is opened later; */
	LIBRARY_MOST = 128 << 10, /* of a library that the program is linked with */
};

/* A loaded object's segments. */
struct segments {
	const ElfW(Phdr) *p;
	unsigned long n;
	const char *base;
	unsigned codes;			  /* segments that can be executed */
	bool needs;			  /* other libraries, as what has C does */
	bool written;			  /* its code may change at any time */
	bool relocated;			  /* its code is, by the dynamic linker */
	const unsigned char *init, *fini; /* functions: where GNU's linker puts all code between; NULL: there are none */
};

/* Finds those of m, which is the program or a library. False: it is the kernel's, or has none. */
static bool segments_of(const struct link_map *m, bool program, struct segments *s)
{
	const ElfW(Ehdr) *e = (const void *)m->l_addr;

	if (!program && (!e || m->l_addr == getauxval(AT_SYSINFO_EHDR)))
		return false;
	s->base = (const char *)m->l_addr;
	s->p = (const void *)(program ? getauxval(AT_PHDR) : m->l_addr + e->e_phoff);
	s->n = program ? getauxval(AT_PHNUM) : e->e_phnum;
	s->needs = s->written = s->relocated = false;
	s->codes = 0;
	s->init = s->fini = NULL;
	for (unsigned long i = 0; s->p && i < s->n; i++)
		if (s->p[i].p_type == PT_LOAD && (s->p[i].p_flags & PF_X)) {
			s->codes++;
			s->written |= s->p[i].p_flags & PF_W;
		}
	for (const ElfW(Dyn) *d = m->l_ld; d && d->d_tag != DT_NULL; d++) {
		s->needs |= d->d_tag == DT_NEEDED;
		s->relocated |= d->d_tag == DT_TEXTREL || (d->d_tag == DT_FLAGS && (d->d_un.d_val & DF_TEXTREL));
		if (d->d_tag == DT_INIT)
			s->init = (const unsigned char *)s->base + d->d_un.d_ptr;
		if (d->d_tag == DT_FINI)
			s->fini = (const unsigned char *)s->base + d->d_un.d_ptr;
	}
	return s->p != NULL;
}

/* Does a note say that it is Go's (.note.go.buildid)? */
static bool has_go(const struct segments *s)
{
	struct {
		ElfW(Nhdr) head;
		char name[4];
	} note;

	for (const ElfW(Phdr) *p = s->p; p < s->p + s->n; p++) {
		const char *at = s->base + p->p_vaddr, *end = at + p->p_filesz;

		while (p->p_type == PT_NOTE && end - at >= (ptrdiff_t)sizeof note) {
			memcpy(&note, at, sizeof note);
			if (note.head.n_namesz == sizeof note.name && !memcmp(note.name, "Go", sizeof "Go"))
				return true;
			at += sizeof note.head + ((note.head.n_namesz + 3) & ~3u) + ((note.head.n_descsz + 3) & ~3u);
		}
	}
	return false;
}

/* Has the text Go's function? Not each of Go's objects has the note. */
static bool has_go_function(const struct ds_text *text)
{
	const unsigned char *end = (const unsigned char *)text->end;

	for (const unsigned char *p = (const unsigned char *)text->begin; (p = around_next(p, end)) < end; p++)
		if (go_function(text, p))
			return true;
	return false;
}

/* Finds where goroutines wait, by the data of Go's object. Without it they sleep at once. */
static void find_wait(struct sites *l, const struct segments *s, const unsigned char *syscall6)
{
	const unsigned char *at, *waits;

	for (unsigned long i = 0; i < s->n && l->n < SITES; i++) {
		const char *data = s->base + s->p[i].p_vaddr;

		if (s->p[i].p_type != PT_LOAD || (s->p[i].p_flags & PF_X) || !(at = go_wait(&l->text, syscall6, data, data + s->p[i].p_filesz, &waits)))
			continue;
		l->at[l->n++] = (struct site){.begin = at, .end = at + JUMP, .waits = waits};
		return;
	}
}

/* Does it have direct sockets by Go's package? */
static bool is_direct(const struct segments *s)
{
	for (unsigned long i = 0; i < s->n; i++) {
		const char *at = s->base + s->p[i].p_vaddr;

		if (s->p[i].p_type == PT_LOAD && s->p[i].p_flags == PF_R && go_is_direct(at, at + s->p[i].p_filesz))
			return true;
	}
	return false;
}

/* Finds the instructions of an object from the program header at p on, and its table of functions.
 * NULL: there are none, or they are not to be changed, as those of the C library and this one. Else
 * the header behind theirs. */
static const ElfW(Phdr) *text_of(const struct segments *s, const ElfW(Phdr) *p, const char *file, struct ds_text *text)
{
	const char *const known[] = {(const char *)(uintptr_t)gnu_get_libc_version, (const char *)(uintptr_t)text_of};

	*text = (struct ds_text){.file = file, .base = s->base};
	for (const ElfW(Phdr) *f = s->p; f < s->p + s->n; f++)
		if (f->p_type == PT_GNU_EH_FRAME)
			text->frames = s->base + f->p_vaddr;
	while (p < s->p + s->n && (p->p_type != PT_LOAD || !(p->p_flags & PF_X)))
		p++;
	if (p == s->p + s->n)
		return NULL;
	text->begin = s->base + p->p_vaddr;
	text->end = text->begin + p->p_filesz;
	text->off = (off_t)p->p_offset;
	for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i] >= text->begin && known[i] < text->end)
			return NULL;
	return p + 1;
}

/* Finds the places of an object. Its segment may begin with the file's head and hold data: then
 * what is in no function is code from init to fini alone. Go without cgo stays as it is: it sets
 * the FS base, by which C finds the variables of a thread. If it is a PIE, the linker loads this
 * library all the same. */
static void find_all(struct sites *l, const struct segments *s)
{
	const unsigned char *begin = (const unsigned char *)l->text.begin, *end = (const unsigned char *)l->text.end, *go;
	const unsigned char *code = l->text.off == 0 ? s->init : begin, *code_end = l->text.off == 0 ? s->fini : end;
	enum { UNSEEN, OF_C, OF_GO } of = UNSEEN;
	struct function f = {0};

	for (const unsigned char *p = begin; (p = around_next(p, end)) < end; p = f.begin && f.end > p ? f.end : p + 1) {
		f = function_at(l->text.frames, p);
		if (f.begin >= begin && f.end <= end) {
			calls_find(l, &f);
			continue;
		}
		if (of == UNSEEN)
			of = has_go_function(&l->text) ? OF_GO : OF_C;
		if (of == OF_C && !f.begin && p >= code && p < code_end) {
			calls_find_around(l, (struct function){f.end > code ? f.end : code, f.next > p && f.next < code_end ? f.next : code_end, NULL}, p);
		} else if (s->needs && (go = go_function(&l->text, p)) && l->n < SITES && !is_direct(s)) {
			l->at[l->n++] = (struct site){.begin = go, .end = go + JUMP};
			go_arrives(p);
			find_wait(l, s, go);
			fd_doubt(); /* Go's own way to make a child that shares this memory does not come here */
		} else if (s->needs && of == OF_GO && go_waits_past(&l->text, p) && !is_direct(s)) {
			calls_missed(l, p);
		}
	}
	calls_place(l);
}

static struct sites sites; /* at start, then with the dynamic linker's lock */

/* Has the places of an object come to this library, if it may be changed. No more than most bytes
 * are looked at. Of several segments of code one may jump into another: those stay as they are. */
static void take_over(const struct segments *s, const char *file, ptrdiff_t most, bool possible)
{
	for (const ElfW(Phdr) *p = s->p; (p = text_of(s, p, file, &sites.text));) {
		sites.n = sites.n_found = 0;
		if (sites.text.end - sites.text.begin <= most)
			find_all(&sites, s);
		else if (ds_explains()) /* it takes its time */
			calls_pass(&sites);
		if (sites.n > 0)
			sites_patch(&sites, possible && s->codes == 1);
	}
}

/* All sockets are the kernel's, if a call is not replaced. */
static void conclude(void)
{
	if (!sites.missed)
		return;
	sites.missed = false;
	fd_seal();
	if (ds_explains())
		ds_tell_broker();
}

/* ---- libraries that are opened later ---------------------------------------------- */

/* Does m begin with its head? Some tools put it elsewhere. */
static bool begins_with_head(const struct link_map *m)
{
	const ElfW(Ehdr) *e = (const void *)m->l_addr;
	const ElfW(Phdr) *p;

	if (!ds_readable(e, sizeof *e) || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0)
		return false;
	p = (const void *)(m->l_addr + e->e_phoff);
	if (!ds_readable(p, e->e_phnum * sizeof *p))
		return false;
	for (unsigned i = 0; i < e->e_phnum; i++)
		if (p[i].p_type == PT_DYNAMIC)
			return m->l_addr + p[i].p_vaddr == (uintptr_t)m->l_ld;
	return false;
}

static const struct link_map *last; /* of all objects, when they had been looked at; NULL: some are being removed */

/* The last of all objects. */
static const struct link_map *last_loaded(void)
{
	const struct link_map *m = _r_debug.r_map;

	while (m->l_next)
		m = m->l_next;
	return m;
}

/* The dynamic linker calls it, with its lock, when it begins to add or remove objects, and when it
 * has done so. What it has added has not run yet, nor been relocated. */
static void changed(void)
{
	struct segments s;
	int saved = errno;

	if (_r_debug.r_state == RT_DELETE)
		last = NULL; /* what was being added goes, too */
	if (_r_debug.r_state != RT_CONSISTENT)
		return;
	if (!last)
		sites_sweep();
	for (const struct link_map *m = last ? last->l_next : NULL; m && !fd_is_sealed(); m = m->l_next)
		if (begins_with_head(m) && segments_of(m, false, &s))
			take_over(&s, m->l_name, PROGRAM_MOST, !s.written && !s.relocated);
	last = last_loaded();
	conclude();
	errno = saved;
}

/* Puts a jump to changed where the dynamic linker, which has this text, calls debuggers: the
 * function only returns, and fill follows. A debugger that has its own instruction there would have
 * libraries opened that nobody has looked at. */
static void follow(const struct ds_text *text)
{
	enum { BREAKPOINT = 0xcc };
	static const unsigned char mark[] = {0xf3, 0x0f, 0x1e, 0xfa}; /* endbr64 */
	const unsigned char *p = (const unsigned char *)_r_debug.r_brk, *end = (const unsigned char *)text->end;
	unsigned char *at;
	struct instruction in;
	struct patch change;

	if (!memcmp(p, mark, sizeof mark))
		p += sizeof mark;
	at = (unsigned char *)(uintptr_t)p;
	if (*p == BREAKPOINT)
		calls_missed(&sites, p);
	if (*p++ != 0xc3)
		return;
	for (; p < at + JUMP; p += in.len) {
		in = instruction_at(p, end);
		if (!in.fills)
			return;
	}
	last = last_loaded();
	if (patch_open(&change, text) && patch_begin(&change, (char *)at, (char *)at + JUMP)) {
		instruction_jump(at, (const unsigned char *)(uintptr_t)changed);
		patch_end(&change);
	}
	patch_close(&change);
}

/* Before the program runs: has the places of all objects come to this library. */
__attribute__((constructor)) DS_START static void patch_own(void)
{
	const bool possible = patch_possible();
	const struct link_map *m = ds_env_off("EXNET_PATCH") ? NULL : _r_debug.r_map;
	struct segments s;

	for (bool program = true; m; m = m->l_next, program = false) {
		if (!segments_of(m, program, &s) || !text_of(&s, s.p, m->l_name, &sites.text))
			continue;
		if (_r_debug.r_brk >= (uintptr_t)sites.text.begin && _r_debug.r_brk < (uintptr_t)sites.text.end) {
			if (possible)
				follow(&sites.text);
			continue;
		}
		take_over(&s, m->l_name, program || has_go(&s) ? PROGRAM_MOST : LIBRARY_MOST, possible && !s.written);
	}
	conclude();
}
#endif
