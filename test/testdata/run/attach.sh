#!/bin/bash
# usage: attach.sh BIN PEER PIE WAITS: a static server, and a client of Go's own code alone that a dynamic linker loads, in
# containers of their own, which have what the device exnet.io/direct=all gives and nothing else, and an agent. Prints
# "direct" when a connection of both is direct, "loaded" if the linker has given the client the library as well, and what
# status says of a program that cannot be attached to. Run it in namespaces of its own (net, mount, pid).
set -euo pipefail
bin=$1 peer=$2 pie=$3 waits=$4
. "$(dirname "$0")/spaces.sh"
trap 'kill -KILL $(jobs -p) 2>/dev/null || true; wait; umount "$dir"/*/run/exn/ds "$dir"/*/usr/lib/exnet/*{,/*}/*.so 2>/dev/null || true; rm -rf "$dir"' EXIT

eventually() { for _ in $(seq 600); do if "$@" >"$dir/out" 2>&1; then return; fi; sleep .1; done; echo "never: $*" >&2; cat "$dir"/out "$dir"/agent "$dir"/said.* >&2; "$bin/exn-tun" status --sockets --all >&2; exit 1; }
"$bin/exn-tun" agent >"$dir/agent" 2>&1 &
eventually test -e /run/exn/ds/agent.sock
# The device: its variables, and its mounts.
"$bin/exn-tun" cdi >"$dir/cdi"
python3 - "$dir/cdi" >"$dir/device" <<'END'
import json, shlex, sys
spec = json.load(open(sys.argv[1]))
edits = [spec["containerEdits"], next(d for d in spec["devices"] if d["name"] == "all")["containerEdits"]]
print("env=(" + " ".join(shlex.quote(v) for e in edits for v in e.get("env", [])) + ")")
print("mounts=(" + " ".join(shlex.quote(m["hostPath"] + ":" + m["containerPath"]) for e in edits for m in e.get("mounts", [])) + ")")
END
. "$dir/device"
server=$peer client=$pie
# contain NAME ARGUMENTS: runs the program of that name with them in a root of its own, which has a C library.
contain() {
    local name=$1 root=$dir/$1 m
    mkdir -p "$root/proc"
    cp "${!name}" "$root/peer"
    for m in "${mounts[@]}"; do
        if [ -d "${m%%:*}" ]; then mkdir -p "$root${m#*:}"; else mkdir -p "$(dirname "$root${m#*:}")"; : >"$root${m#*:}"; fi
        mount --bind "${m%%:*}" "$root${m#*:}"
        mount -o remount,ro,bind "$root${m#*:}"
    done
    ldd "$(command -v ip)" | grep -o '/[^ ]*/\(ld-linux-x86-64\.so\.2\|libc\.so\.6\)' | while read -r m; do install -D "$m" "$root$m"; done
    exec ip netns exec "$name" unshare -mpf --kill-child --mount-proc="$root/proc" env -i "${env[@]}" unshare -R "$root" /peer "${@:2}" 2> >(grep -v '^ERROR: ld.so' >&2)
}
(contain server server 10.9.0.1:7000) >"$dir/said.server" 2>&1 &
eventually sh -c 'ip netns exec server ss -Hltn | grep -q 7000'
(contain client client 10.9.0.1:7000) >"$dir/said.client" 2>&1 &
direct() {
    "$bin/exn-tun" status --sockets --json | python3 -c '
import json, sys
all = [s for s in json.load(sys.stdin) if s.get("direct") and s["direct"]["received"]["bytes"] > 1 << 20]
sys.exit(0 if len(all) == 2 else 1)'
}
eventually direct
[ ! -s "$dir/said.client" ] && [ ! -s "$dir/said.server" ]
echo direct
for pid in $(ip netns pids client); do if grep -q 'libexnds\.so' "/proc/$pid/maps"; then echo loaded; fi; done
ip netns exec server env EXNET=1 "$waits" &
eventually sh -c "'$bin/exn-tun' status | grep 'stays on TCP'"
cat "$dir/out"
