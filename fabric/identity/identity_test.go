package identity

import (
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/fabric"
)

const year = 365 * 24 * time.Hour

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func node(n fabric.NodeID) Name { return Name{Fabric: "lab", Node: n} }

func authority(t *testing.T, fabric string) *Pair {
	t.Helper()
	return must(Create(Name{Fabric: fabric, Authority: true}, nil, year))(t)
}

// fileOf writes a pair into files of its own and returns their base.
func fileOf(t *testing.T, p *Pair) string {
	t.Helper()
	base := filepath.Join(t.TempDir(), "pair")
	if err := p.Save(base); err != nil {
		t.Fatal(err)
	}
	return base
}

// trustFile writes a trust file.
func trustFile(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trust")
	if err := os.WriteFile(path, []byte(strings.Join(parts, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func openStore(t *testing.T, p *Pair, trust string) *Store {
	t.Helper()
	return must(Open(Config{Key: fileOf(t, p), Trust: trust, Fabric: "lab"}))(t)
}

func TestPairFiles(t *testing.T) {
	ca := authority(t, "lab")
	p := must(Create(node(7), ca, year))(t)
	base := fileOf(t, p)
	back := must(Load(base + ".key"))(t)
	if back.Name != node(7) || back.Fingerprint() != p.Fingerprint() || len(p.Fingerprint()) != FingerprintLen {
		t.Errorf("%v %s, want %v %s", back.Name, back.Fingerprint(), p.Name, p.Fingerprint())
	}
	if err := p.Save(base); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("written over: %v", err)
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o620: false} {
		if err := os.Chmod(base+".key", mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(base); (err == nil) != ok || !ok && (!errors.Is(err, ErrFile) || !strings.Contains(err.Error(), "chmod")) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(base+".key", 0o600); err != nil {
		t.Fatal(err)
	}
	// Renewed, it is the same key.
	again := must(Sign(ca, p.Cert, 2*year))(t)
	if err := Replace(base+".crt", again); err != nil {
		t.Fatal(err)
	}
	if back = must(Load(base))(t); back.Fingerprint() != p.Fingerprint() || back.Cert.NotAfter.After(ca.Cert.NotAfter) {
		t.Errorf("%s until %v, authority until %v", back.Fingerprint(), back.Cert.NotAfter, ca.Cert.NotAfter)
	}
	// Another's certificate.
	if err := Replace(base+".crt", must(Create(node(7), ca, year))(t).Cert); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(base); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), "is not the certificate of the key") {
		t.Errorf("another's certificate: %v", err)
	}
}

func TestSignRefuses(t *testing.T) {
	ca, other := authority(t, "lab"), authority(t, "den")
	if _, err := Sign(other, must(Create(node(1), nil, year))(t).Cert, year); !errors.Is(err, ErrFabric) {
		t.Errorf("for another fabric: %v", err)
	}
	if _, err := Sign(ca, ca.Cert, year); !errors.Is(err, ErrFile) {
		t.Errorf("an authority: %v", err)
	}
	if _, err := Create(node(2), must(Create(node(1), ca, year))(t), year); !errors.Is(err, ErrFabric) {
		t.Errorf("by a node: %v", err)
	}
}

func TestVerify(t *testing.T) {
	ca, next, stranger, den := authority(t, "lab"), authority(t, "lab"), authority(t, "lab"), authority(t, "den")
	signed := must(Create(node(1), ca, year/2))(t)
	renewed := must(Create(node(2), next, year/2))(t)
	foreign := must(Create(node(3), stranger, year))(t)
	another := must(Create(Name{Fabric: "den", Node: 1}, den, year))(t)
	alone := must(Create(node(4), nil, year))(t)
	denied := must(Create(node(5), ca, year))(t)
	trust := must(ParseTrust([]byte("# whom we trust\n" + string(PEM(ca.Cert)) + "node 4 " + alone.Fingerprint() + " # host4\n\n" +
		string(PEM(next.Cert)) + string(PEM(den.Cert)) + "deny " + denied.Fingerprint())))(t)
	now := time.Now()
	for _, c := range []struct {
		name string
		pair *Pair
		at   time.Time
		want error
	}{
		{"signed", signed, now, nil},
		{"signed by the next authority", renewed, now, nil},
		{"pinned", alone, now, nil},
		{"of an unknown authority", foreign, now, ErrStranger},
		{"of nobody", must(Create(node(6), nil, year))(t), now, ErrStranger},
		{"of another fabric", another, now, ErrFabric},
		{"denied", denied, now, ErrStranger},
		{"an authority itself", ca, now, ErrStranger},
		{"a minute slow", signed, now.Add(-time.Minute), nil},
		{"an hour slow", signed, now.Add(-time.Hour), ErrTime},
		{"an hour fast", signed, now.Add(time.Hour), nil},
		{"expired", signed, now.Add(year), ErrTime},
		{"pinned and expired", alone, now.Add(2 * year), ErrTime},
	} {
		p, err := trust.Verify(c.pair.Cert, "lab", c.at)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || p.Name != c.pair.Name {
			t.Errorf("%s: %v, %v", c.name, p.Name, err)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than a line: %v", c.name, err)
		}
	}
	// A pinned key makes itself any certificate, but is one node.
	posing := *alone
	posing.Cert = must(makeCertificate(node(1), alone.key.Public().(ed25519.PublicKey), &Pair{key: alone.key}, year, now))(t)
	if _, err := trust.Verify(posing.Cert, "lab", now); !errors.Is(err, ErrNode) {
		t.Errorf("posing: %v", err)
	}
	if got := trust.Summary(); got != "the authority of fabric den, the authority of fabric lab, 1 pinned keys" {
		t.Error(got)
	}
}

func TestParseTrustRefuses(t *testing.T) {
	p := must(Create(node(1), nil, year))(t)
	for text, want := range map[string]string{
		"":                              "trusts nobody",
		"# nobody":                      "trusts nobody",
		"deny " + p.Fingerprint():       "trusts nobody",
		"\nnode 1 SHA256:x":             "line 2",
		"node 65536 " + p.Fingerprint(): "not a node ID",
		"nodes":                         "line 1",
		"node 1 " + p.Fingerprint() + "\nnode 2 " + p.Fingerprint(): "line 2: the key already belongs to node 1",
		string(PEM(p.Cert)):      "pin its key with node 1 " + p.Fingerprint(),
		string(PEM(p.Cert))[:80]: "not a whole certificate",
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": "not a whole certificate",
	} {
		if _, err := ParseTrust([]byte(text)); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	path := trustFile(t, "node 1 "+p.Fingerprint())
	if err := os.Chmod(path, 0o622); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadTrust(path); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("writable: %v", err)
	}
}

// tcpPair returns both ends of a connection. (A net.Pipe has no buffer: an alert would wait
// for the peer, which waits to write.)
func tcpPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	a = must(net.Dial("tcp", ln.Addr().String()))(t)
	b = must(ln.Accept())(t)
	for _, c := range []net.Conn{a, b} {
		_ = c.SetDeadline(time.Now().Add(time.Minute)) // a guard against hanging
	}
	return a, b
}

// shake runs a handshake, and a byte from each side.
func shake(t *testing.T, client, server *Store) (clientErr, serverErr error) {
	t.Helper()
	a, b := tcpPair(t)
	defer a.Close()
	done := make(chan error, 1)
	go func() {
		defer b.Close()
		conn := tls.Server(b, server.TLS())
		_, err := conn.Write([]byte{1})
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		done <- err
	}()
	conn := tls.Client(a, client.TLS())
	_, clientErr = conn.Read(make([]byte, 1))
	if clientErr == nil {
		_, clientErr = conn.Write([]byte{1})
	}
	a.Close()
	return Reason(clientErr), <-done
}

func TestHandshake(t *testing.T) {
	ca, stranger := authority(t, "lab"), authority(t, "lab")
	trust := trustFile(t, string(PEM(ca.Cert)))
	one := openStore(t, must(Create(node(1), ca, year))(t), trust)
	two := openStore(t, must(Create(node(2), ca, year))(t), trust)
	if c, s := shake(t, one, two); c != nil || s != nil {
		t.Errorf("%v, %v", c, s)
	}
	// Whoever is not trusted is told so, and gets nothing.
	wrong := openStore(t, must(Create(node(3), stranger, year))(t), trust)
	if c, s := shake(t, wrong, two); !errors.Is(c, ErrRefused) || !errors.Is(s, ErrStranger) {
		t.Errorf("a stranger connects: %v, %v", c, s)
	}
	if c, _ := shake(t, one, wrong); !errors.Is(c, ErrStranger) {
		t.Errorf("to a stranger: %v", c)
	}
	// No certificate, an older TLS, another protocol.
	for name, cfg := range map[string]*tls.Config{
		"no key":           {InsecureSkipVerify: true, NextProtos: []string{protocol}},
		"TLS 1.2":          {InsecureSkipVerify: true, NextProtos: []string{protocol}, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*one.Pair().tlsPair()}},
		"another protocol": {InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*one.Pair().tlsPair()}},
		"no protocol":      {InsecureSkipVerify: true, Certificates: []tls.Certificate{*one.Pair().tlsPair()}},
	} {
		a, b := tcpPair(t)
		go func() {
			defer a.Close()
			conn := tls.Client(a, cfg)
			_, _ = conn.Read(make([]byte, 1)) // has the alert taken
		}()
		conn := tls.Server(b, two.TLS())
		if err := conn.Handshake(); err == nil {
			t.Errorf("%s: taken", name)
		}
		b.Close()
	}
}

// A node's files change while it runs.
func TestRotation(t *testing.T) {
	old, next := authority(t, "lab"), authority(t, "lab")
	trust := trustFile(t, string(PEM(old.Cert)))
	now := time.Now()
	clock := func() time.Time { return now }
	mine := must(Create(node(1), old, year))(t)
	base := fileOf(t, mine)
	one := must(Open(Config{Key: base, Trust: trust, Fabric: "lab", Now: clock}))(t)
	two := openStore(t, must(Create(node(2), next, year))(t), trustFile(t, string(PEM(next.Cert)), string(PEM(old.Cert))))
	if c, _ := shake(t, one, two); !errors.Is(c, ErrStranger) {
		t.Errorf("before: %v", c)
	}
	if one.Refresh() {
		t.Error("nothing has changed")
	}
	change := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change(trust, string(PEM(old.Cert))+string(PEM(next.Cert)))
	if !one.Refresh() || one.Generation() != 1 {
		t.Error("the trust file has changed")
	}
	if c, s := shake(t, one, two); c != nil || s != nil {
		t.Errorf("both authorities: %v, %v", c, s)
	}
	// A certificate of the next authority; then the old one is not trusted any more.
	if err := Replace(base+".crt", must(Sign(next, mine.Cert, year))(t)); err != nil {
		t.Fatal(err)
	}
	change(trust, string(PEM(next.Cert)))
	if !one.Refresh() || one.Check(mine.Cert) == nil || one.Check(one.Pair().Cert) != nil {
		t.Errorf("%v, %v", one.Check(mine.Cert), one.Check(one.Pair().Cert))
	}
	if c, s := shake(t, two, one); c != nil || s != nil {
		t.Errorf("the next authority: %v, %v", c, s)
	}
	// A peer that is connected takes it in place of the old one: the same key, the same node.
	if c, err := two.Renewed(mine.Cert, one.Pair().Cert.Raw); err != nil || !c.Equal(one.Pair().Cert) {
		t.Errorf("renewed: %v, %v", c, err)
	}
	for name, c := range map[string]struct {
		der  []byte
		want error
	}{
		"another key":  {must(Create(node(1), next, year))(t).Cert.Raw, ErrNode},
		"another node": {must(Create(node(3), next, year))(t).Cert.Raw, ErrNode},
		"a stranger's": {must(Create(node(1), authority(t, "lab"), year))(t).Cert.Raw, ErrStranger},
		"nonsense":     {[]byte("nonsense"), ErrFile},
	} {
		if got, err := two.Renewed(mine.Cert, c.der); got != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	// What cannot be used changes nothing.
	change(trust, "nonsense")
	if one.Refresh() || one.Check(one.Pair().Cert) != nil {
		t.Error("a broken file is used")
	}
	change(trust, string(PEM(next.Cert)))
	one.Refresh()
	now = now.Add(2 * year)
	if err := one.Check(one.Pair().Cert); !errors.Is(err, ErrTime) {
		t.Errorf("expired: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	ca := authority(t, "lab")
	trust := trustFile(t, string(PEM(ca.Cert)))
	for name, c := range map[string]struct {
		pair   *Pair
		fabric string
		late   time.Duration
		want   error
	}{
		"authority": {ca, "lab", 0, ErrFile},
		"fabric":    {must(Create(node(1), ca, year))(t), "den", 0, ErrFabric},
		"expired":   {must(Create(node(1), ca, year))(t), "lab", 2 * year, ErrTime},
		"early":     {must(Create(node(1), ca, year))(t), "lab", -time.Hour, ErrTime},
	} {
		_, err := Open(Config{Key: fileOf(t, c.pair), Trust: trust, Fabric: c.fabric, Now: func() time.Time { return time.Now().Add(c.late) }})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(Config{Key: filepath.Join(t.TempDir(), "none"), Trust: trust, Fabric: "lab"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func FuzzTrust(f *testing.F) {
	p, err := Create(Name{Fabric: "lab", Authority: true}, nil, year)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("node 1 " + p.Fingerprint() + "\n"))
	f.Add(PEM(p.Cert))
	f.Add([]byte("deny " + p.Fingerprint() + "\n# x\n-----BEGIN CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		trust, err := ParseTrust(text)
		if err == nil && trust.Summary() == "" || err != nil && !errors.Is(err, ErrFile) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// Nothing but what URI writes is taken for a name.
func FuzzName(f *testing.F) {
	for _, s := range []string{"exnet://lab/node/7", "exnet://lab", "exnet://lab/node/07", "exnet://lab/node/65536", "exnet://u@lab/node/1", "exnet://lab/node/1?x", "exnet:lab", "EXNET://lab"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		n, err := parseName(u)
		if err != nil {
			return
		}
		if got := n.URI().String(); got != u.String() || n.Fabric == "" {
			t.Errorf("%q is %v, which is %q", s, n, got)
		}
	})
}
