package capture

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"exnet/exn"
	"exnet/exteth"
	"exnet/foreign"

	"github.com/gopacket/gopacket/pcapgo"
)

// ErrStalled says that the Writer did not take the rest of the capture in time.
// What was written before is there.
var ErrStalled = errors.New("capture: the writer takes nothing")

// Interface says whose frames are captured.
type Interface struct {
	Name        string // as "exn0"
	Description string
	// IP: its frames are IP packets, without an Ethernet header.
	IP bool
}

// Config configures a Capture. The zero value of a field means its default.
type Config struct {
	// Writer takes the capture. It is required. The Capture does not close it.
	Writer io.Writer
	// Interfaces are those whose frames are captured. At least one is required; Add adds others.
	Interfaces []Interface
	// SnapLen is how many bytes of a frame are written at most. Default: all.
	SnapLen int
	// Queue is how many bytes of frames may wait to be written. Default 16 MiB.
	Queue int
	// Grace is how long Close waits for a Writer that blocks. Default 2 s.
	Grace time.Duration
}

const (
	defaultQueue = 16 << 20
	defaultGrace = 2 * time.Second
	// maxRecords is how many frames may wait, however small they are.
	maxRecords = 8192
	// bufferLen is how much is written at once.
	bufferLen = 64 << 10
)

func (c Config) withDefaults() (Config, error) {
	if c.Queue == 0 {
		c.Queue = defaultQueue
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	switch {
	case c.Writer == nil:
		return c, errors.New("capture: Config.Writer is nil")
	case len(c.Interfaces) == 0:
		return c, errors.New("capture: Config.Interfaces is empty; name at least one")
	case c.SnapLen < 0 || c.SnapLen > math.MaxInt32 || c.Queue < 0 || c.Grace < 0:
		return c, fmt.Errorf("capture: snap length %d, queue %d, grace %v; use positive values", c.SnapLen, c.Queue, c.Grace)
	}
	return c, nil
}

// Stats are the counters of one interface of a Capture.
type Stats struct {
	Frames  uint64 // frames seen
	Written uint64 // of these, written
	Bytes   uint64 // of the frames that came here, however much of them was written
}

// Lost returns how many frames the writer was too slow for. While the capture continues, it
// includes those that wait.
func (s Stats) Lost() uint64 { return s.Frames - s.Written }

// Capture is a capture under way.
type Capture struct {
	cfg     Config
	started time.Time
	queue   chan record
	waiting atomic.Int64 // bytes in queue
	stopped atomic.Bool  // taps do nothing any more
	stop    chan struct{}
	end     sync.Once
	bounded bool // the Writer's writes end at a deadline; valid after end
	done    chan struct{}
	err     error // valid when done is closed
	buffers buffers

	mu   sync.Mutex
	taps []*Source // +checklocks:mu
}

// record is a frame on its way to the writer.
type record struct {
	tap       *Source
	at        time.Time
	direction exn.Direction
	off       exteth.Offload
	comment   string
	missed    uint64  // frames between the last record of this source and this one
	length    int     // of the frame
	data      *[]byte // what there is of it
}

// Source gets the frames of one interface.
type Source struct {
	c       *Capture
	iface   Interface
	index   int // among the interfaces that are written; -1: none yet. The writer has it
	frames  atomic.Uint64
	written atomic.Uint64
	bytes   atomic.Uint64
	missed  atomic.Uint64 // since the last frame that went into the queue
}

var _ exn.Tap = (*Source)(nil)

// Start begins a capture, which continues until Close. The caller gives each interface its Tap.
func Start(cfg Config) (*Capture, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Capture{
		cfg:     cfg,
		started: time.Now(),
		queue:   make(chan record, maxRecords),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
		buffers: newBuffers(),
	}
	for _, in := range cfg.Interfaces {
		c.Add(in)
	}
	go func() {
		defer close(c.done)
		c.err = c.writeFrames()
		c.stopped.Store(true)
	}()
	return c, nil
}

// Add adds an interface.
func (c *Capture) Add(in Interface) *Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &Source{c: c, iface: in, index: -1}
	c.taps = append(c.taps, t)
	return t
}

// allSources returns all interfaces.
func (c *Capture) allSources() []*Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.taps)
}

// Tap returns the tap for the i-th interface.
func (c *Capture) Tap(i int) exn.Tap { return c.Source(i) }

// Source is Tap, with its counters.
func (c *Capture) Source(i int) *Source { return c.allSources()[i] }

// All returns the counters of all interfaces.
func (c *Capture) All() (all []Stats) {
	for _, t := range c.allSources() {
		all = append(all, t.Stats())
	}
	return all
}

// Stats returns the counters of the i-th interface.
func (c *Capture) Stats(i int) Stats { return c.Source(i).Stats() }

// Stats returns the counters of the interface.
func (t *Source) Stats() Stats {
	written := t.written.Load() // first, so that it never exceeds Frames
	return Stats{Frames: t.frames.Load(), Written: written, Bytes: t.bytes.Load()}
}

// Missed counts frames that were lost. The next one that is written tells it.
func (t *Source) Missed(n uint64) {
	t.frames.Add(n)
	t.missed.Add(n)
}

// Done is closed when the capture has ended: by Close, or because the
// Writer failed, as a pipe does whose reader is gone.
func (c *Capture) Done() <-chan struct{} { return c.done }

// Close writes what waits, and the statistics, and ends the capture. It returns
// the Writer's error, if there was one. It may be called more than once.
func (c *Capture) Close() error {
	c.end.Do(func() {
		c.stopped.Store(true)
		close(c.stop)
		// This ends a write to a pipe; any other that blocks is left behind.
		if w, ok := c.cfg.Writer.(interface{ SetWriteDeadline(time.Time) error }); ok {
			c.bounded = w.SetWriteDeadline(time.Now().Add(c.cfg.Grace)) == nil
		}
	})
	if c.bounded {
		<-c.done
		return c.err
	}
	grace := time.NewTimer(c.cfg.Grace + c.cfg.Grace/4)
	defer grace.Stop()
	select {
	case <-c.done:
		return c.err
	case <-grace.C:
		return ErrStalled
	}
}

// Packet is a frame, and what is known of it.
type Packet struct {
	At        time.Time
	Direction exn.Direction
	Offload   exteth.Offload // what was left undone on it
	Comment   string
	Length    int           // of the frame
	Data      foreign.Frame // as much as there is of it; it is borrowed
}

// Frame implements exn.Tap.
func (t *Source) Frame(d exn.Direction, off exteth.Offload, frame foreign.Frame) {
	if !t.c.stopped.Load() {
		t.Packet(Packet{At: time.Now(), Direction: d, Offload: off, Length: frame.Len(), Data: frame})
	}
}

// Packet copies what is needed of a frame into the queue, if there is room.
func (t *Source) Packet(p Packet) {
	c := t.c
	if c.stopped.Load() {
		return
	}
	t.frames.Add(1)
	t.bytes.Add(uint64(p.Length))
	frame := p.Data
	r := record{tap: t, at: p.At, direction: p.Direction, off: p.Offload, comment: p.Comment, length: p.Length}
	// A checksum needs the whole frame.
	if r.off.Flags&exteth.OffloadNeedsChecksum == 0 {
		frame = frame.Part(0, c.snapLength(frame.Len()))
	}
	n := int64(frame.Len())
	if c.waiting.Add(n) > int64(c.cfg.Queue) {
		c.waiting.Add(-n)
		t.missed.Add(1)
		return
	}
	r.data = c.buffers.copyFrame(frame)
	r.missed = t.missed.Swap(0)
	select {
	case c.queue <- r:
	default:
		c.waiting.Add(-n)
		t.missed.Add(r.missed + 1)
		c.buffers.putBack(r.data)
	}
}

// snapLength returns how much of n bytes is written.
func (c *Capture) snapLength(n int) int {
	if c.cfg.SnapLen > 0 {
		return min(n, c.cfg.SnapLen)
	}
	return n
}

// writeFrames writes the capture.
func (c *Capture) writeFrames() error {
	// NgWriter uses a bufio.Writer that is large enough as its own.
	buf := bufio.NewWriterSize(c.cfg.Writer, bufferLen)
	w, err := c.writeHeader(buf)
	if err != nil {
		return err
	}
	for {
		var r record
		select {
		case r = <-c.queue:
		default:
			// Nothing waits: flush, so that a reader sees every frame at once.
			if err := buf.Flush(); err != nil {
				return fmt.Errorf("capture: %w", err)
			}
			select {
			case r = <-c.queue:
			case <-c.stop:
				return c.writeRest(w)
			}
		}
		if err := c.writeFrame(w, r); err != nil {
			return fmt.Errorf("capture: %w", err)
		}
	}
}

// writeRest writes what still waits, and the statistics.
func (c *Capture) writeRest(w *pcapgo.NgWriter) error {
	for len(c.queue) > 0 {
		if err := c.writeFrame(w, <-c.queue); err != nil {
			return fmt.Errorf("capture: %w", err)
		}
	}
	return c.writeStatistics(w)
}
