package pairing_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/pairing"
	"exnet/internal/netns/netnstest"

	"github.com/cilium/ebpf"
)

// pinned is New with a directory, closed when the test ends.
func pinned(t *testing.T, dir string) *pairing.Pairs {
	t.Helper()
	p, err := pairing.New(dir)
	if errors.Is(err, pairing.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// A connection that is made while there is no Pairs has its pair in the next one, if both pin in
// one directory; one from before, too. When the directory goes, nothing looks at connections.
func TestRootPinned(t *testing.T) {
	netnstest.Require(t)
	_, a, b := bridged(t)
	dir := filepath.Join(netnstest.BPF(t), "exnet")
	between := func() (client, server uint64) {
		c, s := connect(t, a, b, "172.30.0.3:8080", "172.30.0.3:8080")
		client, _ = cookies(t, c)
		server, _ = cookies(t, s)
		return client, server
	}
	know := func(p *pairing.Pairs, when string, client, server uint64) {
		t.Helper()
		if end, ok := p.Server(client); !ok || end.Cookie != server {
			t.Errorf("a connection %s: %+v (%v), want %d", when, end, ok, server)
		}
	}
	first := pinned(t, dir)
	before, beforeEnd := between()
	know(first, "of the first", before, beforeEnd)
	id := programOf(t, first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	meanwhile, meanwhileEnd := between()
	if p := newPairs(t); true { // which shows that the directory makes the difference
		if end, ok := p.Server(meanwhile); ok {
			t.Errorf("without the directory: %+v", end)
		}
	}
	other := filepath.Join(dir, "pairs-0")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	second := pinned(t, dir)
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another layout's: %v", err)
	}
	know(second, "from before", before, beforeEnd)
	know(second, "between them", meanwhile, meanwhileEnd)
	after, afterEnd := between()
	know(second, "of the second", after, afterEnd)
	if _, err := ebpf.NewProgramFromID(id); err == nil {
		t.Error("the first one's program is attached, too")
	}
	id = programOf(t, second)
	if err := errors.Join(second.Close(), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the program is gone", func() bool {
		p, err := ebpf.NewProgramFromID(id)
		if err == nil {
			p.Close()
		}
		return errors.Is(err, os.ErrNotExist)
	})
}

func programOf(t *testing.T, p *pairing.Pairs) ebpf.ProgramID {
	t.Helper()
	info, err := p.Program().Info()
	if err != nil {
		t.Fatal(err)
	}
	id, ok := info.ID()
	if !ok {
		t.Fatal("the kernel gives programs no IDs")
	}
	return id
}

// What is no map or link of this version is made anew, and where others could write nothing is
// pinned.
func TestRootPinnedWrong(t *testing.T) {
	netnstest.Require(t)
	fs := netnstest.BPF(t)
	at := func(name string) string { return filepath.Join(fs, name, pairing.Layout) }
	t.Run("map", func(t *testing.T) {
		newPairs(t) // or the test is skipped
		if err := os.MkdirAll(at("map"), 0o700); err != nil {
			t.Fatal(err)
		}
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		same, err := m.Clone() // one that can be pinned elsewhere
		if err != nil {
			t.Fatal(err)
		}
		defer same.Close()
		if err := errors.Join(m.Pin(filepath.Join(at("map"), "exn_pairs")), same.Pin(filepath.Join(at("map"), "link"))); err != nil {
			t.Fatal(err)
		}
		p := pinned(t, filepath.Join(fs, "map"))
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if p = pinned(t, filepath.Join(fs, "map")); p.Program() == nil {
			t.Error("there is no program")
		}
	})
	for name, make := range map[string]func(dir string) error{
		"another user's": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 1000, 1000)) },
		"for all":        func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"below another's": func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, pairing.Layout), 0o700), os.Chown(filepath.Join(dir, pairing.Layout), 1000, 1000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(fs, name)
			if err := make(dir); err != nil {
				t.Fatal(err)
			}
			if p, err := pairing.New(dir); !errors.Is(err, pairing.ErrPin) {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
	dir := t.TempDir()
	for _, at := range []string{dir, filepath.Join(dir, "a/b")} {
		if p, err := pairing.New(at); !errors.Is(err, pairing.ErrPin) {
			t.Errorf("on no BPF file system: %v, %v", p, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
