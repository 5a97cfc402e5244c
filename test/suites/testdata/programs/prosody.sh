#!/bin/bash
# Lua: an XMPP server, two users who send to each other.
# needs: prosody=prosody python3=python3
. "${0%/*}/lib.sh"

serve() {
	mkdir -p data; chmod 777 . data
	cat > prosody.cfg.lua <<-X
	daemonize = false
	run_as_root = true
	data_path = "$PWD/data"
	pidfile = "$PWD/pid"
	log = { error = "*console" }
	interfaces = { "127.0.0.1" }
	c2s_ports = { $PORT }
	s2s_ports = {}
	modules_enabled = { "roster", "saslauth", "disco", "register" }
	modules_disabled = { "s2s", "tls", "offline" }
	network_backend = "epoll"
	c2s_require_encryption = false
	allow_unencrypted_plain_auth = true
	c2s_stanza_size_limit = 10000000
	limits = { }
	authentication = "internal_plain"
	VirtualHost "localhost"
	X
	for u in a b; do mkdir -p data/localhost/accounts; echo 'return { ["password"] = "x" };' > data/localhost/accounts/$u.dat; done
	exec prosody -F --config "$PWD/prosody.cfg.lua"
}

check() { python3 "${0%/*}/prosody.py" "$PORT" $((300 * SIZE)); }

run "$@"
