package suites

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// suites are those that are known.
var suites = []suite{
	{"nginx", "nginx-tests, and packages nginx-light and libnginx-mod-{stream,mail,http-geoip,http-image-filter,http-perl,http-xslt-filter,stream-geoip}", nginxUnits, parseTAP},
	{"libuv", "libuv, built by cmake -B build and make -C build uv_run_tests", libuvUnits, parseTAP},
	{"libevent", "libevent, built by cmake -B build and make -C build regress", libeventUnits, parseExit},
	{"ltp", "the Linux Test Project, with the folders of network calls in testcases/kernel/syscalls built", ltpUnits, parseLTP},
	{"redis", "redis, built by make (and make -C tests/modules)", redisUnits, parseRedis},
	{"cpython", "", cpythonUnits, parseCPython},
	{"node", "the sources of Node.js; package nodejs", nodeUnits, parseExit},
	{"ruby", "the sources of Ruby; package ruby", rubyUnits, parseRuby},
	{"curl", "curl, built by cmake -B build, and make -C build testdeps", curlUnits, parseCurl},
}

func suiteNames() []string {
	var names []string
	for _, s := range suites {
		names = append(names, s.name)
	}
	return names
}

// files returns the names below dir that match a pattern, at least one.
func files(dir, pattern string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no %s in %s", pattern, dir)
	}
	for i := range all {
		if all[i], err = filepath.Rel(dir, all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func nginxUnits(dir string) ([]unit, error) {
	names, err := files(dir, "*.t")
	if err != nil {
		return nil, err
	}
	var units []unit
	for _, name := range names {
		units = append(units, unit{name: name, argv: []string{"perl", name},
			env: []string{"TEST_NGINX_BINARY=/usr/sbin/nginx", "TEST_NGINX_MODULES=/usr/lib/nginx/modules", "TEST_NGINX_GLOBALS=user root;"}})
	}
	return units, nil
}

// listed runs a program of the checkout that lists its tests, one a line, and returns the first
// word of each.
func listed(argv ...string) ([]string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "UV_RUN_AS_ROOT=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w", argv[0], err)
	}
	var names []string
	for line := range strings.Lines(out.String()) {
		if f := strings.Fields(line); len(f) > 0 {
			names = append(names, f[0])
		}
	}
	return names, nil
}

func libuvUnits(dir string) ([]unit, error) {
	program := filepath.Join(dir, "build/uv_run_tests")
	names, err := listed(program, "--list")
	if err != nil {
		return nil, err
	}
	var units []unit
	for _, name := range names {
		units = append(units, unit{name: name, argv: []string{program, name}, dir: filepath.Join(dir, "build"), env: []string{"UV_RUN_AS_ROOT=1"}})
	}
	return units, nil
}

func libeventUnits(dir string) ([]unit, error) {
	program := filepath.Join(dir, "build/bin/regress")
	names, err := listed(program, "--list-tests")
	if err != nil {
		return nil, err
	}
	var units []unit
	for _, name := range names {
		if strings.Contains(name, "/") {
			units = append(units, unit{name: name, argv: []string{program, "-j0", name}})
		}
	}
	return units, nil
}

// ltpLong races for minutes after faults of old kernels, or takes all memory, and has nothing that
// exn-run could change.
var ltpLong = regexp.MustCompile(`^(bind06|sendmsg03|setsockopt0[5-8]|setsockopt1[01]|writev03|fork1[34])$`)

// ltpUnits are the programs in those folders of system calls that have been built.
func ltpUnits(dir string) ([]unit, error) {
	names, err := files(dir, "testcases/kernel/syscalls/*/*[0-9]*.c")
	if err != nil {
		return nil, err
	}
	var units []unit
	for _, name := range names {
		program := filepath.Join(dir, strings.TrimSuffix(name, ".c"))
		if info, err := os.Stat(program); err != nil || info.Mode()&0o111 == 0 || ltpLong.MatchString(filepath.Base(program)) {
			continue
		}
		folder := filepath.Dir(program)
		units = append(units, unit{name: filepath.Base(program), argv: []string{program}, dir: folder,
			env: []string{"PATH=" + os.Getenv("PATH") + ":" + folder, "LTPROOT=" + dir}})
	}
	return units, nil
}

var (
	redisFile    = regexp.MustCompile(`(?m)^    ((?:unit|integration)/[\w/-]+)$`)
	redisFolders = regexp.MustCompile(`(?m)^set test_dirs \{([^}]*)\}`)
)

// redisNames returns the tests that tests/test_helper.tcl of a checkout has runtest run: it lists
// them, or, since Redis 7.4, the folders that have them.
func redisNames(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "tests/test_helper.tcl"))
	if err != nil {
		return nil, err
	}
	var names []string
	m := redisFolders.FindSubmatch(text)
	if m == nil {
		for _, m := range redisFile.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return names, nil
	}
	for folder := range strings.FieldsSeq(string(m[1])) {
		found, err := files(filepath.Join(dir, "tests"), folder+"/*.tcl")
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			names = append(names, strings.TrimSuffix(name, ".tcl"))
		}
	}
	return names, nil
}

func redisUnits(dir string) ([]unit, error) {
	names, err := redisNames(dir)
	if err != nil {
		return nil, err
	}
	if built, _ := filepath.Glob(filepath.Join(dir, "tests/modules/*.so")); len(built) > 0 { // runtest-moduleapi
		modules, err := files(filepath.Join(dir, "tests"), "unit/moduleapi/*.tcl")
		if err != nil {
			return nil, err
		}
		for _, name := range modules {
			names = append(names, strings.TrimSuffix(name, ".tcl"))
		}
	}
	var units []unit
	for _, name := range names {
		units = append(units, unit{name: name, argv: []string{"./runtest", "--clients", "1", "--single", name}})
	}
	return units, nil
}

// cpythonUnits are the modules of CPython's tests that use the network; Debian has them in the
// package libpython3.11-testsuite.
func cpythonUnits(string) ([]unit, error) {
	if err := exec.Command("/usr/bin/python3", "-c", "import test.test_socket").Run(); err != nil {
		return nil, fmt.Errorf("package libpython3.11-testsuite: %w", err)
	}
	var units []unit
	for _, name := range []string{"test_socket", "test_selectors", "test_socketserver", "test_httplib", "test_httpservers", "test_ssl", "test_asyncio",
		"test_asyncore", "test_asynchat", "test_ftplib", "test_imaplib", "test_smtplib", "test_poplib", "test_nntplib", "test_telnetlib", "test_urllib2_localnet",
		"test_xmlrpc", "test_logging", "test_epoll", "test_poll", "test_select", "test_multiprocessing_spawn", "test_multiprocessing_forkserver",
		"test_wsgiref", "test_signal", "test_subprocess", "test_robotparser", "test_docxmlrpc", "test_smtpd"} {
		argv := []string{"/usr/bin/python3", "-m", "test", "-v", "-u", "network", "-i", "*VSOCK*", "-i", "*CAN*"}
		units = append(units, unit{name: name, argv: append(argv, name), dir: "/tmp", alone: func(test string) unit {
			return unit{name: name, argv: append(slices.Clone(argv), "-m", test, name), dir: "/tmp"}
		}})
	}
	return units, nil
}

var nodeFlags = regexp.MustCompile(`(?m)^// Flags: (.*)$`)

func nodeUnits(dir string) ([]unit, error) {
	var units []unit
	for _, kind := range []string{"net", "http", "https", "tls", "stream-pipe", "cluster", "dgram", "child-process"} {
		names, err := files(dir, "test/parallel/test-"+kind+"-*.js")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			argv := []string{"node"}
			if m := nodeFlags.FindSubmatch(text); m != nil {
				argv = append(argv, strings.Fields(string(m[1]))...)
			}
			units = append(units, unit{name: filepath.Base(name), argv: append(argv, name), env: []string{"NODE_TEST_KNOWN_GLOBALS=0"}})
		}
	}
	return units, nil
}

func rubyUnits(dir string) ([]unit, error) {
	var units []unit
	for _, pattern := range []string{"test/socket/test_*.rb", "test/net/*/test_*.rb", "test/drb/test_*.rb", "test/openssl/test_ssl*.rb", "test/io/*/test_*.rb",
		"test/open-uri/test_*.rb", "tool/test/webrick/test_*.rb", "test/ruby/test_io*.rb"} {
		names, err := files(dir, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			units = append(units, unit{name: name, argv: []string{"ruby", "test/runner.rb", "-v", name}})
		}
	}
	return units, nil
}

// curlChunk is how many tests are a unit: the servers are started for each.
const curlChunk = 25

func curlUnits(dir string) ([]unit, error) {
	names, err := files(dir, "tests/data/test[0-9]*")
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, name := range names {
		if n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(name), "test")); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	run := func(name string, numbers []int) unit {
		argv := []string{"perl", "../../tests/runtests.pl", "-a", "-n"}
		for _, n := range numbers {
			argv = append(argv, strconv.Itoa(n))
		}
		return unit{name: name, argv: argv, dir: filepath.Join(dir, "build/tests")}
	}
	var units []unit
	for chunk := range slices.Chunk(numbers, curlChunk) {
		u := run(fmt.Sprintf("%d-%d", chunk[0], chunk[len(chunk)-1]), chunk)
		u.alone = func(test string) unit {
			n, _ := strconv.Atoi(test) // parseCurl's
			return run(test, []int{n})
		}
		units = append(units, u)
	}
	return units, nil
}
