/* Looks functions up as dlsym(RTLD_NEXT) does, in a tenth of its instructions: a hundred of them,
 * in each program that is started. What is not plain is left to dlsym. */
#include "segment/real.h"

#include <dlfcn.h>
#include <string.h>

#ifdef __GLIBC__
#include <link.h>

enum { HIDDEN = 0x8000 }; /* of a version: not the default one */

/* What a loaded object's dynamic section says about its symbols, with a table by GNU's hash. */
struct object {
	const ElfW(Sym) *symbols;
	const char *names;
	const ElfW(Half) *versions;
	const ElfW(Addr) *bloom;
	const uint32_t *buckets, *chain;
	uint32_t nbuckets, first, nbloom, shift;
};

/* An address of m's dynamic section, which the dynamic linker relocates where it may write. */
static const void *at(const struct link_map *m, const ElfW(Dyn) *d)
{
	return (const void *)(d->d_un.d_ptr < m->l_addr ? d->d_un.d_ptr + m->l_addr : d->d_un.d_ptr);
}

/* Reads m's dynamic section. False: there is no such table. No lock. */
DS_START static bool object_of(const struct link_map *m, struct object *o)
{
	const uint32_t *hash = NULL;

	memset(o, 0, sizeof *o);
	for (const ElfW(Dyn) *d = m->l_ld; d && d->d_tag != DT_NULL; d++)
		switch (d->d_tag) {
		case DT_SYMTAB: o->symbols = at(m, d); break;
		case DT_STRTAB: o->names = at(m, d); break;
		case DT_VERSYM: o->versions = at(m, d); break;
		case DT_GNU_HASH: hash = at(m, d); break;
		}
	if (!hash || !o->names || !o->symbols)
		return false;
	o->nbuckets = hash[0], o->first = hash[1], o->nbloom = hash[2], o->shift = hash[3];
	o->bloom = (const void *)(hash + 4);
	o->buckets = (const void *)(o->bloom + o->nbloom);
	o->chain = o->buckets + o->nbuckets;
	return true;
}

/* The symbol of o that has this name, whose hash is h, in its default version; NULL: none. */
DS_START static inline const ElfW(Sym) *symbol(const struct object *o, const char *name, uint32_t h)
{
	enum { BITS = sizeof(ElfW(Addr)) * 8 };
	const ElfW(Addr) word = o->bloom[h / BITS & (o->nbloom - 1)];

	if (!(word >> h % BITS & word >> (h >> o->shift) % BITS & 1) || !o->nbuckets || o->buckets[h % o->nbuckets] < o->first)
		return NULL;
	for (uint32_t i = o->buckets[h % o->nbuckets];; i++) {
		const ElfW(Sym) *s = &o->symbols[i];
		uint32_t link = o->chain[i - o->first];

		if ((link | 1) == (h | 1) && s->st_shndx != SHN_UNDEF && s->st_value &&
		    !(o->versions && (o->versions[i] & HIDDEN || o->versions[i] == 0)) && !strcmp(o->names + s->st_name, name))
			return s;
		if (link & 1)
			return NULL;
	}
}

extern ElfW(Dyn) _DYNAMIC[] DS_HIDDEN;

/* This library, among those that were loaded; NULL: it is not known. Those before it in the list
 * are never unloaded. */
DS_START static const struct link_map *own_map(void)
{
	static const struct link_map *own DS_START_DATA;
	const struct link_map *m = __atomic_load_n(&own, __ATOMIC_ACQUIRE);

	if (m)
		return m;
	for (m = _r_debug.r_map; m && m->l_ld != _DYNAMIC; m = m->l_next)
		;
	__atomic_store_n(&own, m, __ATOMIC_RELEASE);
	return m;
}

/* A name's hash in GNU's table. */
static inline uint32_t hash_of(const char *name)
{
	uint32_t h = 5381;

	for (; *name; name++)
		h = h * 33 + (unsigned char)*name;
	return h;
}

/* Looks for those functions of which all that must be known is in plain sight. The objects, those
 * behind this library (RTLD_NEXT) or all (RTLD_DEFAULT), stand in the order in which they were
 * loaded and are searched: each is looked at once. */
DS_START static void look(void *in, const char *const name[], void *f[], size_t n)
{
	const struct link_map *m = own_map();
	uint32_t h[DS_NEXT_MOST];
	struct object o;
	size_t left = n;

	for (size_t i = 0; i < n; i++) {
		h[i] = hash_of(name[i]);
	}
	if (m)
		m = in == RTLD_NEXT ? m->l_next : _r_debug.r_map;
	for (; left > 0 && m && object_of(m, &o); m = m->l_next)
		for (size_t i = 0; i < n; i++) {
			const ElfW(Sym) *s = f[i] ? NULL : symbol(&o, name[i], h[i]);

			if (!s)
				continue;
			f[i] = (s->st_info & 15) == STT_FUNC ? (void *)(m->l_addr + s->st_value) : dlsym(in, name[i]);
			left--;
		}
}

/* Finds the instructions of m, which begin in its first segment that can be executed. */
DS_START static bool text_of(const struct link_map *m, struct ds_text *text)
{
	const ElfW(Ehdr) *e = (const void *)m->l_addr;
	const ElfW(Phdr) *p = (const void *)(m->l_addr + e->e_phoff);

	*text = (struct ds_text){.file = m->l_name, .base = (const char *)m->l_addr};
	for (int i = 0; i < e->e_phnum; i++, p++) {
		const char *at = (const char *)m->l_addr + p->p_vaddr;

		if (p->p_type == PT_GNU_EH_FRAME)
			text->frames = at;
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X) || text->begin)
			continue;
		text->begin = at;
		text->end = at + p->p_filesz;
		text->off = (off_t)p->p_offset;
	}
	return text->begin != NULL;
}

DS_START bool ds_libc_functions(const char *names, struct ds_function f[], size_t n, struct ds_text *text)
{
	static const char sign[] = "gnu_get_libc_version";
	const struct link_map *m = own_map();
	struct object o;

	for (m = m ? m->l_next : NULL; m; m = m->l_next)
		if (object_of(m, &o) && symbol(&o, sign, hash_of(sign)))
			break;
	if (!m || !text_of(m, text))
		return false;
	for (size_t i = 0; i < n && *names; i++, names += strlen(names) + 1) {
		const ElfW(Sym) *s = symbol(&o, names, hash_of(names));

		if (s && (s->st_info & 15) == STT_FUNC)
			f[i] = (struct ds_function){(const char *)m->l_addr + s->st_value, s->st_size};
	}
	return true;
}

/* The name that this library was loaded by. */
DS_START static const char *own_name(void)
{
	const struct link_map *m = own_map();

	return m ? m->l_name : "";
}
#else
bool ds_libc_functions(const char *names, struct ds_function f[], size_t n, struct ds_text *text)
{
	(void)names, (void)f, (void)n, (void)text;
	return false;
}

/* The C library's own way is short. */
static void look(void *in, const char *const name[], void *f[], size_t n)
{
	(void)in, (void)name, (void)f, (void)n;
}

/* The name that this library was loaded by. */
static const char *own_name(void)
{
	Dl_info info;

	return dladdr((const void *)(uintptr_t)&own_name, &info) ? info.dli_fname : "";
}
#endif

DS_START const char *ds_own_path(void)
{
	static const char *path DS_START_DATA;
	const char *p = __atomic_load_n(&path, __ATOMIC_ACQUIRE);

	if (!p) {
		p = own_name();
		__atomic_store_n(&path, p, __ATOMIC_RELEASE);
	}
	return *p == '/' ? p : NULL;
}

DS_START void ds_next_all(const char *names, void *to[], size_t n)
{
	const char *name[DS_NEXT_MOST] = {NULL};
	void *f[DS_NEXT_MOST] = {0};

	for (size_t i = 0; i < n; i++, names += strlen(names) + 1)
		name[i] = names;
	look(RTLD_NEXT, name, f, n);
	for (size_t i = 0; i < n; i++) {
		if (!f[i])
			f[i] = dlsym(RTLD_NEXT, name[i]);
		if (f[i])
			__atomic_store_n(&to[i], f[i], __ATOMIC_RELAXED);
	}
}

void *ds_next(const char *name)
{
	void *f = NULL;

	ds_next_all(name, &f, 1);
	return f;
}

DS_START void *ds_first(const char *name)
{
	void *f = NULL;

	look(RTLD_DEFAULT, &name, &f, 1);
	return f ? f : dlsym(RTLD_DEFAULT, name);
}
