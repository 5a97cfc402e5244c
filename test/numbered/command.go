package numbered

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Sum is what a program has received and checked.
type Sum struct {
	Conns int   // connections, to their end
	Bytes int64 // that arrived and were right
	Wrong int   // connections with a fault or an error
}

// Words is the number of whole words among the bytes.
func (s Sum) Words() int64 { return s.Bytes / WordLen }

// Add adds what another one has received.
func (s *Sum) Add(o Sum) {
	s.Conns += o.Conns
	s.Bytes += o.Bytes
	s.Wrong += o.Wrong
}

// book adds up, and prints what is wrong.
type book struct {
	mu   sync.Mutex
	more sync.Cond // sum.Conns has grown, or it is late
	open int       // guarded by mu: connections of a server that have not ended
	sum  Sum       // guarded by mu
	out  io.Writer // guarded by mu
}

func newBook(out io.Writer) *book {
	b := &book{out: out}
	b.more.L = &b.mu
	return b
}

// addEnded takes a connection that has ended; conns is 0 if it was never made.
func (b *book) addEnded(conns int, right int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum.Add(Sum{Conns: conns, Bytes: right})
	if err != nil {
		b.sum.Wrong++
		fmt.Fprintln(b.out, "fault", err)
	}
	b.more.Broadcast()
}

// addOpen counts a connection of a server, or with -1 does so no more.
func (b *book) addOpen(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open += n
	b.more.Broadcast()
}

// absent is how long a server waits for connections that its client has counted. One that ended
// before the server's kernel had opened it never comes.
const absent = 2 * time.Minute

// printSum prints the sum, once so many connections have ended, or none is left that may, and
// begins a new one.
func (b *book) printSum(conns int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	late := false
	limit := time.AfterFunc(absent, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		late = true
		b.more.Broadcast()
	})
	defer limit.Stop()
	for b.sum.Conns < conns && !(late && b.open == 0) {
		b.more.Wait()
	}
	if missing := conns - b.sum.Conns; missing > 0 {
		b.sum.Wrong += missing
		fmt.Fprintf(b.out, "fault %d connections have never come\n", missing)
	}
	fmt.Fprintln(b.out, "sum", b.sum.Conns, b.sum.Bytes, b.sum.Wrong)
	b.sum = Sum{}
}

// Client is the part of clients.
type Client struct {
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Conns int           // that there are at any time
	Time  time.Duration // until no new ones are made; each of the Conns is made at least once
	Pause time.Duration // mean pause of slow calls; 0: no call is slow
	Seed  uint64        // of the plans
	// First is the number of the first connection. Each of the Conns has generations numbers from
	// there on, and uses them in turn.
	First uint32
}

// generations is how many connections follow each other before a number is used again.
const generations = 256

// runUntil makes connections until the time is over, and adds up in b.
func (c Client) runUntil(address string, b *book) {
	end := time.Now().Add(c.Time)
	var all sync.WaitGroup
	for i := range c.Conns {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(c.Seed, uint64(i)))
			for g := 0; g == 0 || time.Now().Before(end); g++ {
				p := newPlan(c.First+uint32(i*generations+g%generations), c.Pause, c.Conns, rnd)
				conn, err := c.dialServer(address)
				if err != nil {
					b.addEnded(0, 0, fmt.Errorf("connection %d: %w", p.Conn, err))
					return
				}
				right, err := p.carryOut(conn.(Conn), false)
				b.addEnded(1, right, err)
			}
		})
	}
	all.Wait()
}

// dialServer is Dial.
func (c Client) dialServer(address string) (net.Conn, error) {
	for {
		conn, err := c.Dial(context.Background(), "tcp", address)
		if patient == 0 || !errors.Is(err, syscall.EHOSTUNREACH) {
			return conn, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// serveConns accepts connections until the listener is closed.
func serveConns(l net.Listener, b *book) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		b.addOpen(1)
		go func() {
			defer b.addOpen(-1)
			c := conn.(Conn)
			var first [planLen]byte
			var p Plan
			_, err := io.ReadFull(c, first[:])
			if err == nil {
				err = p.parse(first[:])
			}
			if err != nil {
				_ = c.Close() // it is of no use
				b.addEnded(1, 0, fmt.Errorf("a connection without a plan: %w", err))
				return
			}
			right, err := p.carryOut(c, true)
			b.addEnded(1, right, err)
		}()
	}
}

// Command is a program:
//
//	serve ADDRESS                             prints "listening"; for each number on standard input it
//	                                          prints the sum once so many connections have ended
//	dial ADDRESS CONNS MS PAUSE SEED FIRST    prints "dialing"; a Client for so many milliseconds;
//	                                          prints the sum
//
// Both print "fault WHAT" for each connection that goes wrong, and "sum CONNS BYTES WRONG".
// It returns the exit status.
func Command(args []string, dial func(ctx context.Context, network, address string) (net.Conn, error), listen func(network, address string) (net.Listener, error)) int {
	b := newBook(os.Stdout)
	var err error
	switch {
	case len(args) == 2 && args[0] == "serve":
		err = runServer(args[1], listen, b)
	case len(args) == 7 && args[0] == "dial":
		var n [5]uint64
		for i := range n {
			if n[i], err = strconv.ParseUint(args[2+i], 10, 64); err != nil {
				break
			}
		}
		if err == nil {
			fmt.Println("dialing")
			Client{dial, int(n[0]), time.Duration(n[1]) * time.Millisecond, time.Duration(n[2]) * time.Millisecond, n[3], uint32(n[4])}.runUntil(args[1], b)
			b.printSum(0)
		}
	default:
		err = errors.New("serve ADDRESS, or dial ADDRESS CONNS MS PAUSE SEED FIRST")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "numbered:", err)
		return 1
	}
	return 0
}

// runServer serves until the end of standard input.
func runServer(address string, listen func(network, address string) (net.Listener, error), b *book) error {
	l, err := listen("tcp", address)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- serveConns(l, b) }()
	fmt.Println("listening")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		b.printSum(n)
	}
	if err := l.Close(); err != nil {
		return err
	}
	return <-done
}
