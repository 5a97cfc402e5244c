package directsockets

import (
	"net/netip"
	"testing"

	"exnet/directsockets/segment"
	"exnet/internal/rules"
)

// TestDecide has the rules of the process decide, and loopback addresses be included
// unless Config.ByRule says that they need to be named.
func TestDecide(t *testing.T) {
	old := policy
	defer func() { policy = old }()
	here, there := netip.MustParseAddrPort("127.0.0.1:80"), netip.MustParseAddrPort("10.2.0.1:80")
	tcp, err := rules.Compiled("t p s 00000000000000000000000000000000 0 80 80")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		policy rules.Policy
		byRule bool
		side   segment.Side
		server netip.AddrPort
		want   Reason
	}{
		{"nothing set", rules.Policy{}, false, segment.Client, here, ReasonNone},
		{"nothing set, by rule", rules.Policy{}, true, segment.Client, here, ReasonNotIncluded},
		{"by rule, not loopback", rules.Policy{}, true, segment.Client, there, ReasonNone},
		{"by rule, included", rules.Policy{Loopback: true}, true, segment.Client, here, ReasonNone},
		{"rules that do not match", rules.Policy{Set: true, Rules: tcp, Program: "q"}, false, segment.Server, here, ReasonNone},
		{"a rule of the other role", rules.Policy{Set: true, Rules: tcp, Program: "p"}, false, segment.Client, there, ReasonNone},
		{"a rule", rules.Policy{Set: true, Rules: tcp, Program: "p"}, false, segment.Server, there, ReasonRule},
		{"a rule, by rule", rules.Policy{Set: true, Rules: tcp, Program: "p", Loopback: true}, true, segment.Server, here, ReasonRule},
		{"malformed", rules.Policy{Set: true, Off: true}, false, segment.Server, there, ReasonRule},
		{"no address", rules.Policy{Set: true}, false, segment.Server, netip.AddrPort{}, ReasonRule},
	} {
		policy = func() *rules.Policy { return &tt.policy }
		if got := (&Config{ByRule: tt.byRule}).whyTCP(tt.side, tt.server, false); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
