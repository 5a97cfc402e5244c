package stream

import "net"

// Connections that are not sockets of the link's own are read and written by two
// goroutines each.

// goroutines serves the connections until the link is down.
func (l *Link) goroutines() {
	for _, c := range l.conns {
		l.work.Go(func() { l.reader(c) })
		l.work.Go(func() { l.writer(c) })
	}
	<-l.failing
	for _, c := range l.conns {
		// Not the *tls.Conn: it would try to say farewell to a peer that may be dead.
		if t, ok := c.net.(interface{ NetConn() net.Conn }); ok {
			_ = t.NetConn().Close()
		}
		_ = c.net.Close()
	}
	l.out.mu.Lock()
	l.out.closed = true
	l.out.mu.Unlock()
	l.out.more.Broadcast()
	l.work.Wait()
}

func (l *Link) reader(c *conn) {
	for {
		to, more := c.rx.want()
		if to == nil {
			to = more
		}
		n, err := c.net.Read(to)
		if n > 0 {
			l.count.Reads.Add(1)
			l.count.RxBytes.Add(uint64(n))
			l.pumping.Lock()
			bad := l.took(c, n)
			calls := l.takeCalls()
			l.pumping.Unlock()
			l.perform(calls)
			if l.dirty.Load() {
				l.flush()
			}
			if bad != nil {
				l.breach(bad)
				return
			}
		}
		if err != nil {
			l.fail(ErrGone)
			return
		}
	}
}

func (l *Link) writer(c *conn) {
	var buf []byte
	b := &c.batch
	for {
		o := &l.out
		o.mu.Lock()
		for !o.closed && !o.hasLocked(c) {
			o.more.Wait()
		}
		if o.closed {
			o.mu.Unlock()
			return
		}
		resume := o.takeLocked(c)
		o.mu.Unlock()
		buf = buf[:0]
		c.iov = b.parts(c.iov[:0])
		for _, part := range c.iov {
			buf = append(buf, part...) // one large write makes few records
		}
		clear(c.iov)
		n, err := c.net.Write(buf)
		if err != nil {
			l.fail(ErrGone)
			return
		}
		l.count.Writes.Add(1)
		l.count.TxBytes.Add(uint64(n))
		for _, s := range b.wrote(n, c.ends[:0]) {
			l.sent(s)
		}
		if resume {
			l.resume()
		}
	}
}
