// Rules of the preload library: SPEC.md, section 8.
#ifndef EXNDS_RULES_H
#define EXNDS_RULES_H

#include <stdint.h>

// Answers: 0 direct, or a reason of SPEC.md 6.3.
enum { RULES_DIRECT = 0, RULES_TCP = 4, RULES_NOT_INCLUDED = 12 };

// rules_init reads EXNET_RULES, EXNET_LOOPBACK and /proc/self/exe. Malformed
// rules make everything TCP; it says so once on standard error.
void rules_init(void);

// rules_set does what rules_init does from its arguments. It copies nothing:
// text and program stay the caller's and must live on. Returns 0, or -1 if
// text is malformed.
int rules_set(const char *text, const char *program, int loopback);

// rules_program is the name of the program that the rules go by.
const char *rules_program(void);

// rules_decide answers for a connection. side is 0 for the end that called
// connect; addr (IPv4 as ::ffff:a.b.c.d) and port are those of the server.
int rules_decide(int side, const uint8_t addr[16], int port);

// rules_listen answers for a listener bound to addr and port.
int rules_listen(const uint8_t addr[16], int port);

#endif
