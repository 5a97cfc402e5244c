#!/usr/bin/env bash
# rootfs.sh DIR makes a root file system of this host's redis, nginx, curl, bash, and a few programs of coreutils and grep.
set -euo pipefail
dir=$1
mkdir -p "$dir"/{bin,dev,etc,proc,run,sys,tmp,usr/lib/exnet,var/lib/nginx,var/log/nginx}
copy() { [ -e "$dir$1" ] || { mkdir -p "$dir${1%/*}" && cp -L "$1" "$dir$1"; }; }
for program in bash cat cp grep ls rm rmdir sleep timeout redis-server redis-cli redis-benchmark nginx curl; do
	path=$(PATH=$PATH:/usr/sbin:/sbin command -v $program)
	copy "$path"
	[ "$path" = "/bin/$program" ] || ln -sf "$path" "$dir/bin/$program"
	for library in $(ldd "$path" | grep -o '/[^ ]*'); do copy "$library"; done
done
ln -sf bash "$dir/bin/sh"
for library in libnss_files.so.2 libgcc_s.so.1; do copy "/lib/$(uname -m)-linux-gnu/$library"; done
echo 'root:x:0:0::/:/bin/bash' >"$dir/etc/passwd"
echo 'root:x:0:' >"$dir/etc/group"
head -c 1M /dev/urandom >"$dir/var/data"
cat >"$dir/etc/nginx.conf" <<'END'
user root;
daemon off;
error_log /tmp/error.log;
pid /tmp/nginx.pid;
events {}
http { access_log off; server { listen 80; root /var; } }
END
