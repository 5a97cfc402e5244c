package exnrun

const helpText = `exn-run runs a program on direct sockets: its TCP connections to programs that
use them too go through shared memory instead of the kernel. The program is not
changed and not told; everything else stays on TCP.

Usage:
  exn-run [flags] [--] PROGRAM [ARGUMENT...]
  exn-run [flags] --print-env
  exn-run --check-rules FILE
  exn-run version

Examples:
  exn-run --loopback redis-server
  exn-run --loopback redis-benchmark
      both ends on this host, without root and without exn0
  exn-run -- iperf3 -s
  exn-run --node 2 -- iperf3 -c 10.2.0.1
      over a fabric whose nodes are up (exn-tun up); the client is in the network
      namespace of node 2
  exn-run --loopback --explain -- curl http://localhost/
      what was chosen for each connection, and why
  exn-run --rules my.rules -- python3 app.py
      by program, role, address and port; see docs/exn-run.md
  eval "$(exn-run --loopback --print-env)"
      for all that this shell starts from now on

Flags:
  --loopback           include connections to 127.0.0.0/8 and ::1; starts a
                       broker if none serves this network namespace
  --rules FILE         rules: which connections may be direct
  --node NODE          in the network namespace of a node: its ID, or the name or
                       path of its namespace (takes root)
  --fabric NAME        fabric of that node (lab)
  --dir DIR            directory of that fabric
  --explain            say at the end what was chosen for each connection, why
  --verbose            say it at once, when a connection is made or changes
  --stats              as --explain, with all counters
  --report FILE        the same for programs: a JSON object a line
  --print-env          print the variables for a shell, and run nothing
  --check-rules FILE   check rules, and run nothing
  --library FILE       use this library instead of exn-run's own

Programs that a library cannot reach (static ones, Go, setuid) run all the same,
on TCP; exn-run says so. The program takes exn-run's place, with its process ID,
unless exn-run has to stay to tell of it (--explain, --verbose, --stats,
--report). Exit status: the program's; 2 wrong usage, 126 and 127 as env(1).
`
