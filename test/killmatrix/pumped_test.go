package killmatrix

import (
	"bytes"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"exnet/directsockets"
)

// pumped is a connection with a writer and a reader of their own, which run until their
// direction ends.
type pumped struct {
	conn  net.Conn
	limit time.Duration // of each call; 0: none

	mu            sync.Mutex
	cond          sync.Cond
	tx, rx        way
	txCall        int64 // when the present call began; 0: there is none
	rxCall        int64
	rxLast        int64 // when a byte last came
	txLast        int64
	size          int // of a write
	pause         time.Duration
	hold          bool
	over          bool // no more is to be written
	writes, reads bool // they run
	done          sync.WaitGroup
}

func newPumped(c net.Conn, limit time.Duration) *pumped {
	now := monotonic()
	p := &pumped{conn: c, limit: limit, rxLast: now, txLast: now}
	p.cond.L = &p.mu
	return p
}

// read starts the reader, or lets it pause or go on.
func (p *pumped) read(hold bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = hold
	p.cond.Broadcast()
	if !p.reads && !hold {
		p.reads = true
		p.rxLast = monotonic()
		p.done.Go(p.reader)
	}
}

// write starts the writer, or changes what it writes.
func (p *pumped) write(size int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size, p.pause = size, pause
	p.cond.Broadcast()
	if !p.writes {
		p.writes = true
		p.txLast = monotonic()
		p.done.Go(p.writer)
	}
}

// finish ends the outbound direction behind the present write.
func (p *pumped) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.cond.Broadcast()
	if !p.writes {
		p.writes = true
		p.done.Go(p.writer)
	}
}

// errNotLooked says that the peer has not looked in time, on a machine that stood still: the
// file is one end of a socket pair, and what comes goes on being direct.
var errNotLooked = errors.New("the peer has not looked")

// pass passes the descriptor on: who reads has another one, which the kernel alone knows. Nothing
// reads or writes meanwhile.
func (p *pumped) pass() error {
	f, err := p.conn.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return err
	}
	if c, ok := p.conn.(*directsockets.Conn); ok && c.Stats().RX == directsockets.ModeDirect {
		return errors.Join(errNotLooked, f.Close())
	}
	other, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.conn
	p.conn = other
	return old.Close()
}

func (p *pumped) close() {
	p.conn.Close()
	p.mu.Lock()
	p.over, p.hold = true, false
	p.cond.Broadcast()
	p.mu.Unlock()
	p.done.Wait()
}

func (p *pumped) stat(reset bool) stat {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := monotonic()
	for _, w := range []struct {
		way        *way
		call, last *int64
	}{{&p.tx, &p.txCall, &p.txLast}, {&p.rx, &p.rxCall, &p.rxLast}} {
		w.way.Busy = *w.call != 0
		if w.way.Busy {
			w.way.Longest = max(w.way.Longest, now-*w.call)
		}
		if w.way.End == "" {
			w.way.Gap = max(w.way.Gap, now-*w.last)
		}
		if reset {
			w.way.Gap, w.way.Longest, w.way.Timeouts = 0, 0, 0
			*w.last = now
			if w.way.Busy {
				*w.call = now
			}
		}
	}
	return stat{TX: p.tx, RX: p.rx}
}

// called keeps the account of a call that ended. false: the direction has ended.
func (p *pumped) called(w *way, call, last *int64, n int, err error) bool {
	now := monotonic()
	w.Longest = max(w.Longest, now-*call)
	*call = 0
	w.Bytes += int64(n)
	if n > 0 {
		w.Gap = max(w.Gap, now-*last)
		*last = now
	}
	if err == nil {
		return true
	}
	if what := class(err); what != "deadline" {
		w.End, w.EndAt = what, now
		return false
	}
	w.Timeouts++
	w.Timeout = now
	return true
}

func (p *pumped) writer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for p.size == 0 && !p.over {
			p.cond.Wait()
		}
		if p.over {
			break
		}
		size, pause, off := p.size, p.pause, int(p.tx.Bytes%blockLen)
		p.txCall = monotonic()
		p.mu.Unlock()
		if p.limit > 0 {
			p.conn.SetWriteDeadline(time.Now().Add(p.limit))
		}
		n, err := p.conn.Write(pattern[off : off+min(size, maxPiece)])
		p.mu.Lock()
		if !p.called(&p.tx, &p.txCall, &p.txLast, n, err) {
			return
		}
		if pause > 0 {
			p.mu.Unlock()
			time.Sleep(pause)
			p.mu.Lock()
		}
	}
	p.mu.Unlock()
	err := p.conn.(interface{ CloseWrite() error }).CloseWrite()
	p.mu.Lock()
	p.tx.End, p.tx.EndAt = "finished", monotonic()
	if err != nil {
		p.tx.End = class(err)
	}
}

func (p *pumped) reader() {
	buf := make([]byte, 128<<10)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for p.hold {
			p.cond.Wait()
			p.rxLast = monotonic()
		}
		off := int(p.rx.Bytes % blockLen)
		p.rxCall = monotonic()
		p.mu.Unlock()
		if p.limit > 0 {
			p.conn.SetReadDeadline(time.Now().Add(p.limit))
		}
		n, err := p.conn.Read(buf)
		good := bytes.Equal(buf[:n], pattern[off:off+n])
		p.mu.Lock()
		if !good {
			p.rx.Bad += int64(n)
		}
		if !p.called(&p.rx, &p.rxCall, &p.rxLast, n, err) {
			return
		}
	}
}
