// Runs testdata/rules.golden against rules.c. Usage: rules_test FILE
#include "conn/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[65536];
static int failures, asked;

static void ask(char *line, int lineno)
{
	char program[256], role[4] = "s", hex[64], answer[4];
	int port, loopback, class = 0, listen = strncmp(line, "listen ", 7) == 0;
	uint8_t addr[16];
	int n = listen ? sscanf(line, "listen %255s %63s %d %d -> %3s", program, hex, &port, &loopback, answer)
		       : sscanf(line, "ask %255s %3s %63s %d %d -> %3s %d", program, role, hex, &port, &loopback, answer, &class);

	if (n < (listen ? 5 : 6) || strlen(hex) != 32) {
		printf("line %d: cannot read it\n", lineno);
		failures++;
		return;
	}
	for (int i = 0; i < 16; i++) {
		char b[3] = {hex[2 * i], hex[2 * i + 1], 0};
		addr[i] = (uint8_t)strtol(b, NULL, 16);
	}
	rules_set(text, strcmp(program, "-") == 0 ? "" : program, loopback, 0);
	int got = listen ? rules_listen(addr, port) : rules_decide(role[0] == 's', addr, port);
	char c = got == RULES_DIRECT ? 'd' : got == RULES_TCP ? 't' : 'n';
	asked++;
	if (c != answer[0]) {
		printf("line %d: got %c, want %s: %s", lineno, c, answer, line);
		failures++;
	}
	int is = listen ? 0 : rules_class(role[0] == 's', addr, port);
	if (is != class || (is && !rules_classes())) {
		printf("line %d: class %d, want %d\n", lineno, is, class);
		failures++;
	}
}

static void ask_udp(const char *line, int lineno)
{
	char program[256], role[4], hex[64], answer[4];
	int port, loopback;
	bool reliable;
	uint8_t addr[16];

	if (sscanf(line, "udp %255s %3s %63s %d %d -> %3s", program, role, hex, &port, &loopback, answer) != 6 || strlen(hex) != 32) {
		printf("line %d: cannot read it\n", lineno);
		failures++;
		return;
	}
	for (int i = 0; i < 16; i++) {
		char b[3] = {hex[2 * i], hex[2 * i + 1], 0};
		addr[i] = (uint8_t)strtol(b, NULL, 16);
	}
	rules_set(text, program, loopback, 0);
	int got = rules_udp(role[0] == 's', addr, port, false, &reliable);
	char c = got == RULES_DIRECT ? 'd' : got == RULES_TCP ? 't' : 'n';
	if (c == 'd' && reliable)
		c = 'r';
	asked++;
	if (c != answer[0]) {
		printf("line %d: got %c, want %s: %s", lineno, c, answer, line);
		failures++;
	}
}

int main(int argc, char **argv)
{
	static char line[65536];
	FILE *f = argc > 1 ? fopen(argv[1], "r") : NULL;
	int lineno = 0;

	if (!f)
		return 2;
	while (fgets(line, sizeof line, f)) {
		lineno++;
		if (strncmp(line, "rules ", 6) == 0) {
			snprintf(text, sizeof text, "%s", line + 6);
			text[strcspn(text, "\n")] = 0;
		} else if (strncmp(line, "bad", 3) == 0) {
			asked++;
			if (rules_set(text, "x", 0, 0) != -1) {
				printf("line %d: accepted: %s\n", lineno, text);
				failures++;
			}
		} else if (line[0] == 'u') {
			ask_udp(line, lineno);
		} else if (line[0] == 'a' || line[0] == 'l') {
			ask(line, lineno);
		}
	}
	printf("%d asked, %d failed\n", asked, failures);
	return failures || asked < 40;
}
