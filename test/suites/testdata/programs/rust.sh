#!/bin/bash
# Rust's standard library: a thread for each connection.
# needs: rustc=rustc python3=python3
. "${0%/*}/lib.sh"

serve() {
	cat > echo.rs <<-X
	use std::io::{Read, Write};
	fn main() {
	    for c in std::net::TcpListener::bind("127.0.0.1:$PORT").unwrap().incoming() {
	        std::thread::spawn(move || {
	            let mut c = c.unwrap();
	            let mut b = [0u8; 65536];
	            loop {
	                let n = c.read(&mut b).unwrap();
	                if n == 0 { return; }
	                c.write_all(&b[..n]).unwrap();
	            }
	        });
	    }
	}
	X
	/usr/bin/rustc -O -o echo echo.rs
	exec ./echo
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
