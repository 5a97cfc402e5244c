package exnmem

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"exnet/internal/longtest"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

// onLease is exn-mem run for a program that has local bytes here, and the rest on another node.
func onLease(t *testing.T, local string, argv ...string) *exec.Cmd {
	t.Helper()
	needPaging(t)
	if _, err := exec.LookPath(argv[0]); err != nil {
		t.Skip(err)
	}
	f := pooltest.New(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 1 << 30}})
	cmd := exnMem(t, append([]string{"run", "--local", local, "--remote", "256M", "--stats", "--"}, argv...)...)
	cmd.Env = append(cmd.Env, "EXN_MEMORY="+f.Socket(0))
	return cmd
}

// fetched says whether a program's pages have left and come back, by what --stats says.
func fetched(stats string) bool {
	return strings.Contains(stats, " moved out, ") && !strings.Contains(stats, " 0 fetched")
}

// redis with half of its data elsewhere has what was written to it, in its child, too, which it
// forks to save all to a file.
func TestRedis(t *testing.T) {
	const keys = 20_000 // of 1 KiB
	dir := t.TempDir()
	socket := filepath.Join(dir, "redis")
	cmd := onLease(t, "12M", "redis-server", "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no", "--lua-time-limit", "600000")
	cli := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "redis-cli", append([]string{"-s", socket}, args...)...).CombinedOutput()
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(out))
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "redis", func() bool { return cli("ping") == "PONG" })
	sum := ""
	for i := range keys {
		text := strings.Repeat(string(rune('a'+i%26)), 1000) + fmt.Sprint(i)
		h := sha1.Sum([]byte(sum + text))
		sum = hex.EncodeToString(h[:])
	}
	const value = "string.rep(string.char(97+i%26), 1000) .. string.format('%d', i)"
	all := func(each string) string { return fmt.Sprintf("for i=0,%d do %s end", keys-1, each) }
	cli("eval", all("redis.call('set', 'key:' .. i, "+value+")"), "0")
	ask := []string{"eval", "local h='' " + all("h=redis.sha1hex(h .. redis.call('get', 'key:' .. i))") + " return h", "0"}
	if got := cli(ask...); got != sum {
		t.Errorf("redis has %s, want %s", got, sum)
	}
	if got := cli("bgsave"); !strings.Contains(got, "started") {
		t.Errorf("bgsave: %s", got)
	}
	await(t, "the file", func() bool { return strings.Contains(cli("info", "persistence"), "rdb_bgsave_in_progress:0") })
	cli("shutdown", "nosave")
	if err := cmd.Wait(); err != nil || !fetched(said.String()) {
		t.Errorf("%v\n%s%s", err, out.String(), said.String())
	}
	plain := exec.CommandContext(t.Context(), "redis-server", "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--lua-time-limit", "600000")
	if err := plain.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "redis with the file", func() bool { return cli("ping") == "PONG" })
	if got := cli(ask...); got != sum {
		t.Errorf("the child has saved %s, want %s", got, sum)
	}
	cli("shutdown", "nosave")
	if err := plain.Wait(); err != nil {
		t.Error(err)
	}
}

// stress-ng fills memory with patterns in several ways, and finds them as it has left them.
func TestStress(t *testing.T) {
	longtest.Nightly(t) // beside other work a method takes up to 50 s
	for method, n := range map[string]string{"rowhammer": "1000", "galpat-0": "1000", "modulo-x": "1000"} {
		t.Run(method, func(t *testing.T) {
			cmd := onLease(t, "8M", "stress-ng", "--vm", "1", "--vm-bytes", "32M", "--vm-method", method, "--vm-ops", n, "--verify", "--no-rand-seed")
			stdout, stderr, status := result(t, cmd)
			if status != 0 || strings.Contains(stdout+stderr, "fail") {
				t.Errorf("status %d\n%s%s", status, stdout, stderr)
			}
			if !fetched(stderr) { // it has ended before the pager saw how large it was
				t.Logf("nothing was elsewhere: %s", stderr)
			}
		})
	}
}

// nobody is a user without rights.
const nobody = 65534

// A program that runs with another user's rights is refused in a line; so is a user who may not
// page, and reads which sysctl allows it.
func TestRefusedRights(t *testing.T) {
	needPaging(t)
	if syscall.Geteuid() != 0 {
		t.Skip("it takes root")
	}
	program := filepath.Join(t.TempDir(), "sleep")
	for _, argv := range [][]string{{"cp", "/bin/sleep", program}, {"chown", fmt.Sprint(nobody), program}, {"chmod", "4755", program}} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
	}
	sizes := []string{"run", "--local", "4M", "--remote", "4M", "--control"}
	_, stderr, status := result(t, exnMem(t, append(sizes, program, "0")...))
	if status != exitFailure || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "runs with the rights of another user") {
		t.Errorf("setuid: status %d\n%s", status, stderr)
	}
	if text, _ := os.ReadFile("/proc/sys/vm/unprivileged_userfaultfd"); string(text) != "0\n" {
		t.Skip("all users may page here, or none")
	}
	cmd := exnMem(t, append(sizes, "true")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	_, stderr, status = result(t, cmd)
	if status != exitFailure || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "the sysctl vm.unprivileged_userfaultfd") {
		t.Errorf("a user without rights: status %d\n%s", status, stderr)
	}
}
