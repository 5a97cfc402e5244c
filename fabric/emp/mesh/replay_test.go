package mesh

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// recorded keeps what was written to a connection.
type recorded struct {
	net.Conn
	wrote bytes.Buffer
}

func (r *recorded) Write(p []byte) (int, error) {
	r.wrote.Write(p)
	return r.Conn.Write(p)
}

// Whoever has seen a member join cannot: neither what it sent, sent again, nor its certificate with
// another key makes a session.
func TestReplayedMember(t *testing.T) {
	ca := newAuthority(t, "lab")
	store, _ := ca.store(1)
	other, _ := ca.store(2)
	one := open(t, store, selfOf(1), nil).run()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", one.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(hang))
		return c
	}
	join := hello{Kind: kindControl, Fabric: "lab", Self: selfOf(2), Clock: time.Now().UnixNano()}

	member := &recorded{Conn: dial()}
	c := tls.Client(member, other.TLS())
	var reply hello
	if err := sendMessage(c, join); err != nil {
		t.Fatal(err)
	}
	if err := receiveMessage(c, maxHello, &reply); err != nil || reply.Cookie == "" {
		t.Fatalf("%v, %+v", err, reply)
	}
	member.Close()
	eventually(t, "no session", func() bool { return len(one.ups()) == 0 })

	attacks := map[string]func(){
		"what it sent, again": func() {
			again := dial()
			if _, err := again.Write(member.wrote.Bytes()); err != nil {
				return // it has hung up
			}
			_, _ = io.Copy(io.Discard, again) // until it hangs up
		},
		"its certificate, another key": func() {
			cfg := other.TLS()
			cert, err := cfg.GetClientCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			forged := *cert
			switch forged.PrivateKey.(type) {
			case ed25519.PrivateKey:
				_, forged.PrivateKey, err = ed25519.GenerateKey(rand.Reader)
			default:
				forged.PrivateKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			}
			if err != nil {
				t.Fatal(err)
			}
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &forged, nil }
			c := tls.Client(dial(), cfg)
			_ = sendMessage(c, join) // or it has hung up
			var reply hello
			if err := receiveMessage(c, maxHello, &reply); err == nil || reply.Cookie != "" {
				t.Errorf("it is answered: %+v", reply)
			}
		},
	}
	for name, attack := range attacks {
		before := one.Stats()
		attack()
		eventually(t, name+": refused", func() bool { return one.Stats().Refused > before.Refused })
		if s := one.Stats(); s.Sessions != before.Sessions || len(one.ups()) != 0 {
			t.Errorf("%s: %+v, before %+v", name, s, before)
		}
	}
	// The member itself is welcome.
	two := open(t, other, selfOf(2), nil, one).run()
	two.awaits(1)
}
