package capture

import "encoding/binary"

// Tally reads from a capture that is written to it what the statistics at its end say.
//
// Concurrency: for one goroutine.
type Tally struct {
	Stats
	Ended bool   // the statistics have come
	block []byte // what there is of the block that is read
	skip  int    // what is left of one that is not
}

// Blocks and options of pcapng.
const (
	blockHeaderLen   = 8
	blockMinLen      = 12
	statisticsType   = 5
	statisticsOff    = blockHeaderLen + 12 // its options
	maxStatistics    = 4 << 10
	receivedOption   = 4
	droppedOption    = 5
	optionHeaderLen  = 4
	optionCounterLen = 8
)

// Write implements io.Writer. It never fails: it ends to read what is no pcapng.
func (t *Tally) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if t.skip > 0 {
			m := min(t.skip, len(b))
			b, t.skip = b[m:], t.skip-m
			continue
		}
		want := blockHeaderLen
		if len(t.block) >= blockHeaderLen {
			want = int(binary.LittleEndian.Uint32(t.block[4:]))
		}
		m := min(want-len(t.block), len(b))
		t.block, b = append(t.block, b[:m]...), b[m:]
		if len(t.block) < want {
			break
		}
		if want > blockHeaderLen {
			t.addStatistics(t.block)
			t.block = t.block[:0]
			continue
		}
		switch length := int(binary.LittleEndian.Uint32(t.block[4:])); {
		case length < blockMinLen:
			t.skip = int(^uint(0) >> 1)
		case binary.LittleEndian.Uint32(t.block) != statisticsType || length > maxStatistics:
			t.block, t.skip = t.block[:0], length-blockHeaderLen
		}
	}
	return n, nil
}

// addStatistics adds what a block says of an interface.
func (t *Tally) addStatistics(b []byte) {
	var received, dropped uint64
	for b = b[min(statisticsOff, len(b)):]; len(b) >= optionHeaderLen+optionCounterLen; {
		length := (int(binary.LittleEndian.Uint16(b[2:])) + 3) &^ 3
		value := binary.LittleEndian.Uint64(b[optionHeaderLen:])
		switch binary.LittleEndian.Uint16(b) {
		case receivedOption:
			received = value
		case droppedOption:
			dropped = value
		}
		b = b[min(optionHeaderLen+length, len(b)):]
	}
	t.Ended = true
	t.Frames += received
	t.Written += received - dropped
}
