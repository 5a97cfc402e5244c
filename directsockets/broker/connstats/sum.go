package connstats

import (
	"encoding/binary"
	"net/netip"

	"exnet/directsockets/broker/wire"
)

// Total is what connections to one address have moved through memory that both programs map,
// where no link of the fabric sees it.
type Total struct {
	Sent     Amount `json:"sent"`
	Received Amount `json:"received"`
	Waits
	// Returns is how often the programs have told the other ends that they go back to TCP.
	Returns uint64 `json:"returns,omitempty"`
}

// Waits says how the programs have waited for data: they spin for a short time, and then sleep.
type Waits struct {
	Sleeps    uint64 `json:"sleeps,omitempty"`
	SpinHits  uint64 `json:"spin_hits,omitempty"` // that found data
	SpinFails uint64 `json:"spin_fails,omitempty"`
}

func (w Waits) plus(v Waits) Waits {
	return Waits{w.Sleeps + v.Sleeps, w.SpinHits + v.SpinHits, w.SpinFails + v.SpinFails}
}

func (w Waits) max(v Waits) Waits {
	return Waits{max(w.Sleeps, v.Sleeps), max(w.SpinHits, v.SpinHits), max(w.SpinFails, v.SpinFails)}
}

// Amount is what went one way.
type Amount struct {
	Bytes    uint64 `json:"bytes"`
	Messages uint64 `json:"messages"` // VELO, VELO_LAST and RMA_INFO
}

// Plus is the sum of two.
func (t Total) Plus(u Total) Total {
	return Total{t.Sent.plus(u.Sent), t.Received.plus(u.Received), t.Waits.plus(u.Waits), t.Returns + u.Returns}
}

// Max is the larger one of each number.
func (t Total) Max(u Total) Total {
	return Total{t.Sent.max(u.Sent), t.Received.max(u.Received), t.Waits.max(u.Waits), max(t.Returns, u.Returns)}
}

func (a Amount) max(b Amount) Amount {
	return Amount{max(a.Bytes, b.Bytes), max(a.Messages, b.Messages)}
}
func (a Amount) plus(b Amount) Amount { return Amount{a.Bytes + b.Bytes, a.Messages + b.Messages} }

// maxSums is how many other ends' addresses a table keeps sums of, at most a quarter of its
// entries.
const maxSums = 256

// gauge is the first of the two counters that have no sum: use and size of the ring.
const gauge = 16

// sumLocked adds what a connection that is closed has moved to that of its other end's
// address. Nobody else has the entry.
//
// +checklocks:s.mu
func (s *Table) sumLocked(e *Entry) {
	count := e.Counters()
	if Path(e.words[entryFDOff/8].Load()>>(8*(entryPathOff-entryFDOff))&0xff) != PathMemory || count[0].Load()+count[1].Load() == 0 {
		return
	}
	local, remote := e.bothAddrs()
	sum := s.sums[remote]
	if sum == nil {
		if len(s.sums) >= min(maxSums, s.n/4) {
			return
		}
		index := s.takeLocked()
		if index < 0 {
			return
		}
		sum = &Entry{index: index, words: s.entryWords(index)}
		sum.beginConnection(EntryInfo{Key: wire.Key{Client: netip.AddrPortFrom(local, 0), Server: netip.AddrPortFrom(remote, 0)}}, modeSum)
		sum.SetPath(PathMemory)
		s.sums[remote] = sum
	}
	to := sum.Counters()
	e.words[entryFDOff/8].Or(1 << (8 * (entrySummedOff - entryFDOff))) // before: nobody counts it twice
	for i := range to {
		if i != gauge && i != gauge+1 {
			to[i].Add(count[i].Load())
		}
	}
}

// bothAddrs returns the addresses of both ends.
func (e *Entry) bothAddrs() (local, remote netip.Addr) {
	var ends [40]byte
	for i := range len(ends) / 8 {
		binary.LittleEndian.PutUint64(ends[8*i:], e.words[entryEndsOff/8+i].Load())
	}
	client, server := wire.ParseEnds(ends[:])
	if e.words[0].Load()>>(8*entrySideOff)&0xff == 1 {
		client, server = server, client
	}
	return client.Addr(), server.Addr()
}

// Sum adds up what the connections in a client's statistics have moved through shared memory,
// closed ones included, by the address of the other end, as far as it is one that met knows: the
// client can write any. It borrows fd. It is never too much: a connection that is closed while it
// is added up may be missing. It reads no more entries than budget says, each pass over the table
// included, and takes those that it has read from it.
func Sum(fd int, met func(netip.Addr) bool, budget *int) map[netip.Addr]Total {
	sums := make(map[netip.Addr]Total)
	for _, of := range []bool{true, false} { // a connection's entry says first that it is among a sum
		wanted := func(b []byte) bool {
			return Path(b[entryPathOff]) == PathMemory && (Mode(b[entryModeOff]) == modeSum) == of && b[entrySummedOff] == 0 && met(remoteOf(b))
		}
		scanEntries(fd, budget, wanted, func(_ int, _ uint32, b []byte) bool {
			c := parseEntry(b)
			waits := Waits{c.Sleeps, c.SpinHits, c.SpinFails}
			sums[c.Remote.Addr()] = sums[c.Remote.Addr()].Plus(Total{c.Sent.amount(), c.Received.amount(), waits, c.Sent.Demote})
			return true
		})
	}
	return sums
}

// remoteOf is the address of the other end of an entry's connection.
func remoteOf(b []byte) netip.Addr {
	client, server := wire.ParseEnds(b[entryEndsOff:])
	if b[entrySideOff] == 1 {
		return client.Addr()
	}
	return server.Addr()
}

func (t Traffic) amount() Amount { return Amount{t.DirectBytes, t.VELO + t.VELOLast + t.RMAInfo} }
