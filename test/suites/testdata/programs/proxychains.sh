#!/bin/bash
# Another preloaded library, which replaces connect: curl by way of a SOCKS server.
# needs: proxychains4=proxychains4 ss-local=shadowsocks-libev ss-server=shadowsocks-libev nginx=nginx-light curl=curl eatmydata=eatmydata
. "${0%/*}/lib.sh"

serve() {
	mkdir -p www
	random www/big $((16 << 20))
	cat > nginx.conf <<-X
	daemon off; user root; pid nginx.pid; error_log error.log; events {}
	http { access_log off; server { listen 127.0.0.1:$OTHER; root www; sendfile on; client_body_temp_path $PWD; } }
	X
	nginx -p "$PWD" -e error.log -c "$PWD/nginx.conf" &
	ss-server -s 127.0.0.1 -p "$BACK" -k word -m aes-128-gcm &
	ss-local -s 127.0.0.1 -p "$BACK" -b 127.0.0.1 -l "$PORT" -k word -m aes-128-gcm &
	servers
}

check() {
	listens "$OTHER"
	listens "$BACK"
	printf 'strict_chain\n[ProxyList]\nsocks5 127.0.0.1 %s\n' "$PORT" > chain.conf
	for i in 1 2 3; do
		proxychains4 -q -f chain.conf curl -fsS -o "got$i" "http://127.0.0.1:$OTHER/big"
		same "got$i" www/big
	done
	proxychains4 -q -f chain.conf eatmydata curl -fsS -o got4 "http://127.0.0.1:$OTHER/big"
	same got4 www/big
}

run "$@"
