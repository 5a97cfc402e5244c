package pager

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"exnet/memory/pager/uffd"

	"golang.org/x/sys/unix"
)

// A table keeps what is put into it, and each visits that and nothing else.
func TestTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table, model := newTable(), make(map[uint64]uint32)
	for range 20000 {
		n := random.Uint64N(8 * chunkPages)
		switch random.IntN(4) {
		case 0:
			length := random.Uint64N(chunkPages)
			table.eachPage(n, n+length, func(number uint64, p *page) {
				if number < n || number >= n+length {
					t.Fatalf("page %d is not from %d to %d", number, n, n+length)
				}
				p.resetPage()
			})
			for number := range model {
				if number >= n && number < n+length {
					delete(model, number)
				}
			}
		default:
			place := random.Uint32() | 1
			p := table.makePage(n)
			p.state, p.place = remote, place
			model[n] = place
		}
		look := random.Uint64N(8 * chunkPages)
		p := table.getPage(look)
		if want, ok := model[look]; ok != (p != nil && p.state == remote) || ok && p.place != want {
			t.Fatalf("page %d is %+v, want %d %v", look, p, want, ok)
		}
	}
	table.eachPage(0, 8*chunkPages, func(_ uint64, p *page) { p.resetPage() })
	if len(table.chunks) != 0 {
		t.Errorf("%d chunks are left of an empty table", len(table.chunks))
	}
}

// A queue gives pages in the order in which they came, each once, and none that has left.
func TestQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	table, q := newTable(), queue{}
	var order []uint64
	for range 20000 {
		n := random.Uint64N(300) + 1
		p := table.makePage(n)
		switch {
		case p.state != resident && random.IntN(3) > 0:
			p.state = resident
			q.pushPage(n, p)
			order = append(order, n)
		case p.state == resident && random.IntN(2) == 0: // it leaves unasked
			p.resetPage()
			order = slices.DeleteFunc(order, func(m uint64) bool { return m == n })
		case random.IntN(2) == 0:
			got, page := q.popOldest(&table)
			if len(order) == 0 {
				if page != nil {
					t.Fatalf("page %d of an empty queue", got)
				}
				continue
			}
			if page == nil || got != order[0] {
				t.Fatalf("page %d, want %d", got, order[0])
			}
			page.state = remote
			order = order[1:]
		}
		q.removeVoid(&table, len(order))
	}
}

// A span set is a set of addresses.
func TestSpans(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var s spanSet
	var model [64]bool
	for range 20000 {
		from := random.IntN(64)
		to := from + random.IntN(65-from)
		add := random.IntN(2) == 0
		if add {
			s.add(uint64(from), uint64(to))
		} else {
			s.remove(uint64(from), uint64(to))
		}
		for i := from; i < to; i++ {
			model[i] = add
		}
		for i := range model {
			if s.has(uint64(i)) != model[i] {
				t.Fatalf("%d is in %v: %v, want %v", i, s.spans, !model[i], model[i])
			}
		}
		lacks := spanSet{s.missingSpans(0, 64)}
		for i := range model {
			if lacks.has(uint64(i)) == model[i] {
				t.Fatalf("%v lacks %v: %d", s.spans, lacks.spans, i)
			}
		}
		for i := 1; i < len(s.spans); i++ {
			if s.spans[i-1].End >= s.spans[i].Start {
				t.Fatalf("%v touch", s.spans)
			}
		}
	}
}

// Places are given to one user each, and to more by sharing; no place is lost.
func TestPlaces(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	const most = 100
	s := newPlaces(most * pageSize)
	users := make(map[uint32]int)
	for range 50000 {
		switch random.IntN(3) {
		case 0:
			first, n := s.takeRow(1 + random.IntN(10))
			if n == 0 && len(users) != most {
				t.Fatalf("the store is full with %d places of %d", len(users), most)
			}
			for i := range n {
				place := first + uint32(i)
				if users[place] != 0 || place == 0 || place > most {
					t.Fatalf("place %d was given, which has %d users", place, users[place])
				}
				users[place] = 1
			}
		case 1:
			for place := range users {
				if !s.addUser(place) {
					t.Fatal("a place cannot be shared")
				}
				users[place]++
				break
			}
		default:
			for place := range users {
				s.endUse(place)
				if users[place]--; users[place] == 0 {
					delete(users, place)
				} else if s.hasOneUser(place) != (users[place] == 1) {
					t.Fatalf("place %d has %d users", place, users[place])
				}
				break
			}
		}
		if s.free != most-len(users) {
			t.Fatalf("%d places are free, want %d", s.free, most-len(users))
		}
	}
}

// What is missed in equal steps is fetched ahead, in windows that grow; other pages are not.
func TestStreams(t *testing.T) {
	for _, stride := range []int64{1, -1, 3, 100} {
		s := streams{widest: smallestWidest}
		at, faults, fetched := uint64(1<<30), 0, 0
		for fetched < 4000 {
			faults++
			if found := s.missPage(at); found != nil {
				if found.stride != stride {
					t.Fatalf("stride %d, want %d", found.stride, stride)
				}
				at += uint64(stride) * uint64(found.window)
				fetched += found.window
				found.expectNext(at + uint64(stride))
			}
			at += uint64(stride)
		}
		if faults > 4000/smallestWidest+10 {
			t.Errorf("stride %d: %d faults for %d pages", stride, faults, fetched)
		}
	}
	random := rand.New(rand.NewPCG(9, 10))
	s := streams{widest: largestWindow}
	found := 0
	for range 10000 {
		if s.missPage(random.Uint64N(1<<40)) != nil {
			found++
		}
	}
	if found > 100 {
		t.Errorf("%d of 10000 random pages are in streams", found)
	}
}

// With the oldest pages leave those that are in a row with them, each once, and none that has to
// stay; half of the pages are here, at random.
func TestMoveRows(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	random := rand.New(rand.NewPCG(11, 12))
	g := &Pager{limit: 4096, batch: 256}
	p := &process{agent: ends[0], pages: newTable(), ring: newRing(8192)}
	stays := map[uint64]bool{0: true}
	for _, i := range random.Perm(8000) {
		number := uint64(i + 1)
		page := p.pages.makePage(number)
		if random.IntN(2) == 0 {
			page.state = remote
			continue
		}
		p.noteArrived(number, page, dirty)
		switch random.IntN(100) {
		case 0:
			page.flags |= kept
			stays[number] = true
		case 1:
			page.flags |= oneStay
		}
	}
	left, rows, began := make(map[uint64]bool), 0, p.resident
	for g.startMove(p) {
		raw := make([]byte, headLen+wireEntries*entryLen)
		if n, err := unix.Read(ends[1], raw); err != nil || n != headLen+len(p.entries)*entryLen {
			t.Fatalf("a command of %d bytes with %d entries: %v", n, len(p.entries), err)
		}
		if p.countPages(p.entries) > g.batch {
			t.Fatalf("%d pages at once", p.countPages(p.entries))
		}
		all := make([]done, len(p.entries))
		for i, e := range p.entries {
			for j := range uint64(e.count) {
				if number := e.address/pageSize + j; left[number] || stays[number] || p.pages.getPage(number).state != resident {
					t.Fatalf("page %d leaves: it did already: %v, it is to stay: %v, %+v", number, left[number], stays[number], p.pages.getPage(number))
				}
			}
			all[i] = done{count: e.count}
			if random.IntN(10) == 0 { // the kernel says no to the rest
				all[i] = done{uint32(random.IntN(int(e.count))), uint32(unix.EAGAIN)}
			}
			for j := range uint64(all[i].count) {
				left[e.address/pageSize+j] = true
			}
		}
		rows += len(p.entries)
		g.noteMoved(p, p.entries, all)
		p.busy = 0
	}
	if len(left)+len(stays)-1 != began || p.resident != len(stays)-1 {
		t.Errorf("%d pages have left, %d are here, of %d of which %d stay", len(left), p.resident, began, len(stays)-1)
	}
	if rows*3 > len(left)*2 {
		t.Errorf("%d pages have left in %d rows", len(left), rows)
	}
}

// Hellos and replies that no library sends are refused, whatever they have.
func TestWire(t *testing.T) {
	good := []byte{
		0x31, 0x6d, 0x65, 0x6d, // magic
		0, 0, 0, 0, // why
		7, 0, 0, 0, 0, 0, 0, 0, // token
		0, 0, 1, 0, 0, 0, 0, 0, // base
		0, 0x20, 2, 0, 0, 0, 0, 0, // slots
		0, 0x20, 3, 0, 0, 0, 0, 0, // end
	}
	h, err := parseHello(good)
	if want := (hello{token: 7, base: 0x10000, slots: 0x22000, end: 0x32000}); err != nil || h != want || h.markAddress() != 0x11000 {
		t.Fatalf("%+v (%v), want %+v", h, err, want)
	}
	for n := range good {
		if _, err := parseHello(good[:n]); err == nil {
			t.Errorf("%d bytes are a hello", n)
		}
	}
	if _, err := parseHello(append(slices.Clone(good), 0)); err == nil {
		t.Error("a hello may be longer")
	}
	for at, b := range map[int]byte{0: 0, 17: 1, 25: 1, 26: 0, 33: 1, 34: 1, 39: 1} {
		bad := slices.Clone(good)
		bad[at] = b
		if h, err := parseHello(bad); err == nil {
			t.Errorf("byte %d may be %d: %+v", at, b, h)
		}
	}

	entries := []entry{{0x5000, 3, 4}, {0x9000, 7, 1}}
	command := appendCommand(nil, opMove, entries)
	if want := []byte{
		1, 0, 0, 0, 2, 0, 0, 0,
		0, 0x50, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0,
		0, 0x90, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0,
	}; !bytes.Equal(command, want) {
		t.Errorf("the command is %v, want %v", command, want)
	}
	reply := []byte{1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0}
	all, err := parseReply(reply, opMove, entries)
	if err != nil || !slices.Equal(all, []done{{4, 0}, {0, 11}}) {
		t.Errorf("%v (%v)", all, err)
	}
	for at, b := range map[int]byte{0: 2, 4: 1, 8: 5, 16: 2, 19: 1} {
		bad := slices.Clone(reply)
		bad[at] = b
		if all, err := parseReply(bad, opMove, entries); err == nil {
			t.Errorf("byte %d may be %d: %v", at, b, all)
		}
	}
	if _, err := parseReply(reply[:len(reply)-1], opMove, entries); err == nil {
		t.Error("a reply may be shorter")
	}
}

// Lines of /proc/PID/maps.
func TestAnonymous(t *testing.T) {
	const one, two = 0x7f0000000000, 0x7f0000100000
	both := uffd.Span{Start: one, End: two}
	for line, want := range map[string]area{
		"7f0000000000-7f0000100000 rw-p 00000000 00:00 0 ":                       {Span: both, writable: true},
		"55d0c0000000-55d0c0001000 rw-p 00000000 00:00 0                [heap]":  {Span: uffd.Span{Start: 0x55d0c0000000, End: 0x55d0c0001000}, writable: true, heap: true},
		"7f0000000000-7f0000100000 rw-p 00000000 00:00 0   [anon:glibc: malloc]": {Span: both, writable: true},
		"7f0000000000-7f0000100000 r--p 00000000 00:00 0 ":                       {Span: both},
		"7f0000000000-7f0000100000 ---p 00000000 00:00 0 ":                       {Span: both},
		"7f0000000000-7f0000100000 rw-p 00000000 00:00 0               [stack]":  {},
		"7f0000000000-7f0000100000 rwxp 00000000 00:00 0 ":                       {},
		"7f0000000000-7f0000100000 rw-s 00000000 00:01 77 /dev/zero (deleted)":   {},
		"7f0000000000-7f0000100000 rw-p 00000000 08:01 77 /lib/x.so":             {},
		"7f0000100000-7f0000000000 rw-p 00000000 00:00 0 ":                       {},
		"":                           {},
		"-1 rw-p 0 0 0":              {},
		"7f0000000000 rw-p 0 0 0":    {},
		"7f0000000000-7f00001 rw 00": {},
	} {
		if got, ok := parseAnonymous(line); ok != (want != area{}) || ok && got != want {
			t.Errorf("%q: %+v %v, want %+v", line, got, ok, want)
		}
	}
}

// Areas that touch are paged together if they are large together.
func TestRow(t *testing.T) {
	const large = smallestArea
	at := func(start, end uint64) area { return area{Span: uffd.Span{Start: start, End: end}} }
	heap := area{Span: uffd.Span{Start: pageSize, End: 2 * pageSize}, heap: true}
	for _, c := range []struct {
		areas []area
		n     int
		large bool
	}{
		{[]area{at(0, large)}, 1, true},
		{[]area{at(0, large-pageSize)}, 1, false},
		{[]area{at(0, large/2), at(large/2, large)}, 2, true},
		{[]area{at(0, large/2), at(large/2+pageSize, large+pageSize)}, 1, false},
		{[]area{at(0, pageSize), heap, at(4*pageSize, large)}, 2, true},
	} {
		if n, large := touchingAreas(c.areas); n != c.n || large != c.large {
			t.Errorf("%+v: %d %v, want %d %v", c.areas, n, large, c.n, c.large)
		}
	}
}

// The store in memory is one.
func TestMemory(t *testing.T) {
	s := Memory(2 * pageSize)
	got := make([]byte, 3)
	if n, err := s.WriteAt([]byte("abc"), pageSize); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := s.ReadAt(got, pageSize); n != 3 || err != nil || string(got) != "abc" {
		t.Fatal(n, err, got)
	}
	for _, off := range []int64{-1, 2*pageSize - 2, 1 << 60} {
		if _, err := s.ReadAt(got, off); err == nil {
			t.Errorf("%d bytes at %d were read", len(got), off)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteAt(got, 0); err == nil {
		t.Error("a store that is closed was written to")
	}
}
