// Runs ../broker/wire/testdata/messages.golden, whose form is at its top.
#include "harness.h"

#include "conn/broker.h"

#include <arpa/inet.h>

static bool endpoint(const char *text, uint8_t *addr, uint16_t *port)
{
	char buf[64];
	const char *colon = strrchr(text, ':');

	snprintf(buf, sizeof buf, "%.*s", (int)(colon - text), text);
	*port = (uint16_t)atoi(colon + 1);
	if (buf[0] == '[') {
		buf[strlen(buf) - 1] = 0;
		return inet_pton(AF_INET6, buf + 1, addr) == 1;
	}
	memset(addr, 0, 10);
	addr[10] = addr[11] = 0xff;
	return inet_pton(AF_INET, buf, addr + 12) == 1;
}

static size_t hex(uint8_t *to, const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		if (*text > ' ') {
			char two[3] = {text[0], text[1], 0};
			to[n++] = (uint8_t)strtol(two, NULL, 16);
			text++;
		}
	return n;
}

static const char *types[] = {"", "hello", "welcome", "listen", "unlisten", "offer", "withdraw", "claim", "grant", "none", "refused", "flow"};

int main(void)
{
	static char text[1024];
	FILE *f = fopen("../broker/wire/testdata/messages.golden", "r");
	int asked = 0;

	if (!f)
		return 2;
	for (int lineno = 1; fgets(text, sizeof text, f); lineno++) {
		uint8_t want[256], got[DS_MESSAGE];
		struct ds_message m = {0}, back;
		char *save, *w, *equals = strstr(text, " = ");

		text[strcspn(text, "\n")] = 0;
		if (text[0] == '#' || !text[0])
			continue;
		asked++;
		if (strncmp(text, "bad ", 4) == 0) {
			size_t n = hex(want, text + 4);
			CHECK(!ds_message_get(&m, want, n), "line %d", lineno);
			continue;
		}
		*equals = 0;
		w = strtok_r(text, " ", &save);
		if (strcmp(w, "bucket") == 0) {
			struct ds_info info = {0};
			CHECK(endpoint(strtok_r(NULL, " ", &save), info.addr[0], &info.port[0]), "line %d", lineno);
			CHECK(endpoint(strtok_r(NULL, " ", &save), info.addr[1], &info.port[1]), "line %d", lineno);
			CHECK(ds_bucket(&info) == (uint32_t)atoi(equals + 3), "line %d: %u", lineno, ds_bucket(&info));
			continue;
		}
		for (uint8_t i = 1; i <= DS_FLOW; i++)
			if (strcmp(types[i], w) == 0)
				m.type = i;
		m.version = DS_OLDEST;
		while ((w = strtok_r(NULL, " ", &save))) {
			char *v = strchr(w, '=') + 1;
			if (strncmp(w, "id=", 3) == 0)
				m.id = (uint32_t)strtoul(v, NULL, 0);
			else if (strncmp(w, "version=", 8) == 0)
				m.version = (uint8_t)atoi(v);
			else if (strncmp(w, "program=", 8) == 0)
				memcpy(m.program, v, strlen(v));
			else if (strncmp(w, "node=", 5) == 0)
				m.node = (uint16_t)atoi(v);
			else if (strncmp(w, "features=", 9) == 0)
				m.features = (uint32_t)atoi(v);
			else if (strncmp(w, "interface=", 10) == 0)
				m.interface = (uint32_t)atoi(v);
			else if (strncmp(w, "cookie=", 7) == 0)
				m.cookie = strtoull(v, NULL, 10);
			else if (strncmp(w, "reason=", 7) == 0)
				m.reason = (uint8_t)atoi(v);
			else if (strncmp(w, "nonce=", 6) == 0)
				hex(m.info.nonce, v);
			else
				CHECK(endpoint(v, m.info.addr[w[0] == 's'], &m.info.port[w[0] == 's']), "line %d: %s", lineno, w);
		}
		size_t n = hex(want, equals + 3);
		CHECK(ds_message_put(got, &m) == n && memcmp(got, want, n) == 0, "line %d", lineno);
		CHECK(ds_message_get(&back, want, n) && memcmp(&back, &m, sizeof m) == 0, "line %d: decodes to something else", lineno);
		for (size_t i = 0; i < n; i++)
			CHECK(!ds_message_get(&back, want, i), "line %d: cut to %zu", lineno, i);
	}
	fclose(f);
	printf("wire: %d asked, %d failed\n", asked, failures);
	return failures || asked < 25;
}
