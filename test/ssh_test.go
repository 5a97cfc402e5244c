package e2e

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"exnet/internal/longtest"
	"exnet/node"
)

const sshPort = "2222"

// sshd in its own mount namespace: it insists on the directory /run/sshd, which
// only its service makes.
const sshdScript = `mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec "$0" "$@"`

func TestRootSSH(t *testing.T) {
	longtest.Skip(t)
	need(t, "ssh", "ssh-keygen", "sshd", "unshare")
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		a, b := l.hosts[0], l.hosts[1]
		dir := t.TempDir()
		file := func(name string) string { return filepath.Join(dir, name) }
		hostKey := newKey(t, a, file("host"))
		userKey := newKey(t, a, file("user"))
		write(t, file("authorized"), userKey)
		// Root, because only root can let in anybody but itself; no PAM, no
		// file of the machine.
		write(t, file("sshd_config"), fmt.Sprintf(`
Port %s
ListenAddress %s
ListenAddress %s
HostKey %s
PidFile none
AuthorizedKeysFile %s
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
`, sshPort, family(4).of(b), family(6).of(b), file("host"), file("authorized")))

		server := b.start(t, "unshare", "--mount", "sh", "-c", sshdScript,
			programPath("sshd"), "-D", "-e", "-f", file("sshd_config"))
		server.listens(t, sshPort)
		path, want := randomFile(t, fileSize)
		eachFamily(t, func(t *testing.T, fam family) {
			to := fam.of(b).String()
			write(t, file("known_hosts"), fmt.Sprintf("[%s]:%s %s", to, sshPort, hostKey))
			ssh := []string{"ssh", "-F", "none", "-p", sshPort, "-i", file("user"), "-l", "root", "-o", "BatchMode=yes",
				"-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=" + file("known_hosts"), to}
			if got, want := a.run(t, append(ssh, `echo "$SSH_CONNECTION" | cut -d" " -f1,3,4`)...),
				fmt.Sprintf("%s %s %s\n", fam.of(a), to, sshPort); got != want {
				t.Errorf("SSH_CONNECTION is %q, want %q", got, want)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if got := a.pipe(t, f, append(ssh, "cat")...); sha256.Sum256([]byte(got)) != want {
				t.Errorf("got %d bytes that are not the %d sent", len(got), fileSize)
			}
		})
	})
}

// newKey makes a key pair and returns the public key.
func newKey(t *testing.T, h *host, path string) string {
	t.Helper()
	h.run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "e2e", "-f", path)
	public, err := os.ReadFile(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return string(public)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
