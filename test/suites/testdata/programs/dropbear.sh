#!/bin/bash
# An ssh server that forks, with PuTTY's clients and its own: files both ways, a port forwarded, two sessions on a connection.
# needs: dropbear=dropbear-bin dropbearkey=dropbear-bin dbclient=dropbear-bin plink=putty-tools puttygen=putty-tools psftp=putty-tools /usr/lib/openssh/sftp-server=openssh-sftp-server
. "${0%/*}/lib.sh"

serve() {
	random up $((16 << 20))
	mkdir -p .ssh; chmod 700 .ssh; chmod 755 .
	dropbearkey -t ed25519 -f host > host.pub
	dropbearkey -t ed25519 -f key | grep ^ssh > .ssh/authorized_keys
	puttygen -t ed25519 -o key.ppk --new-passphrase /dev/null
	puttygen -O public-openssh key.ppk >> .ssh/authorized_keys
	chmod 600 .ssh/authorized_keys
	# HOME of root is that of the system: a bind mount of ours in its place.
	mount --bind .ssh ~root/.ssh 2> /dev/null || { mkdir -p ~root/.ssh && mount --bind .ssh ~root/.ssh; }
	exec dropbear -F -E -r host -p "127.0.0.1:$PORT" -P ''
}

key() { grep -o 'SHA256:[^ ]*' host.pub; }

check() {
	pl=(-batch -hostkey "$(key)" -i key.ppk -P "$PORT")
	plink "${pl[@]}" root@127.0.0.1 "cat > $PWD/got" < up
	same got up
	plink "${pl[@]}" root@127.0.0.1 "cat $PWD/up" > got2
	same got2 up
	dbclient -y -y -i key -p "$PORT" root@127.0.0.1 "cat $PWD/up" > got3
	same got3 up
	printf 'put %s %s\nget %s %s\n' up "$PWD/got4" "$PWD/up" got5 > batch
	psftp "${pl[@]}" -b batch root@127.0.0.1
	same got4 up
	same got5 up
	dbclient -y -y -i key -p "$PORT" -N -L "$OTHER:127.0.0.1:$PORT" root@127.0.0.1 &
	forward=$!
	listens "$OTHER"
	for i in 1 2 3; do dbclient -y -y -i key -p "$OTHER" root@127.0.0.1 "cat $PWD/up" > "through$i" & done
	wait %2 %3 %4
	for i in 1 2 3; do same "through$i" up; done
	kill "$forward"
}

run "$@"
