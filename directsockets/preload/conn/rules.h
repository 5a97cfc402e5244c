// Rules of the preload library: SPEC.md, section 8.
#ifndef EXNDS_RULES_H
#define EXNDS_RULES_H

#include <stdbool.h>
#include <stdint.h>

// Answers: 0 direct, or a reason of SPEC.md 6.3.
enum { RULES_DIRECT = 0, RULES_TCP = 4, RULES_NOT_INCLUDED = 12 };

// rules_init reads EXNET_RULES, EXNET_LOOPBACK, EXNET_CLASS and /proc/self/exe.
// Malformed rules make everything TCP, a malformed class is none; it says so once
// on standard error.
void rules_init(void);

// rules_set does what rules_init does from its arguments. It copies nothing: text and program stay
// the caller's and must live on. class is for connections to which no rule gives one. Returns 0, or
// -1 if text is malformed.
int rules_set(const char *text, const char *program, int loopback, int class);

// rules_program is the name of the program that the rules go by.
const char *rules_program(void);

// rules_decide answers for a connection. side is 0 for the end that called
// connect; addr (IPv4 as ::ffff:a.b.c.d) and port are those of the server.
int rules_decide(int side, const uint8_t addr[16], int port);

// rules_class is the class of a connection, 1 to 63, with the same arguments; 0: it has none, or
// what the program gives it.
int rules_class(int side, const uint8_t addr[16], int port);

// rules_classes says whether there is a connection that has a class by the rules.
bool rules_classes(void);

// rules_listen answers for a listener bound to addr and port.
int rules_listen(const uint8_t addr[16], int port);

// rules_udp answers for datagrams: side is 0 for their sender, and addr and port are those to which
// they go; 1 for a receiver, and they are where it is bound, which may be the wildcard address if
// bound says so. reliable: the sender waits for room.
int rules_udp(int side, const uint8_t addr[16], int port, bool bound, bool *reliable);

#endif
