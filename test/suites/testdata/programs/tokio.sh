#!/bin/bash
# Rust's tokio: mio, edges of epoll, two threads.
# needs: /usr/bin/cargo=cargo /usr/share/cargo/registry/tokio-1*=librust-tokio-dev python3=python3
. "${0%/*}/lib.sh"

serve() {
	mkdir -p src .cargo
	printf "[source.crates-io]\nreplace-with = \"debian\"\n[source.debian]\ndirectory = \"/usr/share/cargo/registry\"\n" > .cargo/config.toml
	printf "[package]\nname = \"echo\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ntokio = { version = \"1\", features = [\"net\", \"io-util\", \"rt-multi-thread\", \"macros\"] }\n" > Cargo.toml
	cat > src/main.rs <<-X
	use tokio::io::{AsyncReadExt, AsyncWriteExt};
	#[tokio::main(worker_threads = 2)]
	async fn main() {
	    let l = tokio::net::TcpListener::bind("127.0.0.1:$PORT").await.unwrap();
	    loop {
	        let (c, _) = l.accept().await.unwrap();
	        tokio::spawn(async move {
	            let (mut r, mut w) = c.into_split();
	            let mut b = vec![0u8; 65536];
	            loop {
	                let n = r.read(&mut b).await.unwrap();
	                if n == 0 { return; }
	                w.write_all(&b[..n]).await.unwrap();
	            }
	        });
	    }
	}
	X
	cargo=${TOKIO_ECHO:-}
	[ -n "$cargo" ] || { PATH=/usr/bin CARGO_HOME=$PWD/.cargo /usr/bin/cargo build -q --offline; cargo=target/debug/echo; }
	exec "$cargo"
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
