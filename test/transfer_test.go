package e2e

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/internal/longtest"
	"exnet/node"
)

// randomFile makes a file of size random bytes and returns its path and sum.
func randomFile(t *testing.T, size int64) (path string, sum [sha256.Size]byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "data")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	source := rand.NewChaCha8([32]byte{1})
	if _, err := io.CopyN(io.MultiWriter(f, h), source, size); err != nil {
		t.Fatal(err)
	}
	return path, [sha256.Size]byte(h.Sum(nil))
}

// sumOf returns the length and sum of a file.
func sumOf(t *testing.T, path string) (int, [sha256.Size]byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return len(data), sha256.Sum256(data)
}

// The sizes of files: an odd number, so that the last segment is a short one.
const fileSize = 10<<20 + 123

func TestRootCurl(t *testing.T) {
	longtest.Skip(t)
	need(t, "curl", "python3")
	const port = "8000"
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		a, b := l.hosts[0], l.hosts[1]
		path, want := randomFile(t, fileSize)
		eachFamily(t, func(t *testing.T, fam family) {
			server := b.start(t, "python3", "-m", "http.server", "--bind", fam.of(b).String(), "--directory", filepath.Dir(path), port)
			server.listens(t, port)
			url := fmt.Sprintf("http://%s/data", net.JoinHostPort(fam.of(b).String(), port))
			got := filepath.Join(t.TempDir(), "got")
			before := a.counters()
			a.run(t, "curl", "-sS", "-f", "-g", "-o", got, url)
			if n, sum := sumOf(t, got); sum != want {
				t.Errorf("got %d bytes that are not the %d sent", n, fileSize)
			}
			checkGrowth(t, before, a.counters, atLeast("rma.get_bytes", fileSize))
			if !strings.Contains(server.out.String(), fam.of(a).String()) {
				t.Errorf("the server saw no %v:\n%s", fam.of(a), &server.out)
			}
			t.Run("no such file", func(t *testing.T) {
				if out, err := a.try(t, "curl", "-sS", "-f", "-g", url+"x"); err == nil || !strings.Contains(out, "404") {
					t.Errorf("got %v, want an HTTP status 404\n%s", err, out)
				}
			})
			t.Run("no such port", func(t *testing.T) {
				refused := fmt.Sprintf("http://%s/", net.JoinHostPort(fam.of(b).String(), "8001"))
				const couldNotConnect = 7 // curl(1), EXIT CODES
				var exit *exec.ExitError
				if out, err := a.try(t, "curl", "-sS", "-g", refused); !errors.As(err, &exit) || exit.ExitCode() != couldNotConnect {
					t.Errorf("got %v, want exit status %d\n%s", err, couldNotConnect, out)
				}
			})
		})
	})
}

func TestRootNetcat(t *testing.T) {
	longtest.Skip(t)
	need(t, "nc")
	const port = "4000"
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		a, b := l.hosts[0], l.hosts[1]
		path, want := randomFile(t, fileSize)
		open := func(t *testing.T) *os.File {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return f
		}
		eachFamily(t, func(t *testing.T, fam family) {
			to := fam.of(b).String()
			t.Run("there", func(t *testing.T) {
				server := b.start(t, "nc", "-l", "-N", to, port)
				server.listens(t, port)
				a.pipe(t, open(t), "nc", "-N", to, port)
				if got := server.wait(t); sha256.Sum256([]byte(got)) != want {
					t.Errorf("got %d bytes that are not the %d sent", len(got), fileSize)
				}
			})
			t.Run("back", func(t *testing.T) {
				server := b.startPiped(t, open(t), "nc", "-l", "-N", to, port)
				server.listens(t, port)
				got := a.run(t, "nc", to, port)
				server.wait(t)
				if sha256.Sum256([]byte(got)) != want {
					t.Errorf("got %d bytes that are not the %d sent", len(got), fileSize)
				}
			})
		})
	})
}

func TestRootRedis(t *testing.T) {
	need(t, "redis-benchmark", "redis-cli", "redis-server")
	const port = "6379"
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		a, b := l.hosts[0], l.hosts[1]
		server := b.start(t, "redis-server", "--bind", family(4).of(b).String(), family(6).of(b).String(),
			"--port", port, "--protected-mode", "no", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
		server.says(t, "Ready to accept connections")
		eachFamily(t, func(t *testing.T, fam family) {
			redis := []string{"redis-cli", "-h", fam.of(b).String(), "-p", port}
			// Text, since redis-cli ends its output with a line feed.
			want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
			if out := a.pipe(t, bytes.NewReader(want), append(redis, "-x", "set", "key")...); out != "OK\n" {
				t.Errorf("set: %q", out)
			}
			if out := a.run(t, append(redis, "get", "key")...); out != string(want)+"\n" {
				t.Errorf("get: %d bytes that are not the %d set", len(out)-1, len(want))
			}
			before := l.total()
			for _, size := range []string{"3", "2000"} {
				out := a.run(t, "redis-benchmark", "-h", fam.of(b).String(), "-p", port,
					"-n", "2000", "-c", "20", "-d", size, "-t", "ping,set,get", "-q")
				if got := strings.Count(out, "requests per second"); got != 4 {
					t.Errorf("%d results, want PING_INLINE, PING_MBULK, SET and GET\n%s", got, out)
				}
			}
			checkGrowth(t, before, l.total, atLeast("exteth.rx_eager", 1))
			checkGrowth(t, before, l.total, atLeast("exteth.rx_rendezvous", 1))
		})
	})
}
