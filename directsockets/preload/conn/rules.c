// Evaluation of EXNET_RULES. No memory is allocated: the text is read again
// for every connection that comes as far as a decision, which is once each.
#include "conn/env.h"
#include "conn/rules.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { FIELDS = 7, MAX_FIELDS = 9, MAX_CLASS = 63 };

struct rule {
	const char *program;
	int programlen;
	char action, role;
	uint8_t addr[16];
	int bits, low, high;
	int class; // -1: it says none
	char proto; // t TCP, u UDP, r UDP whose sender waits, * both
};

static struct {
	const char *text;
	char program[256];
	char invoked[256]; // the name by which it was executed: of a symbolic link, or a script
	int loopback;
	int class; // of connections to which no rule gives one; 0: none
	bool classes; // a rule has one
	int off; // malformed: everything is TCP
} rules;

// field returns the length of the field at *p, which ends at a blank, ';' or
// the end of the text.
static int field(const char *p)
{
	int n = 0;
	while (p[n] != ' ' && p[n] != ';' && p[n] != 0)
		n++;
	return n;
}

// number reads up to 6 decimal digits; -1 if it is none or exceeds high.
static int number(const char *p, int n, int high)
{
	int v = 0;
	if (n < 1 || n > 6)
		return -1;
	for (int i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return -1;
		v = v * 10 + (p[i] - '0');
	}
	return v > high ? -1 : v;
}

/* The value of a hexadecimal digit; -1: c is none. No lock. */
static int hexdigit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

// split finds the fields of the rule at *s and moves *s to its end, a ';' or the
// end of the text. Returns how many there are; 0: too many, or an empty one.
static int split(const char **s, const char *f[MAX_FIELDS], int n[MAX_FIELDS])
{
	int fields = 0;

	for (;; ++*s) {
		if (fields == MAX_FIELDS || (n[fields] = field(*s)) == 0)
			return 0;
		f[fields] = *s;
		*s += n[fields++];
		if (**s != ' ')
			return fields;
	}
}

// next parses the rule at *p and moves *p past it and its ';'. Returns 1 for
// a rule, 0 at the end of the text, -1 if it is malformed.
static int next(const char **p, struct rule *r)
{
	const char *f[MAX_FIELDS];
	int n[MAX_FIELDS], fields;
	const char *s = *p;

	if (*s == 0)
		return 0;
	fields = split(&s, f, n);
	if (fields < FIELDS || (*s == ';' && *++s == 0))
		return -1;
	for (const char *c = *p; c < s; c++)
		if (*c < ' ' || *c > '~')
			return -1;
	*p = s;

	r->action = f[0][0];
	r->role = f[2][0];
	if (n[0] != 1 || (r->action != 'd' && r->action != 't'))
		return -1;
	if (n[2] != 1 || (r->role != 'c' && r->role != 's' && r->role != '*'))
		return -1;
	r->program = f[1];
	r->programlen = n[1];
	if (n[3] != 32)
		return -1;
	for (int i = 0; i < 16; i++) {
		int hi = hexdigit(f[3][2 * i]), lo = hexdigit(f[3][2 * i + 1]);
		if (hi < 0 || lo < 0)
			return -1;
		r->addr[i] = (uint8_t)(hi << 4 | lo);
	}
	r->bits = number(f[4], n[4], 128);
	r->low = number(f[5], n[5], 65535);
	r->high = number(f[6], n[6], 65535);
	r->class = fields > FIELDS ? number(f[FIELDS], n[FIELDS], MAX_CLASS) : -1;
	if (fields > FIELDS && r->class < 0 && (fields < MAX_FIELDS || n[FIELDS] != 1 || f[FIELDS][0] != '-'))
		return -1;
	r->proto = fields == MAX_FIELDS ? f[FIELDS + 1][0] : '*';
	if (fields == MAX_FIELDS && (n[FIELDS + 1] != 1 || (r->proto != 't' && r->proto != 'u' && r->proto != 'r' && r->proto != '*')))
		return -1;
	if (r->bits < 0 || r->low < 0 || r->high < 0 || r->low > r->high)
		return -1;
	return 1;
}

// match says whether name matches the pattern of n characters. A star is
// retried from its last place only, so it takes n * strlen(name) at most.
static int match(const char *pat, int n, const char *name)
{
	int i = 0, star = -1;
	const char *back = NULL;

	while (*name) {
		if (i < n && pat[i] == '*') {
			star = i++;
			back = name;
		} else if (i < n && (pat[i] == '?' || pat[i] == *name)) {
			i++;
			name++;
		} else if (star >= 0) {
			i = star + 1;
			name = ++back;
		} else {
			return 0;
		}
	}
	while (i < n && pat[i] == '*')
		i++;
	return i == n;
}

/* Do the addresses a and b share their first bits? No lock. */
static int prefix(const uint8_t *a, const uint8_t *b, int bits)
{
	int whole = bits / 8, rest = bits % 8;

	if (memcmp(a, b, (size_t)whole) != 0)
		return 0;
	return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};

/* Is a, 16 bytes, an address of the loopback interface? No lock. */
static int is_loopback(const uint8_t *a)
{
	static const uint8_t one[16] = {[15] = 1};

	if (memcmp(a, v4, 12) == 0)
		return a[12] == 127;
	return memcmp(a, one, 16) == 0;
}

/* Is a, 16 bytes, the address that means any? No lock. */
static int is_wildcard(const uint8_t *a)
{
	static const uint8_t zero[16];

	return memcmp(a, zero, 16) == 0 || (memcmp(a, v4, 12) == 0 && memcmp(a + 12, zero, 4) == 0);
}

/* What addr is: one address, or the wildcard, for which only a rule for all addresses may say
 * TCP. */
enum { ONE, WILDCARD };

/* Finds the rule that decides for a role (c or s) at an address and port, of TCP or UDP. 0: there
 * is none. No lock: the rules do not change once they are set. */
static int find(bool udp, char role, const uint8_t *addr, int port, int wildcard, struct rule *r)
{
	const char *p = rules.text;

	while (p && next(&p, r) == 1) {
		if (r->proto != '*' && (r->proto != 't') != udp)
			continue;
		if (r->role != '*' && r->role != role)
			continue;
		if (port < r->low || port > r->high)
			continue;
		if (!match(r->program, r->programlen, rules.program) && !match(r->program, r->programlen, rules.invoked))
			continue;
		if (wildcard && r->bits > 0) {
			if (r->action == 't')
				continue;
		} else if (!prefix(addr, r->addr, r->bits)) {
			continue;
		}
		return 1;
	}
	return 0;
}

/* Returns RULES_DIRECT, RULES_TCP or RULES_NOT_INCLUDED. */
static int decide(char role, const uint8_t *addr, int port, int wildcard)
{
	struct rule r;

	if (rules.off)
		return RULES_TCP;
	if (find(false, role, addr, port, wildcard, &r))
		return r.action == 'd' ? RULES_DIRECT : RULES_TCP;
	return !rules.loopback && is_loopback(addr) ? RULES_NOT_INCLUDED : RULES_DIRECT;
}

int rules_udp(int side, const uint8_t addr[16], int port, bool bound, bool *reliable)
{
	struct rule r;
	int wildcard = bound && is_wildcard(addr) ? WILDCARD : ONE;

	*reliable = false;
	if (rules.off)
		return RULES_TCP;
	if (!find(true, side == 0 ? 'c' : 's', addr, port, wildcard, &r))
		return !rules.loopback && is_loopback(addr) ? RULES_NOT_INCLUDED : RULES_DIRECT;
	*reliable = r.proto == 'r';
	return r.action == 'd' ? RULES_DIRECT : RULES_TCP;
}

int rules_decide(int side, const uint8_t addr[16], int port)
{
	return decide(side == 0 ? 'c' : 's', addr, port, ONE);
}

int rules_class(int side, const uint8_t addr[16], int port)
{
	struct rule r;

	if (rules.off)
		return 0;
	return find(false, side == 0 ? 'c' : 's', addr, port, ONE, &r) && r.class >= 0 ? r.class : rules.class;
}

bool rules_classes(void) { return rules.classes; }

int rules_listen(const uint8_t addr[16], int port)
{
	return decide('s', addr, port, is_wildcard(addr) ? WILDCARD : ONE);
}

int rules_set(const char *text, const char *program, int loopback, int class)
{
	struct rule r;
	size_t n = strlen(program);
	int rc = 1;

	if (n >= sizeof rules.program)
		n = sizeof rules.program - 1;
	memcpy(rules.program, program, n);
	rules.program[n] = 0;
	rules.text = text;
	rules.loopback = loopback;
	rules.class = class;
	rules.classes = class > 0;
	for (const char *p = text; p && rc == 1;) {
		rc = next(&p, &r);
		rules.classes |= rc == 1 && r.class > 0;
	}
	rules.off = rc < 0;
	return rc < 0 ? -1 : 0;
}

const char *rules_program(void) { return rules.invoked[0] ? rules.invoked : rules.program; }

/* The last part of path. No lock. */
static const char *base(const char *path)
{
	const char *b = path;

	for (const char *c = path; *c; c++)
		if (*c == '/')
			b = c + 1;
	return b;
}

/* Writes text to standard error. */
static void complain(const char *text)
{
	if (REAL(write, 2, text, strlen(text)) < 0)
		return;
}

/* The class that the environment gives to all connections; 0: none. */
static int class_of_all(void)
{
	const char *text = ds_env("EXNET_CLASS");
	int class = text && *text ? number(text, (int)strnlen(text, 7), MAX_CLASS) : 0;

	if (class < 0)
		complain("exnds: EXNET_CLASS is malformed, no connection has a class by it: use a number from 0 to 63\n");
	return class < 0 ? 0 : class;
}

void rules_init(void)
{
	static char text[16384]; // a copy: the program may change its environment
	char exe[4096];
	const char *env = ds_env("EXNET_RULES"), *loop = ds_env("EXNET_LOOPBACK");
	// Not argv[0], which programs overwrite.
	const char *invoked = (const char *)getauxval(AT_EXECFN);
	ssize_t n = kernel_readlink("/proc/self/exe", exe, sizeof exe - 1);

	exe[n > 0 ? n : 0] = 0;
	if (invoked)
		strncpy(rules.invoked, base(invoked), sizeof rules.invoked - 1);
	size_t len = env ? strlen(env) : 0;
	int bad = len >= sizeof text;
	if (env && !bad)
		memcpy(text, env, len + 1);
	if (rules_set(text, base(exe), loop && strcmp(loop, "1") == 0, class_of_all()) != 0 || bad) {
		complain("exnds: EXNET_RULES is malformed, everything stays on TCP: start the program with exn-run --rules\n");
		rules.off = 1;
	}
}
