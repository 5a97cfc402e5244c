package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseRules(t *testing.T) {
	text := `
# a comment

tcp    ssh*   client  *               22     # not the shell
direct redis* *       127.0.0.0/8     6379-6380
tcp    *      server  fd00:10:2::1    any
direct *      any     ::ffff:10.2.0.1 *      class=10
tcp    *      *       *               *      class=0
direct *      *       *               53     proto=udp class=4 reliable
tcp    *      *       *               53     proto=udp
direct *      *       *               80     proto=tcp
`
	want := []Rule{
		{TCP, "ssh*", Client, netip.Prefix{}, 22, 22, 0, false, AnyProto},
		{Direct, "redis*", AnyRole, netip.MustParsePrefix("127.0.0.0/8"), 6379, 6380, 0, false, AnyProto},
		{TCP, "*", Server, netip.MustParsePrefix("fd00:10:2::1/128"), 0, 65535, 0, false, AnyProto},
		{Direct, "*", AnyRole, netip.MustParsePrefix("10.2.0.1/32"), 0, 65535, 10, true, AnyProto},
		{TCP, "*", AnyRole, netip.Prefix{}, 0, 65535, 0, true, AnyProto},
		{Direct, "*", AnyRole, netip.Prefix{}, 53, 53, 4, true, ReliableUDP},
		{TCP, "*", AnyRole, netip.Prefix{}, 53, 53, 0, false, ProtoUDP},
		{Direct, "*", AnyRole, netip.Prefix{}, 80, 80, 0, false, ProtoTCP},
	}
	got, err := Parse(strings.NewReader(text), "r")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Rules(want), got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	const compiled = "t ssh* c 00000000000000000000000000000000 0 22 22;" +
		"d redis* * 00000000000000000000ffff7f000000 104 6379 6380;" +
		"t * s fd000010000200000000000000000001 128 0 65535;" +
		"d * * 00000000000000000000ffff0a020001 128 0 65535 10;" +
		"t * * 00000000000000000000000000000000 0 0 65535 0;" +
		"d * * 00000000000000000000000000000000 0 53 53 4 r;" +
		"t * * 00000000000000000000000000000000 0 53 53 - u;" +
		"d * * 00000000000000000000000000000000 0 80 80 - t"
	if c := got.Compile(); c != compiled {
		t.Errorf("compiled:\n%s\nwant\n%s", c, compiled)
	}
}

func TestParseRulesErrors(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"tcp * * *", "too few fields (4): write ACTION PROGRAM"},
		{"tcp * * * * class=1 proto=udp reliable 2", "too many fields (9): write ACTION PROGRAM"},
		{"tcp * * * * class=1 2", `"2": use class=`},
		{"tcp * * * * class=1 class=1", `"class=1": use class once`},
		{"tcp * * * * proto=sctp", `"proto=sctp": use proto=tcp or proto=udp`},
		{"tcp * * * * proto=udp proto=tcp", `"proto=tcp": use proto once`},
		{"tcp * * * * proto=udp reliable", `"reliable": use it after proto=udp of a direct rule`},
		{"direct * * * * reliable", `"reliable": use it after proto=udp of a direct rule`},
		{"direct * * * * reliable proto=udp", `"reliable": use it after proto=udp of a direct rule`},
		{"tcp * * * * *", `"*": use class= and a number from 0 to 63`},
		{"tcp * * * * 10", `"10": use class=`},
		{"tcp * * * * class=64", `"class=64": use class=`},
		{"tcp * * * * class=", `"class=": use class=`},
		{"tcp * * * * class=-1", `"class=-1": use class=`},
		{"udp * * * *", `action "udp": use direct or tcp`},
		{"tcp /usr/bin/ssh * * *", "without directories"},
		{"tcp a;b * * *", "printable ASCII"},
		{"tcp ü * * *", "printable ASCII"},
		{"tcp " + strings.Repeat("x", 256) + " * * *", "up to 255 characters"},
		{"tcp * both * *", `role "both": use client, server or *`},
		{"tcp * * host *", `address "host"`},
		{"tcp * * 10.2.0.1/24 *", "write 10.2.0.0/24"},
		{"tcp * * ::ffff:10.2.0.0/120 *", "use an IPv4"},
		{"tcp * * fe80::1%lo *", "use an IPv4"},
		{"tcp * * 10.2.0.0/33 *", "use an IPv4"},
		{"tcp * * * 65536", `port "65536": use a number up to 65535`},
		{"tcp * * * 2-1", `port "2-1": use a number up to 65535, a range such as 8000-8099, the lower port first`},
		{"tcp * * * ssh", `port "ssh"`},
		{"tcp * * * 1-", `port "1-"`},
	} {
		_, err := Parse(strings.NewReader("# one\n\n"+tt.line+"\n"), "my.rules")
		if !errors.Is(err, ErrRules) || !strings.Contains(err.Error(), "my.rules:3: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want my.rules:3: ...%s", tt.line, err, tt.want)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// The vectors are evaluated by the library too.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("../../directsockets/preload/testdata/rules.golden")
	if err != nil {
		t.Fatal(err)
	}
	var rules Rules
	var bad error
	asked := 0
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "rules":
			rules, bad = Compiled(rest)
			if bad == nil && rules.Compile() != rest {
				t.Errorf("line %d: compiles to %q", i+1, rules.Compile())
			}
			continue
		case "bad":
			if !errors.Is(bad, ErrRules) {
				t.Errorf("line %d: the rules above are read as %+v, %v", i+1, rules, bad)
			}
			continue
		}
		if bad != nil {
			t.Fatalf("line %d: %v", i+1, bad)
		}
		asked++
		question, want, _ := strings.Cut(rest, " -> ")
		want, class, classed := strings.Cut(want, " ")
		if !classed {
			class = "0"
		}
		q := parseQuestion(t, word, strings.Fields(question))
		q.UDP = word == "udp"
		got := "d"
		if action, notIncluded := rules.Decide(q); notIncluded {
			got = "n"
		} else if action == TCP {
			got = "t"
		} else if action == Reliable {
			got = "r"
		}
		if got != want {
			t.Errorf("line %d: %s: %s", i+1, line, got)
		}
		p := Policy{Rules: rules, Program: q.Program, Loopback: q.Loopback}
		if c := p.ClassOf(q.Role, netip.AddrPortFrom(q.Addr, q.Port)); !q.Listener && !q.UDP && fmt.Sprint(c) != class {
			t.Errorf("line %d: %s: class %d", i+1, line, c)
		}
	}
	if asked < 50 {
		t.Errorf("only %d questions", asked)
	}
}

func parseQuestion(t *testing.T, word string, f []string) Question {
	t.Helper()
	q := Question{Program: f[0], Role: Server, Listener: word == "listen"}
	if q.Program == "-" {
		q.Program = ""
	}
	if !q.Listener {
		if f[1] == "c" {
			q.Role = Client
		}
		f = slices.Delete(f, 1, 2)
	}
	r, err := compiledRule("d * * " + f[1] + " 128 " + f[2] + " " + f[2])
	if err != nil {
		t.Fatal(err)
	}
	q.Addr, q.Port, q.Loopback = r.Addr.Addr(), r.Low, f[3] == "1"
	return q
}

// What is read of a rules file decides the same after it has gone through the
// environment.
func FuzzParseRules(f *testing.F) {
	f.Add("tcp ssh* client * 22\n", "ssh", uint16(22))
	f.Add("direct * server 10.2.0.0/24 1-2\ntcp ? * ::/0 *", "a", uint16(2))
	f.Fuzz(func(t *testing.T, text, program string, port uint16) {
		rules, err := Parse(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		again, err := Compiled(rules.Compile())
		if err != nil {
			t.Fatalf("%v: %q", err, rules.Compile())
		}
		for _, addr := range []string{"10.2.0.1", "127.0.0.1", "::1", "fd00::1", "0.0.0.0", "::"} {
			for _, role := range []Role{Client, Server} {
				q := Question{Program: program, Role: role, Addr: netip.MustParseAddr(addr), Port: port, Listener: role == Server}
				a, n := rules.Decide(q)
				b, m := again.Decide(q)
				if a != b || n != m {
					t.Fatalf("%+v: %v %v, compiled %v %v", q, a, n, b, m)
				}
			}
		}
	})
}
