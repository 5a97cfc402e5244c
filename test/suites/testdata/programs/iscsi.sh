#!/bin/bash
# A disk of tgtd, read and written by libiscsi: many requests under way.
# needs: tgtd=tgt tgtadm=tgt qemu-img=qemu-utils iscsi-ls=libiscsi-bin /usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so=qemu-block-extra
. "${0%/*}/lib.sh"

serve() {
	random disk $((32 << 20))
	cp disk served
	tgtd -f --iscsi "portal=127.0.0.1:$PORT" &
	until_ok tgtadm --lld iscsi --op new --mode target --tid 1 -T iqn.2026-11.test:d
	tgtadm --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b "$PWD/served"
	tgtadm --lld iscsi --op bind --mode target --tid 1 -I ALL
	: > ready
	trap 'tgtadm --lld iscsi --op delete --mode target --force --tid 1; tgtadm --op delete --mode system; kill -9 %1; exit 0' TERM # tgtd ignores it
	wait
}

check() {
	until_ok test -e ready
	url=iscsi://127.0.0.1:$PORT/iqn.2026-11.test:d/1
	cp disk served.new; cat served.new > served
	iscsi-ls "iscsi://127.0.0.1:$PORT" > said
	grep -q iqn.2026-11.test:d said
	qemu-img convert -f raw -O raw "$url" got
	same got disk
	random other $((32 << 20))
	qemu-img convert -n -W -m 16 -f raw -O raw other "$url"
	same served other
}

run "$@"
