package exteth

import (
	"fmt"
	"testing"
)

// A frame from one Port to another over the mem link, and beside it the control:
// a plain copy of as many bytes.
func BenchmarkFrame(b *testing.B) {
	for _, size := range []int{64, 480, 1500, 9000, 65535} {
		b.Run(fmt.Sprintf("path=exteth/size=%d", size), func(b *testing.B) {
			tx, rx, _ := pair(b, Config{})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				pass(b, tx, rx, false, size)
			}
		})
		b.Run(fmt.Sprintf("path=copy/size=%d", size), func(b *testing.B) {
			src, dst := make([]byte, size), make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(dst, src)
			}
		})
	}
}

// The same with a receiver that copies the frame, as a socket or file would, up to the longest
// frame that there is: 8 MB, one RMA transaction.
func BenchmarkFrameCopied(b *testing.B) {
	for _, size := range []int{64, 480, 1500, 9000, 65535, 256 << 10, 1 << 20, MaxFrame} {
		b.Run(fmt.Sprintf("path=exteth/size=%d", size), func(b *testing.B) {
			tx, rx, _ := pair(b, Config{MaxFrame: max(size, defaultMaxFrame), Buffers: 4})
			rx.cfg.Receiver = &copyReceiver{dst: make([]byte, size)}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				pass(b, tx, rx, false, size)
			}
		})
		b.Run(fmt.Sprintf("path=copy/size=%d", size), func(b *testing.B) {
			src, dst := make([]byte, size), make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(dst, src)
			}
		})
	}
}

// Frames in batches, as under load: the sender's and the receiver's part each
// find several at a time.
func BenchmarkFrameBatch(b *testing.B) {
	for _, size := range []int{64, 1500, 65535} {
		b.Run(fmt.Sprintf("batch=16/size=%d", size), func(b *testing.B) {
			tx, rx, _ := pair(b, Config{})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				buf := tx.Alloc()
				buf.SetPacket(size - EthernetHeaderLen)
				if err := tx.Send(2, buf); err != nil {
					b.Fatal(err)
				}
				if n++; n%16 == 0 {
					rx.PollVELO(64)
					rx.PollRMA(64)
					tx.PollRMA(64)
				}
			}
		})
	}
}

func BenchmarkComplete(b *testing.B) {
	for _, size := range []int{40, 1500, 65535} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			packet := make([]byte, size)
			off := Offload{Flags: OffloadNeedsChecksum, CsumStart: 20, CsumOffset: 16}
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := off.Complete(packet); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
