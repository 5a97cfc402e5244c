#!/bin/bash
# libev: curl, SOCKS, a local and a far end that encrypt, and nginx.
# needs: ss-server=shadowsocks-libev ss-local=shadowsocks-libev nginx=nginx-light curl=curl
. "${0%/*}/lib.sh"

serve() {
	mkdir -p www
	random www/big $((16 << 20))
	cat > nginx.conf <<-X
	daemon off; user root; pid nginx.pid; error_log error.log; events {}
	http { access_log off; server { listen 127.0.0.1:$OTHER; root www; sendfile on; client_body_temp_path $PWD; } }
	X
	nginx -p "$PWD" -e error.log -c "$PWD/nginx.conf" &
	ss-server -s 127.0.0.1 -p "$BACK" -k word -m chacha20-ietf-poly1305 &
	ss-local -s 127.0.0.1 -p "$BACK" -b 127.0.0.1 -l "$PORT" -k word -m chacha20-ietf-poly1305 &
	servers
}

check() {
	listens "$OTHER"
	listens "$BACK"
	for i in 1 2 3 4; do curl -fsS --socks5 "127.0.0.1:$PORT" -o "got$i" "http://127.0.0.1:$OTHER/big" & done
	wait
	for i in 1 2 3 4; do same "got$i" www/big; done
}

run "$@"
