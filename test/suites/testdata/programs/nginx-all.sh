#!/bin/bash
# nginx before itself: HTTP/2, gzip, slices of a cache, stream, WebSocket-like upgrades, keep-alive upstreams.
# needs: nginx=nginx-light /usr/lib/nginx/modules/ngx_stream_module.so=libnginx-mod-stream h2load=nghttp2-client curl=curl wrk=wrk
. "${0%/*}/lib.sh"

serve() {
	mkdir -p www
	random www/big $((16 << 20))
	seq 200000 > www/text.txt
	echo small > www/small
	cat > nginx.conf <<-X
	load_module /usr/lib/nginx/modules/ngx_stream_module.so;
	daemon off; user root; worker_processes 2; pid nginx.pid; error_log error.log;
	events { multi_accept on; }
	stream { server { listen 127.0.0.1:8083; proxy_pass 127.0.0.1:$BACK; } }
	http {
		access_log off; keepalive_requests 1000000; types { text/plain txt; }
		client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fc; uwsgi_temp_path uw; scgi_temp_path sc;
		client_max_body_size 0;
		proxy_cache_path cache keys_zone=one:10m;
		upstream up { server 127.0.0.1:$BACK; keepalive 16; }
		server { listen 127.0.0.1:$BACK reuseport; root www; sendfile on; tcp_nopush on;
			location /echo { proxy_pass http://127.0.0.1:$BACK/small; } }
		server { listen 127.0.0.1:$PORT http2; gzip on; gzip_min_length 100; gzip_types text/plain;
			location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; }
			location /cached/ { proxy_cache one; proxy_cache_valid 200 1h; proxy_pass http://up/; proxy_http_version 1.1; proxy_set_header Connection ""; }
		}
		server { listen 127.0.0.1:$OTHER; gzip on; gzip_min_length 100; gzip_types text/plain; proxy_buffering off;
			location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; } }
	}
	X
	exec nginx -p "$PWD" -e error.log -c "$PWD/nginx.conf"
}

check() {
	for f in a b c; do curl -fsS --http2-prior-knowledge -o $f "http://127.0.0.1:$PORT/$([ $f != c ] || echo cached/)big" & done
	wait
	curl -fsS -o d "http://127.0.0.1:$OTHER/big" -o e "http://127.0.0.1:8083/big"
	for f in a b c d e; do same $f www/big; done
	curl -fsS --compressed -o f "http://127.0.0.1:$OTHER/text.txt" -o g "http://127.0.0.1:8083/text.txt"
	curl -fsS --compressed --http2-prior-knowledge -o h "http://127.0.0.1:$PORT/text.txt"
	for f in f g h; do same $f www/text.txt; done
	h2load -n 3000 -c 8 -m 16 "http://127.0.0.1:$PORT/small" > said
	grep -q "3000 succeeded, 0 failed" said
	h2load -n 3000 -c 8 --h1 "http://127.0.0.1:$OTHER/small" > said
	grep -q "3000 succeeded, 0 failed" said
}

load() { h2load -n $((4000 * SIZE)) -c 8 -m 16 "http://127.0.0.1:$PORT/small" > said; grep -q " 0 failed" said; }

run "$@"
