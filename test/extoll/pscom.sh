# pscom.sh is a part of run.sh: pscom of ParaStation, whose plugins extoll and velo use the NIC.

# plugin NAME: the environment that has pscom use one plugin and no other. The plugin velo keeps registrations of
# memory that the program has freed, so free must not give memory back to the kernel: what comes to the same address
# later would not be what is registered. pscom's own allocator saw to that, with a hook that glibc 2.34 removed.
plugin() {
	local extoll=0 velo=0 tcp=0
	printf -v "$1" 2
	echo "PSP_EXTOLL=$extoll PSP_VELO=$velo PSP_TCP=$tcp PSP_SHM=0 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4000000000"
}

# pair NAME PROGRAM ARGS...: PROGRAM as the server at node 1, and with ARGS as the client at node 2.
# Its output is in $work/client.out and $work/server.out.
pair() {
	local environment program=$2 status=0
	environment=$(plugin "$1")
	shift 2
	# shellcheck disable=SC2086 # several words
	on 1 env $environment timeout 30 "$program" -1 -l 7100 </dev/null >"$work/server.out" 2>&1 &
	local server=$!
	until_says "$work/server.out" 'Waiting for client' || status=1
	# shellcheck disable=SC2086
	on 2 env $environment timeout 25 "$program" "$@" -c 10.2.9.1:7100 </dev/null >"$work/client.out" 2>&1 || status=$?
	wait $server || status=$?
	# pscom_pp says what was wrong and goes on to a status of 0.
	! grep -qE 'Corrupted|Error in communication' "$work/client.out" || status=1
	return $status
}

# via says whether the last pair went by a plugin.
via() { grep -q "via $1$" "$work/server.out"; }

# at64 prints the time of the last ping-pong's 64 bytes, in us half round trip.
at64() { awk '$1 == 64 {print $3}' "$work/client.out"; }

# pscom_pingpong verifies what it sends, in all sizes, and then takes the time of 64 bytes.
pscom_pingpong() {
	if ! pair "$1" "$build/bin/pscom_pp" -V -n 16 --maxsize=1048576; then
		say "pscom_pp, $1" failed "$(tail -n1 "$work/client.out")"
	elif ! via "$1"; then
		say "pscom_pp, $1" failed 'it went by another plugin'
	elif ! pair "$1" "$build/bin/pscom_pp" -n 3000 -t 500 --minsize=64 --maxsize=64; then
		say "pscom_pp, $1" failed "$(tail -n1 "$work/client.out")"
	else
		say "pscom_pp, $1" passed "0 to 1 MiB verified; 64 bytes: $(at64) us half round trip"
	fi
}

# velo_sent prints how many VELO messages the ports of node 2 have sent so far.
velo_sent() { "$work/exn-tun" registers 2 --dir "$work/fabric" | awk '/ports.velo_sent/ {print $3}'; }

# velo_messages counts the messages of the plugin velo for some sizes: with pscom's header of 12 bytes
# ceil((size + 12) / MTU) of them. The MTU is pscom's, 64 for older hardware and 120 today.
velo_messages() {
	local size mtu want before after
	mtu=$(sed -n 's/^#define PSEX_VELO2_MTU *\([0-9]*\).*/\1/p' "$checkout/lib/pscom4velo/psextoll.h")
	for size in 32 64 128 256 512; do
		want=$(((size + 12 + mtu - 1) / mtu))
		before=$(velo_sent)
		pair velo "$build/bin/pscom_pp" -n 10 -t 60000 --minsize="$size" --maxsize="$size" || break
		after=$(velo_sent)
		pair velo "$build/bin/pscom_pp" -n 110 -t 60000 --minsize="$size" --maxsize="$size" || break
		# Whatever else is sent is the same in both.
		if [ $(($(velo_sent) - after - (after - before))) -ne $((want * 100)) ]; then
			say "velo, $size bytes" failed "$(($(velo_sent) - after - (after - before))) messages for 100, want $want for each"
		else
			say "velo, $size bytes" passed "$want messages of at most $mtu bytes"
		fi
	done
}

# lowlevel NAME ARGS...: a program of pscom's that uses the libraries without pscom.
lowlevel() {
	local status=0 program=$build/bin/extoll/$1
	on 1 env LD_PRELOAD="$work/keep.so" timeout 25 "$program" "${@:2}" </dev/null >"$work/server.out" 2>&1 &
	local server=$!
	listens 5534 5535 || status=1
	on 2 env LD_PRELOAD="$work/keep.so" timeout 20 "$program" "${@:2}" 10.2.9.1 </dev/null >"$work/client.out" 2>&1 || status=$?
	wait $server || [ $? = 130 ] || status=1 # the client ends it by SIGINT
	if [ $status -eq 0 ]; then say "$1" passed "${*:2}"; else say "$1" failed "status $status: $(tail -n1 "$work/client.out")"; fi
}

# listens waits until a program at node 1 listens at one of two TCP ports.
listens() {
	for _ in $(seq 100); do
		ip netns exec "${namespaces[0]}" ss -Hltn "sport = :$1 or sport = :$2" | grep -q . && return
		sleep 0.1
	done
	return 1
}

pscom() {
	local build=$work/pscom name
	command -v cmake >/dev/null || skip 'pscom wants cmake'
	mkdir -p "$work/extoll"
	ln -sfn "$here/ports/lib/include" "$work/extoll/include"
	ln -sfn "$work/lib" "$work/extoll/lib"
	# Some of the programs use an argument that popt has freed: popt frees nothing here.
	echo 'void *poptFreeContext(void *c) { (void)c; return 0; }' | cc -shared -fPIC -x c - -o "$work/keep.so"
	if ! { cd "$work" && cmake -S "$checkout" -B "$build" -DCMAKE_BUILD_TYPE=Release -DEXTOLL_HOME="$work/extoll" -DOFED_ENABLED=OFF \
		-DUCP_ENABLED=OFF && make -C "$build" -j2; } >"$work/build.log" 2>&1 || ! grep -q 'EXTOLL_ENABLED: *ON' "$work/build.log"; then
		say pscom failed "not built: $(grep -m1 -i error "$work/build.log")"
		return
	fi
	export LD_LIBRARY_PATH="$work/lib:$build/lib/pscom" PSP_PLUGINDIR="$build/lib" PSP_DEBUG=1
	for name in velo extoll tcp; do
		pscom_pingpong $name
	done
	velo_messages
	for name in velo extoll; do
		if pair $name "$build/bin/pscom_rma_get" -V -n 1048576 && via $name; then
			say "pscom_rma_get, $name" passed '0 to 1 MiB verified'
		else
			say "pscom_rma_get, $name" failed "$(tail -n1 "$work/client.out")"
		fi
	done
	lowlevel extoll_one_message
	lowlevel extoll_pp_velo -n 100 -t 50 --maxsize=4096
	lowlevel extoll_pp_lowlevel -n 100 -t 50 --maxsize=65536
}
