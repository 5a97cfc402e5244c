package capture

import (
	"bufio"
	"errors"
	"fmt"
	"runtime"
	"time"

	"exnet/exn"
	"exnet/exteth"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// begin writes the section header and describes the interfaces.
func (c *Capture) begin(buf *bufio.Writer) (*pcapgo.NgWriter, error) {
	var w *pcapgo.NgWriter
	for i, in := range c.cfg.Interfaces {
		ng := pcapgo.NgInterface{
			Name:        in.Name,
			Description: in.Description,
			OS:          runtime.GOOS,
			LinkType:    layers.LinkTypeEthernet,
			SnapLength:  uint32(c.cfg.SnapLen), // 0: no limit
		}
		var err error
		if i == 0 {
			w, err = pcapgo.NewNgWriterInterface(buf, ng, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{
				Hardware:    runtime.GOARCH,
				OS:          runtime.GOOS,
				Application: "exnet",
			}})
		} else {
			_, err = w.AddInterface(ng)
		}
		if err != nil {
			return nil, fmt.Errorf("capture: %w", err)
		}
	}
	return w, nil
}

// write writes a frame, and frees its memory.
func (c *Capture) write(w *pcapgo.NgWriter, r record) error {
	data := *r.data
	defer c.buffers.free(r.data)
	c.waiting.Add(-int64(len(data)))
	if len(data) > exteth.EthernetHeaderLen {
		// Metadata that does not fit its frame leaves the frame as it is: that
		// is what was on the fabric.
		_, _ = r.off.Complete(data[exteth.EthernetHeaderLen:])
	}
	data = data[:c.snap(len(data))]
	flags := pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound}
	if r.direction == exn.TX {
		flags.Direction = pcapgo.NgEpbFlagDirectionOutbound
	}
	err := w.WritePacketWithOptions(gopacket.CaptureInfo{
		Timestamp:      r.at,
		CaptureLength:  len(data),
		Length:         r.length,
		InterfaceIndex: r.tap.index,
	}, data, pcapgo.NgPacketOptions{Flags: &flags})
	if err == nil {
		r.tap.written.Add(1)
	}
	return err
}

// conclude writes the statistics of the interfaces.
func (c *Capture) conclude(w *pcapgo.NgWriter) error {
	now := time.Now()
	var errs []error
	for i := range c.taps {
		s := c.Stats(i)
		errs = append(errs, w.WriteInterfaceStats(i, pcapgo.NgInterfaceStatistics{
			LastUpdate:      now,
			StartTime:       c.started,
			EndTime:         now,
			PacketsReceived: s.Frames,
			PacketsDropped:  s.Lost(),
		}))
	}
	if err := errors.Join(append(errs, w.Flush())...); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return nil
}
