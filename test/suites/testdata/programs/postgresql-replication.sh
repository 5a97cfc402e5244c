#!/bin/bash
# PostgreSQL: a standby that streams, a subscriber of a publication, a base backup, pgbench in threads.
# needs: /usr/lib/postgresql/15/bin/initdb=postgresql pgbench=postgresql-client
. "${0%/*}/lib.sh"
bin=/usr/lib/postgresql/15/bin

as() { setpriv --reuid=postgres --regid=postgres --clear-groups env HOME="$PWD" "$@"; }

serve() {
	[ -d db ] || { mkdir db; chown postgres db; chmod 777 .; }
	as $bin/initdb -D db/a -A trust -U postgres --no-sync > /dev/null
	common="listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\nwal_level = logical\nlogging_collector = off\n"
	printf "$common" >> db/a/postgresql.conf
	as $bin/initdb -D db/c -A trust -U postgres --no-sync > /dev/null
	printf "$common" >> db/c/postgresql.conf
	as $bin/postgres -D db/a -p "$BACK" &
	as $bin/postgres -D db/c -p "$OTHER" &
	until_ok psql -h 127.0.0.1 -p "$BACK" -U postgres -c 'select 1'
	as $bin/pg_basebackup -h 127.0.0.1 -p "$BACK" -U postgres -D db/b -R -X stream --no-sync -c fast
	as $bin/postgres -D db/b -p "$PORT" &
	servers
}

q() { port=$1; shift; psql -h 127.0.0.1 -p "$port" -U postgres -v ON_ERROR_STOP=1 -Atqc "$*"; }
sum() { q "$1" "select md5(string_agg(t::text, ',' order by aid)) from pgbench_accounts t"; }
both() { a=$(sum "$BACK") b=$(sum "$PORT"); echo "$a $b"; [ "$a" = "$b" ]; }
all() { a=$(sum "$BACK") b=$(sum "$OTHER"); echo "$a $b"; [ "$a" = "$b" ]; }

check() {
	listens "$OTHER"
	until_ok q "$PORT" 'select 1'
	pgbench -h 127.0.0.1 -p "$BACK" -U postgres -i -q -s 2 postgres
	q "$OTHER" 'drop subscription if exists s' || true
	pgbench -h 127.0.0.1 -p "$OTHER" -U postgres -i -I dtp -q postgres
	q "$BACK" 'drop publication if exists p; create publication p for table pgbench_accounts'
	q "$OTHER" "create subscription s connection 'host=127.0.0.1 port=$BACK user=postgres dbname=postgres' publication p"
	pgbench -h 127.0.0.1 -p "$BACK" -U postgres -c 8 -j 2 -t 100 postgres
	pgbench -h 127.0.0.1 -p "$PORT" -U postgres -S -c 8 -j 4 -t 300 -M prepared postgres
	until_ok both
	until_ok all
	[ "$(q "$BACK" 'select count(*) from pgbench_history')" -ge 800 ]
	seq 300000 > rows
	q "$BACK" 'drop table if exists r; create table r (n int)'
	psql -h 127.0.0.1 -p "$BACK" -U postgres -c '\copy r from rows'
	psql -h 127.0.0.1 -p "$BACK" -U postgres -c '\copy (select n from r order by n) to got'
	same got rows
}

load() { pgbench -h 127.0.0.1 -p "$PORT" -U postgres -S -c 4 -j 2 -t $((1000 * SIZE)) -M prepared postgres > said; }

run "$@"
