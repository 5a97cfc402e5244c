#!/bin/bash
# MariaDB: a server, a replica of it, a table copied by a dump.
# needs: mariadbd=mariadb-server mariadb=mariadb-client mariadb-dump=mariadb-client sysbench=sysbench
. "${0%/*}/lib.sh"

serve() {
	chmod 777 .
	for n in 1 2; do
		port=$PORT; [ $n = 1 ] || port=$BACK
		mariadb-install-db --no-defaults --datadir="$PWD/d$n" --user=mysql --auth-root-authentication-method=normal --skip-test-db > /dev/null
		mariadbd --no-defaults --user=mysql --datadir="$PWD/d$n" --socket="$PWD/s$n" --bind-address=127.0.0.1 --port="$port" --pid-file="$PWD/pid$n" \
			--server-id=$n --log-bin=bin --binlog-format=ROW --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=64M --max-allowed-packet=64M &
	done
	servers
}

q() { port=$1; shift; mariadb --no-defaults -h 127.0.0.1 --protocol=tcp -P "$port" -u root -N --max-allowed-packet=64M -e "$*"; }
equals() { a=$(q "$PORT" 'checksum table t.sbtest1, t.blobs') b=$(q "$BACK" 'checksum table t.sbtest1, t.blobs'); echo "$a $b"; [ "$a" = "$b" ]; }

check() {
	listens "$BACK"
	until_ok q "$PORT" 'select 1'
	until_ok q "$BACK" 'select 1'
	q "$BACK" "change master to master_host='127.0.0.1', master_port=$PORT, master_user='root', master_log_file='bin.000001', master_log_pos=4; start slave" || true
	q "$PORT" 'drop database if exists t; create database t; create table t.blobs (n int primary key auto_increment, b longblob)'
	sb=(sysbench oltp_read_write --mysql-host=127.0.0.1 --mysql-port="$PORT" --mysql-user=root --mysql-db=t --table-size=5000 --mysql-ssl=off --db-ps-mode=disable)
	"${sb[@]}" prepare > /dev/null
	for i in 1 2 3 4; do
		head -c 4000000 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > hex
		{ printf "insert into t.blobs (b) values (x'"; cat hex; printf "')"; } | mariadb --no-defaults -h 127.0.0.1 --protocol=tcp -P "$PORT" -u root --max-allowed-packet=64M
	done
	[ "$(q "$PORT" 'select lower(hex(b)) from t.blobs order by n desc limit 1')" = "$(cat hex)" ]
	"${sb[@]}" --threads=4 --events=300 --time=0 run > /dev/null
	until_ok equals
	mariadb-dump --no-defaults -h 127.0.0.1 --protocol=tcp -P "$BACK" -u root --max-allowed-packet=64M --hex-blob t > dump.sql
	q "$PORT" 'drop database if exists u; create database u'
	mariadb --no-defaults -h 127.0.0.1 --protocol=tcp -P "$PORT" -u root --max-allowed-packet=64M u < dump.sql
	equal "$(q "$PORT" 'checksum table u.blobs' | cut -f2)" "$(q "$PORT" 'checksum table t.blobs' | cut -f2)"
}

load() { sysbench oltp_point_select --mysql-host=127.0.0.1 --mysql-port="$PORT" --mysql-user=root --mysql-db=t --table-size=5000 --mysql-ssl=off --threads=4 --events=$((4000 * SIZE)) --time=0 run > /dev/null; }

run "$@"
