package connstats

import (
	"cmp"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/wire"
)

// Connection is one end of a connection, as its client's statistics show it. Its
// JSON form is part of what "exn-tun status --sockets --json" prints.
type Connection struct {
	Program string         `json:"program"`
	PID     int            `json:"pid"` // as the broker sees it; 0: it does not
	Local   netip.AddrPort `json:"local"`
	Remote  netip.AddrPort `json:"remote"`
	Server  bool           `json:"server"` // this end accepted
	// UDP: it is a flow of datagrams; Server is its receiver.
	UDP    bool   `json:"udp,omitempty"`
	Mode   string `json:"mode"`
	Reason string `json:"reason,omitempty"` // why it is in this mode
	// Rule is the operator's that says whether it may be direct (exn-tun direct). "": none does.
	Rule   string    `json:"rule,omitempty"`
	Path   string    `json:"path"`           // what carries its bytes: shm, fabric or tcp
	RDMA   bool      `json:"rdma,omitempty"` // the fabric does because RDMA hardware joins the hosts
	Device int       `json:"virtual_device"`
	FD     int       `json:"fd"`
	Since  time.Time `json:"since"`
	// DirectSince is when it last became direct, if it is; zero: its library does not tell.
	DirectSince time.Time `json:"direct_since,omitzero"`
	// Returns is how often it was direct and went back to TCP, as its ends have told each other.
	Returns uint64 `json:"returns,omitempty"`

	Sent     Traffic `json:"sent"`
	Received Traffic `json:"received"`

	RingUsed  uint64 `json:"ring_used"` // outbound ring, bytes
	RingSize  uint64 `json:"ring_size"`
	Sleeps    uint64 `json:"sleeps"`
	WakeUps   uint64 `json:"wake_ups"` // sent
	SpinHits  uint64 `json:"spin_hits"`
	SpinFails uint64 `json:"spin_fails"`

	// Entry is the place in the table, and Seq the number of this use of it.
	Entry int    `json:"-"`
	Seq   uint32 `json:"-"`
	Why   Why    `json:"-"` // Reason as a number
	Via   Path   `json:"-"` // what carries or has carried what was direct
	// Heeds: its program looks whether it is switched off. Off: it is.
	Heeds bool   `json:"-"`
	Off   bool   `json:"-"`
	Draw  uint32 `json:"-"` // of its segment's nonce; 0: it has none yet
}

// directSince is when a direct connection became that. The program may say anything: what is not
// past is left out.
func directSince(c *Connection, units uint64) (at time.Time) {
	if c.Mode != ModeDirect.String() || units == 0 {
		return at
	}
	if then := c.Since.Add(time.Duration(units-1) * sinceUnit); !then.After(time.Now()) {
		at = then
	}
	return at
}

// countReturns returns how often a connection went back to TCP. Who goes back says DEMOTE or PAUSE,
// but where the network is cut.
func countReturns(c *Connection) uint64 {
	switch n := max(c.Sent.Demote, c.Received.Demote); {
	case c.UDP: // which counts other things there
		return 0
	case n == 0 && c.Mode == ModeDemoted.String() && c.Sent.DirectBytes+c.Received.DirectBytes > 0:
		return 1
	default:
		return n
	}
}

// Demoted shows a direct connection as one that went back to TCP, which its program has not said
// yet.
func (c *Connection) Demoted(why Why) {
	c.Mode, c.Path, c.RDMA, c.DirectSince = ModeDemoted.String(), "tcp", false, time.Time{}
	c.Why, c.Reason = why, why.String()
	c.Returns++
}

// ServerEnd is the server's end, as this end has it.
func (c *Connection) ServerEnd() netip.AddrPort {
	if c.Server {
		return c.Local
	}
	return c.Remote
}

// ClientEnd is the client's end, as this end has it.
func (c *Connection) ClientEnd() netip.AddrPort {
	if c.Server {
		return c.Remote
	}
	return c.Local
}

// Sort puts connections in the order of their set-up.
func Sort(all []*Connection) {
	slices.SortFunc(all, func(a, b *Connection) int {
		return cmp.Or(a.Since.Compare(b.Since), a.Local.Compare(b.Local), a.Remote.Compare(b.Remote), cmp.Compare(a.PID, b.PID))
	})
}

// Traffic is what went one way.
type Traffic struct {
	DirectBytes   uint64 `json:"direct_bytes"`
	ShadowBytes   uint64 `json:"shadow_bytes"`
	ZeroCopyBytes uint64 `json:"zero_copy_bytes"`
	VELO          uint64 `json:"velo"`
	VELOLast      uint64 `json:"velo_last"`
	RMAInfo       uint64 `json:"rma_info"`
	RMAAvail      uint64 `json:"rma_avail"`
	Shutdown      uint64 `json:"shutdown"`
	Demote        uint64 `json:"demote"`
}

// Read returns the open connections in a client's statistics, which it borrows.
// What is no table, or changes hands, is left out, and so is what is beyond limit. It reads
// the file, and does not map it: so no page comes into being by being looked at. It reads no more
// entries than budget says, and takes those that it has read from it: who wrote the table decides
// how many there are.
func Read(fd, limit int, budget *int) []Connection {
	return readBelow(ModeClosed, fd, limit, budget)
}

// ReadAll is Read of a table that may have MaxEntries entries, closed connections included.
func ReadAll(fd int) []Connection {
	budget := MaxEntries
	return readBelow(modeSum, fd, MaxEntries, &budget)
}

// readBelow is Read of the entries whose mode is below end.
func readBelow(end Mode, fd, limit int, budget *int) (all []Connection) {
	scanEntries(fd, budget, func(b []byte) bool { return Mode(b[entryModeOff]) < end }, func(index int, seq uint32, b []byte) bool {
		if len(all) >= limit {
			return false
		}
		c := parseEntry(b)
		c.Entry, c.Seq = index, seq
		all = append(all, c)
		return true
	})
	return all
}

// scanEntries calls f with each entry that is wanted, is in use and does not change hands, until
// it returns false or the budget of entries is used up. It lends b.
func scanEntries(fd int, budget *int, wanted func(b []byte) bool, f func(index int, seq uint32, b []byte) bool) {
	entries, _, err := readHeader(fd)
	if err != nil {
		return
	}
	const batch = 64
	buf, again := make([]byte, batch*entryLen), make([]byte, batch*entryLen)
	end := int64(statsHeaderLen + entries*entryLen)
	for off := int64(statsHeaderLen); off < end; {
		// Beyond what was never touched.
		data, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if err != nil {
			return // nothing follows
		}
		off += (data - off) / entryLen * entryLen
		n := int(min(end-off, int64(len(buf))))
		if *budget -= n / entryLen; n <= 0 || *budget < 0 || !readAll(fd, buf[:n], off) {
			return
		}
		twice := false // again is there
		for at := 0; at < n; at += entryLen {
			seq := binary.LittleEndian.Uint32(buf[at+entrySeqOff:])
			if seq == 0 || seq&1 != 0 || !wanted(buf[at:at+entryLen]) {
				continue
			}
			if !twice && !readAll(fd, again[:n], off) {
				return
			}
			if twice = true; binary.LittleEndian.Uint32(again[at+entrySeqOff:]) != seq {
				continue
			}
			if !f(int(off-statsHeaderLen+int64(at))/entryLen, seq, buf[at:at+entryLen]) {
				return
			}
		}
		off += int64(n)
	}
}

func readAll(fd int, b []byte, off int64) bool {
	n, err := unix.Pread(fd, b, off)
	return err == nil && n == len(b)
}

func parseEntry(b []byte) Connection {
	client, server := wire.ParseEnds(b[entryEndsOff:])
	c := Connection{
		Path: "tcp", Local: client, Remote: server, Server: b[entrySideOff] == 1,
		Mode: Mode(b[entryModeOff]).String(), Reason: Why(b[entryReasonOff]).String(),
		Device: int(b[entryDeviceOff]), FD: int(int32(binary.LittleEndian.Uint32(b[entryFDOff:]))),
		Since: time.Unix(0, int64(binary.LittleEndian.Uint64(b[entryTimeOff:]))),
		Why:   Why(b[entryReasonOff]), UDP: b[entryUDPOff] == 1,
		Heeds: b[entryHeedsOff] == 1, Off: b[entrySwitchOff] != 0, Draw: binary.LittleEndian.Uint32(b[entrySwitchOff:]) >> 8,
	}
	if c.UDP {
		c.Path = "udp"
	}
	if c.Server {
		c.Local, c.Remote = server, client
	}
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[entryCountOff+8*i:]) }
	way := func(dir int) Traffic {
		messages := 4 + 6*dir
		return Traffic{
			DirectBytes: n(dir), ShadowBytes: n(2 + dir), ZeroCopyBytes: n(22 + dir),
			VELO: n(messages), VELOLast: n(messages + 1), RMAInfo: n(messages + 2),
			RMAAvail: n(messages + 3), Shutdown: n(messages + 4), Demote: n(messages + 5),
		}
	}
	c.Sent, c.Received = way(0), way(1)
	if c.Via = Path(b[entryPathOff]); Mode(b[entryModeOff]) == ModeDirect && c.Via <= PathRDMA {
		c.Path, c.RDMA = c.Via.String(), c.Via == PathRDMA
	}
	c.RingUsed, c.RingSize = n(16), n(17)&math.MaxUint32
	c.DirectSince, c.Returns = directSince(&c, n(17)>>32), countReturns(&c)
	c.Sleeps, c.WakeUps, c.SpinHits, c.SpinFails = n(18), n(19), n(20), n(21)
	return c
}
