package pager

// state says where a page's content is.
type state uint8

const (
	untouched state = iota // nowhere: it reads as zeros, or the pager does not know the page
	resident               // in the program's memory
	standby                // in a slot of the library's memory, on its way out
	remote                 // in the store
)

// page is what the pager knows of a page. It is content with place only if it is clean.
type page struct {
	place uint32 // of the store, counted from 1; 0: none, and a clean page without one is zeros
	slot  uint32 // where it is on standby
	age   uint16 // of its entry in the queue: older ones are void
	state state
	flags flags
}

// resetPage makes a page untouched. What the queue has of it is void.
func (p *page) resetPage() { *p = page{age: p.age + 1} }

type flags uint8

const (
	dirty     flags = 1 << iota // place has older content, or there is none
	inherited                   // shared with the parent since a fork: it counts as the parent's
	parked                      // not in the queue: it could not be moved
	kept                        // it does not leave: the kernel writes to it when a thread ends
	leaving                     // the agent is moving it
	alone                       // the kernel has refused a row with it: it leaves by itself
	// oneStay is counted up to all of stays: how often the page stays here when it is the oldest.
	oneStay flags = 1 << 6
	stays         = 3 * oneStay
)

// chunkPages are the pages of a chunk, a part of the table.
const chunkPages = 512

type chunk [chunkPages]page

// table has a process's pages by number.
type table struct {
	chunks map[uint64]*chunk
	last   *chunk // of number lastAt
	lastAt uint64
}

func newTable() table { return table{chunks: make(map[uint64]*chunk), lastAt: ^uint64(0)} }

// getPage returns a page, nil if the table has none of its chunk.
func (t *table) getPage(number uint64) *page {
	at := number / chunkPages
	if at != t.lastAt {
		c := t.chunks[at]
		if c == nil {
			return nil
		}
		t.last, t.lastAt = c, at
	}
	return &t.last[number%chunkPages]
}

// makePage returns a page, and makes it if the table has none.
func (t *table) makePage(number uint64) *page {
	if p := t.getPage(number); p != nil {
		return p
	}
	at := number / chunkPages
	c := new(chunk)
	t.chunks[at] = c
	t.last, t.lastAt = c, at
	return &c[number%chunkPages]
}

// eachPage calls f with the pages from start to before end that the table has, and forgets chunks
// that are untouched after that.
func (t *table) eachPage(start, end uint64, f func(number uint64, p *page)) {
	one := func(at uint64, c *chunk) {
		first := at * chunkPages
		left := false
		for i := range c {
			if n := first + uint64(i); n >= start && n < end {
				f(n, &c[i])
			}
			left = left || c[i].state != untouched
		}
		if !left {
			delete(t.chunks, at)
			t.lastAt, t.last = ^uint64(0), nil
		}
	}
	from, to := start/chunkPages, (end+chunkPages-1)/chunkPages
	if to-from > uint64(len(t.chunks)) {
		for at, c := range t.chunks {
			if at >= from && at < to {
				one(at, c)
			}
		}
		return
	}
	for at := from; at < to; at++ {
		if c := t.chunks[at]; c != nil {
			one(at, c)
		}
	}
}

// queue has the resident pages in the order in which they came. Entries of pages that left are
// void: their age is no longer the page's.
type queue struct {
	entries []uint64 // number<<16 | age
	first   int
}

func (q *queue) pushPage(number uint64, p *page) {
	p.age++
	p.flags &^= parked
	q.entries = append(q.entries, number<<16|uint64(p.age))
}

// popOldest returns the oldest page that is still resident, nil if there is none.
func (q *queue) popOldest(t *table) (uint64, *page) {
	for q.first < len(q.entries) {
		e := q.entries[q.first]
		q.first++
		if p := t.getPage(e >> 16); p != nil && p.state == resident && p.age == uint16(e) {
			q.shrinkRoom()
			return e >> 16, p
		}
	}
	q.entries, q.first = q.entries[:0], 0
	return 0, nil
}

// shrinkRoom gives the room of old entries back.
func (q *queue) shrinkRoom() {
	if q.first >= 1024 && q.first > len(q.entries)/2 {
		n := copy(q.entries, q.entries[q.first:])
		q.entries, q.first = q.entries[:n], 0
	}
}

// removeVoid removes void entries if there are far more than pages.
func (q *queue) removeVoid(t *table, pages int) {
	if len(q.entries)-q.first < 2*pages+4096 {
		return
	}
	kept := q.entries[:0]
	for _, e := range q.entries[q.first:] {
		if p := t.getPage(e >> 16); p != nil && p.state == resident && p.age == uint16(e) {
			kept = append(kept, e)
		}
	}
	q.entries, q.first = kept, 0
}

func (q *queue) empty() bool { return q.first == len(q.entries) }
