package multicast

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/fabric"
)

// fakeRegistry keeps what was joined.
type fakeRegistry struct {
	groups map[netip.Addr]bool
	log    []string
	err    error
}

func (f *fakeRegistry) Join(g netip.Addr) (fabric.GroupID, error) {
	if f.err != nil {
		return 0, f.err
	}
	f.log = append(f.log, "+"+g.String())
	f.groups[g] = true
	return 1, nil
}

func (f *fakeRegistry) Leave(g netip.Addr) error {
	f.log = append(f.log, "-"+g.String())
	delete(f.groups, g)
	return f.err
}

func (f *fakeRegistry) Lookup(b []byte) (fabric.GroupID, bool) {
	a, _ := netip.AddrFromSlice(b)
	return 1, f.groups[a]
}

// clocked are Members with a clock.
type clocked struct {
	*Members
	t   testing.TB
	now time.Time
	reg *fakeRegistry
}

func newClocked(t testing.TB, cfg Config) *clocked {
	c := &clocked{t: t, now: time.Unix(1, 0), reg: &fakeRegistry{groups: make(map[netip.Addr]bool)}}
	cfg.Registry = c.reg
	var err error
	if c.Members, err = NewMembers(cfg, c.now); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *clocked) report(r ...Record) {
	c.t.Helper()
	if !c.Packet(c.now, report(r...)) {
		c.t.Fatalf("%v was not taken for a report", r)
	}
}

// advance lets time pass, with a Tick whenever one is due, and returns the
// number of queries.
func (c *clocked) advance(d time.Duration) (queries int) {
	for end := c.now.Add(d); ; {
		q, next := c.Tick(c.now)
		if q {
			queries++
		}
		if !next.After(c.now) {
			c.t.Fatal("Tick is due at once, and again")
		}
		if next.After(end) {
			c.now = end
			return queries
		}
		c.now = next
	}
}

// expect fails the test unless just these joins (+) and leaves (-) were made
// since the last call.
func (c *clocked) expect(log ...string) {
	c.t.Helper()
	if !slices.Equal(c.reg.log, log) {
		c.t.Fatalf("%v, want %v", c.reg.log, log)
	}
	c.reg.log = nil
}

// Sequences of records, and what comes of them.
func TestMembersRecords(t *testing.T) {
	kinds := map[string]Kind{"IN": IsInclude, "EX": IsExclude, "TO_IN": ChangeToInclude, "TO_EX": ChangeToExclude, "ALLOW": AllowSources, "BLOCK": BlockSources}
	for _, tt := range []struct{ reports, want string }{
		{"TO_EX", "+"},
		{"TO_EX TO_EX EX", "+"},
		{"TO_EX TO_IN", "+-"},
		{"TO_EX TO_IN TO_IN", "+-"},
		{"TO_EX TO_IN TO_EX", "+-+"},
		{"TO_EX:1,2", "+"}, // all but those
		{"TO_EX BLOCK:1 ALLOW:1", "+"},
		{"TO_EX TO_IN:1", "+"},
		{"TO_EX TO_IN:1 BLOCK:1", "+-"},
		{"TO_EX IN:1,2 BLOCK:1", "+"},
		{"ALLOW:1", "+"},
		{"ALLOW:1 BLOCK:2", "+"},
		{"ALLOW:1 BLOCK:1", "+-"},
		{"ALLOW:1 ALLOW:2 BLOCK:1", "+"},
		{"ALLOW:1 ALLOW:2 BLOCK:1 BLOCK:2", "+-"},
		{"ALLOW:1 BLOCK:1 BLOCK:1 ALLOW:1", "+-+"},
		{"IN:1 IN:2 BLOCK:2", "+"}, // one state in two reports
		{"ALLOW:1 TO_EX BLOCK:1", "+"},
		{"ALLOW:1 TO_EX TO_IN", "+-"},
		{"ALLOW:1 TO_IN", "+-"},
		{"TO_IN", ""},
		{"IN", ""},
		{"ALLOW", ""},
		{"BLOCK:1", ""},
	} {
		for _, family := range []struct{ group, source string }{{"232.1.1.1", "10.0.0.%s"}, {"ff35::1", "fd00::%s"}} {
			t.Run(tt.reports+"/"+family.group, func(t *testing.T) {
				c := newClocked(t, Config{})
				for s := range strings.FieldsSeq(tt.reports) {
					kind, list, _ := strings.Cut(s, ":")
					r := Record{Group: addr(family.group), Kind: kinds[kind]}
					for s := range strings.SplitSeq(list, ",") {
						if s != "" {
							r.Sources = append(r.Sources, addr(fmt.Sprintf(family.source, s)))
						}
					}
					c.report(r)
				}
				var want []string
				for _, w := range tt.want {
					want = append(want, string(w)+family.group)
				}
				c.expect(want...)
				if got, want := c.Stats().Groups, len(c.reg.groups); got != want {
					t.Errorf("%d groups, want %d", got, want)
				}
			})
		}
	}
}

// A membership that is not reported again lapses; one that is does not.
func TestMembersLapse(t *testing.T) {
	c := newClocked(t, Config{})
	a, b, s := addr("239.1.1.1"), addr("ff15::1"), addr("232.1.1.1")
	c.report(Record{a, ChangeToExclude, nil}, Record{s, AllowSources, []netip.Addr{addr("10.0.0.1"), addr("10.0.0.2")}})
	c.report(Record{b, ChangeToExclude, nil})
	c.expect("+239.1.1.1", "+232.1.1.1", "+ff15::1")
	c.advance(200 * time.Second)
	c.report(Record{b, IsExclude, nil})
	c.report(Record{s, IsInclude, []netip.Addr{addr("10.0.0.2")}})
	c.advance(59 * time.Second) // 259 s
	c.expect()
	c.advance(time.Second)
	c.expect("-239.1.1.1")
	c.advance(199 * time.Second) // 459 s
	c.expect()
	c.advance(time.Second)
	slices.Sort(c.reg.log)
	c.expect("-232.1.1.1", "-ff15::1")
	if st := c.Stats(); st.Lapses != 3 || st.Leaves != 0 || st.Joins != 3 || st.Groups != 0 {
		t.Errorf("%+v", st)
	}
}

// Queries come soon after the start, then at the interval.
func TestMembersQueries(t *testing.T) {
	c := newClocked(t, Config{})
	for _, tt := range []struct {
		d    time.Duration
		want int
	}{{31 * time.Second, 0}, {time.Second, 1}, {124 * time.Second, 0}, {time.Second, 1}, {1250 * time.Second, 10}} {
		if got := c.advance(tt.d); got != tt.want {
			t.Errorf("%d queries in %v, want %d", got, tt.d, tt.want)
		}
	}
	if got := len(c.Queries(netip.Addr{})); got != 1 {
		t.Errorf("%d queries without IPv6", got)
	}
	if got := len(c.Queries(addr("fe80::1"))); got != 2 {
		t.Errorf("%d queries", got)
	}
}

func TestMembersEverybody(t *testing.T) {
	c := newClocked(t, Config{})
	for _, g := range []string{"224.0.0.1", "224.0.0.251", "ff02::fb", "ff02::1:ff00:1"} {
		c.report(Record{addr(g), ChangeToExclude, nil})
	}
	c.expect()
}

// What one host can make a node remember is bounded.
func TestMembersLimits(t *testing.T) {
	c := newClocked(t, Config{})
	for i := range MaxGroups + 10 {
		c.report(Record{netip.AddrFrom4([4]byte{239, 1, byte(i >> 8), byte(i)}), ChangeToExclude, nil})
	}
	if s := c.Stats(); s.Groups != MaxGroups || s.Refused != 10 {
		t.Errorf("%+v", s)
	}
	c = newClocked(t, Config{})
	g := addr("232.1.1.1")
	for i := range maxSources + 1 {
		c.report(Record{g, AllowSources, []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}})
	}
	c.report(Record{g, BlockSources, []netip.Addr{addr("10.0.0.0")}})
	c.expect("+232.1.1.1")
	c.report(Record{g, ChangeToInclude, nil})
	c.expect("-232.1.1.1")
}

// A join that the Registry refuses is tried again at the next report.
func TestMembersRegistryFails(t *testing.T) {
	c := newClocked(t, Config{})
	r := Record{addr("239.1.1.1"), ChangeToExclude, nil}
	c.reg.err = errors.New("no")
	c.report(r)
	if s := c.Stats(); s.Groups != 0 || s.Failures != 1 {
		t.Errorf("%+v", s)
	}
	c.reg.err = nil
	c.report(r)
	c.expect("+239.1.1.1")
}

func TestMembersBadReport(t *testing.T) {
	c := newClocked(t, Config{})
	p := report(Record{addr("239.1.1.1"), ChangeToExclude, nil})
	p[len(p)-1]++
	if !c.Packet(c.now, p) || c.Stats().Bad != 1 {
		t.Errorf("%+v", c.Stats())
	}
	if c.Packet(c.now, IGMPQuery(time.Second, time.Second, 2)) {
		t.Error("a query was taken for a report")
	}
	c.expect()
}

func TestMembersClose(t *testing.T) {
	c := newClocked(t, Config{})
	c.report(Record{addr("239.1.1.1"), ChangeToExclude, nil})
	if got := maps.Collect(c.All()); got[addr("239.1.1.1")] != 1 || len(got) != 1 {
		t.Errorf("member of %v", got)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.report(Record{addr("239.1.1.2"), ChangeToExclude, nil})
	c.expect("+239.1.1.1", "-239.1.1.1")
}

func TestMembersConfig(t *testing.T) {
	reg := &fakeRegistry{}
	for _, cfg := range []Config{
		{},
		{Registry: reg, QueryInterval: -1},
		{Registry: reg, QueryInterval: time.Second, ResponseTime: time.Minute},
		{Registry: reg, ResponseTime: -1},
		{Registry: reg, Robustness: 8},
		{Registry: reg, Robustness: -1},
	} {
		if _, err := NewMembers(cfg, time.Time{}); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	if _, err := NewMembers(Config{Registry: reg, QueryInterval: time.Second}, time.Time{}); err != nil {
		t.Error(err)
	}
}

// Of several hosts none speaks for the others: what one leaves is left when nobody reports
// it any more.
func TestMembersShared(t *testing.T) {
	c := newClocked(t, Config{Shared: true})
	g := netip.MustParseAddr("239.1.2.3")
	s := netip.MustParseAddr("10.2.0.1")
	c.report(Record{Kind: ChangeToExclude, Group: g})
	c.expect("+239.1.2.3")
	for _, k := range []Kind{ChangeToInclude, IsInclude} {
		c.report(Record{Kind: k, Group: g})
		c.report(Record{Kind: k, Group: g, Sources: []netip.Addr{s}})
	}
	c.report(Record{Kind: BlockSources, Group: g, Sources: []netip.Addr{s}})
	c.expect()
	c.advance(c.cfg.lapse() + time.Second)
	c.expect("-239.1.2.3")
	c.report(Record{Kind: AllowSources, Group: g, Sources: []netip.Addr{s}})
	c.report(Record{Kind: BlockSources, Group: g, Sources: []netip.Addr{s}})
	c.expect("+239.1.2.3")
}
