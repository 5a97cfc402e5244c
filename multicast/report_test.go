package multicast

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Golden messages, from the figures of the RFCs.
var messages = []struct {
	name   string
	packet []byte
	want   []Record
}{
	{"igmpv1 report", igmp([]byte{
		0x12, // type
		0,    // unused
		0, 0, // checksum
		239, 1, 2, 3, // group
	}, 1), []Record{{addr("239.1.2.3"), ChangeToExclude, nil}}},
	{"igmpv2 report", igmp([]byte{0x16, 0, 0, 0, 239, 1, 2, 3}, 1), []Record{{addr("239.1.2.3"), ChangeToExclude, nil}}},
	{"igmpv2 leave", igmp([]byte{0x17, 0, 0, 0, 239, 1, 2, 3}, 1), []Record{{addr("239.1.2.3"), ChangeToInclude, nil}}},
	{"igmpv3 report", igmp([]byte{
		0x22, 0, 0, 0,
		0, 0, // reserved
		0, 3, // records
		4, 0, 0, 0, // to EXCLUDE, no auxiliary data, no sources
		239, 1, 2, 3,
		5, 1, 0, 2, // allow, 4 bytes of auxiliary data, 2 sources
		232, 1, 1, 1,
		10, 0, 0, 1,
		10, 0, 0, 2,
		9, 9, 9, 9, // auxiliary data
		7, 0, 0, 0, // unknown type: ignored
		239, 1, 2, 4,
	}, 1), []Record{
		{addr("239.1.2.3"), ChangeToExclude, nil},
		{addr("232.1.1.1"), AllowSources, []netip.Addr{addr("10.0.0.1"), addr("10.0.0.2")}},
	}},
	{"mldv1 report", mld(append([]byte{
		131, 0, 0, 0, // type, code, checksum
		0, 0, 0, 0, // delay, reserved
	}, addr("ff15::1").AsSlice()...), 1), []Record{{addr("ff15::1"), ChangeToExclude, nil}}},
	{"mldv1 done", mld(append([]byte{132, 0, 0, 0, 0, 0, 0, 0}, addr("ff15::1").AsSlice()...), 1),
		[]Record{{addr("ff15::1"), ChangeToInclude, nil}}},
	{"mldv2 report", mld(bytes.Join([][]byte{
		{143, 0, 0, 0, 0, 0, 0, 2},
		{6, 0, 0, 1}, addr("ff35::1").AsSlice(), addr("fd00::1").AsSlice(),
		{2, 0, 0, 0}, addr("ff15::1").AsSlice(),
	}, nil), 1), []Record{
		{addr("ff35::1"), BlockSources, []netip.Addr{addr("fd00::1")}},
		{addr("ff15::1"), IsExclude, nil},
	}},
	{"unicast address", igmp([]byte{0x16, 0, 0, 0, 10, 1, 2, 3}, 1), nil},
}

func TestReadReport(t *testing.T) {
	for _, m := range messages {
		t.Run(m.name, func(t *testing.T) {
			got, ok, err := ReadReport(m.packet)
			if !ok || err != nil || !reflect.DeepEqual(got, m.want) {
				t.Errorf("%v, %v, %v; want %v", got, ok, err, m.want)
			}
		})
	}
}

// A message that is cut is none, or bad: the packet says how long it is.
func TestReadReportCut(t *testing.T) {
	for _, m := range messages {
		for n := range m.packet {
			if got, ok, err := ReadReport(m.packet[:n]); ok && err == nil {
				t.Errorf("%s, %d of %d bytes: %v", m.name, n, len(m.packet), got)
			}
		}
	}
}

// The message itself is cut, in a packet that is whole.
func TestReadReportShort(t *testing.T) {
	v3 := []byte{0x22, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 1, 239, 1, 2, 3, 10, 0, 0, 1}
	for n := 1; n < len(v3); n++ {
		if _, ok, err := ReadReport(igmp(bytes.Clone(v3[:n]), 1)); !ok || !errors.Is(err, ErrReport) {
			t.Errorf("IGMP, %d bytes: %v, %v", n, ok, err)
		}
	}
	v2 := append([]byte{143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0}, addr("ff15::1").AsSlice()...)
	for n := 8; n < len(v2); n++ {
		if _, ok, err := ReadReport(mld(bytes.Clone(v2[:n]), 1)); !ok || !errors.Is(err, ErrReport) {
			t.Errorf("MLDv2, %d bytes: %v, %v", n, ok, err)
		}
	}
	v1 := append([]byte{131, 0, 0, 0, 0, 0, 0, 0}, addr("ff15::1").AsSlice()...)
	for n := 8; n < len(v1); n++ {
		if _, ok, err := ReadReport(mld(bytes.Clone(v1[:n]), 1)); !ok || !errors.Is(err, ErrReport) {
			t.Errorf("MLDv1, %d bytes: %v, %v", n, ok, err)
		}
	}
}

func TestReadReportDamaged(t *testing.T) {
	for _, m := range messages {
		p := bytes.Clone(m.packet)
		p[len(p)-1] ^= 1
		if _, ok, err := ReadReport(p); !ok || !errors.Is(err, ErrReport) {
			t.Errorf("%s: %v, %v", m.name, ok, err)
		}
	}
}

func TestReadReportOther(t *testing.T) {
	fragment := igmp([]byte{0x16, 0, 0, 0, 239, 1, 2, 3}, 1)
	fragment[6] |= 0x20 // more fragments
	for name, p := range map[string][]byte{
		"empty":        nil,
		"no IP":        make([]byte, 40),
		"ttl":          igmp([]byte{0x16, 0, 0, 0, 239, 1, 2, 3}, 2),
		"hop limit":    mld(append([]byte{131, 0, 0, 0, 0, 0, 0, 0}, addr("ff15::1").AsSlice()...), 64),
		"igmp query":   IGMPQuery(time.Second, time.Minute, 2),
		"mld query":    MLDQuery(addr("fe80::1"), time.Second, time.Minute, 2),
		"igmp nothing": igmp(nil, 1),
		"mld nothing":  mld(nil, 1),
		"pim":          igmp([]byte{0x14, 0, 0, 0, 239, 1, 2, 3}, 1),
		"fragment":     fragment,
	} {
		if got, ok, err := ReadReport(p); ok || err != nil || got != nil {
			t.Errorf("%s: %v, %v, %v", name, got, ok, err)
		}
	}
}

func FuzzReadReport(f *testing.F) {
	for _, m := range messages {
		f.Add(m.packet)
	}
	f.Add(IGMPQuery(time.Second, time.Minute, 2))
	f.Fuzz(func(t *testing.T, p []byte) {
		before := bytes.Clone(p)
		records, ok, err := ReadReport(p)
		if !bytes.Equal(p, before) {
			t.Fatal("wrote to a borrowed packet")
		}
		if (!ok || err != nil) && records != nil {
			t.Errorf("%v with %v, %v", records, ok, err)
		}
		c := newClocked(t, Config{})
		if c.Packet(c.now, p) != ok {
			t.Error("Members disagree on what a report is")
		}
		if got := c.Stats().Groups; got != len(c.reg.groups) {
			t.Errorf("%d groups, the registry has %d", got, len(c.reg.groups))
		}
		c.advance(DefaultRobustness*DefaultQueryInterval + DefaultResponseTime)
		if len(c.reg.groups) != 0 {
			t.Errorf("%v did not lapse", c.reg.groups)
		}
		for _, r := range records {
			if !r.Group.IsMulticast() || r.Kind < IsInclude || r.Kind > BlockSources {
				t.Errorf("record %v", r)
			}
		}
	})
}

// Queries are what another decoder takes for them.
func TestQueries(t *testing.T) {
	p := gopacket.NewPacket(IGMPQuery(10*time.Second, 125*time.Second, 2), layers.LayerTypeIPv4, gopacket.Default)
	ip := p.NetworkLayer().(*layers.IPv4)
	q, ok := p.Layer(layers.LayerTypeIGMP).(*layers.IGMP)
	if !ok || q.Type != layers.IGMPMembershipQuery || q.MaxResponseTime != 10*time.Second ||
		q.IntervalTime != 125*time.Second/10 || // it takes the code's unit for that of the response
		q.RobustnessValue != 2 || !q.GroupAddress.IsUnspecified() || q.NumberOfSources != 0 {
		t.Errorf("IGMP query %+v", q)
	}
	if ip.TTL != 1 || ip.TOS != 0xc0 || ip.DstIP.String() != "224.0.0.1" || !ip.SrcIP.IsUnspecified() ||
		len(ip.Options) == 0 || ip.Options[0].OptionType != 148 {
		t.Errorf("IPv4 header %+v", ip)
	}
	if err := p.ErrorLayer(); err != nil {
		t.Error(err.Error())
	}
	p = gopacket.NewPacket(MLDQuery(addr("fe80::1"), 10*time.Second, 125*time.Second, 2), layers.LayerTypeIPv6, gopacket.Default)
	m, ok := p.Layer(layers.LayerTypeMLDv2MulticastListenerQuery).(*layers.MLDv2MulticastListenerQueryMessage)
	if !ok {
		t.Fatalf("MLD query %v", p)
	}
	if m.MaximumResponseCode != 10000 || m.QueriersRobustnessVariable != 2 || m.QueriersQueryIntervalCode != 125 {
		t.Errorf("MLD query %+v", m)
	}
	if ip := p.NetworkLayer().(*layers.IPv6); ip.HopLimit != 1 || ip.DstIP.String() != "ff02::1" {
		t.Errorf("IPv6 header %+v", ip)
	}
	// Times that have no plain code.
	if got := IGMPQuery(time.Hour, time.Hour, 2)[24+1]; got != 127 {
		t.Errorf("response code %d", got)
	}
	if got := IGMPQuery(time.Millisecond, time.Second, 2)[24+1]; got != 1 {
		t.Errorf("response code %d", got)
	}
}
