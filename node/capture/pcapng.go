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

// writeHeader writes the section header and describes the interfaces that there are.
func (c *Capture) writeHeader(buf *bufio.Writer) (*pcapgo.NgWriter, error) {
	all := c.allSources()
	w, err := pcapgo.NewNgWriterInterface(buf, c.describeInterface(all[0].iface), pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{
		Hardware:    runtime.GOARCH,
		OS:          runtime.GOOS,
		Application: "exnet",
	}})
	all[0].index = 0
	for _, t := range all[1:] {
		if err == nil {
			t.index, err = w.AddInterface(c.describeInterface(t.iface))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	return w, nil
}

// describeInterface describes an interface.
func (c *Capture) describeInterface(in Interface) pcapgo.NgInterface {
	link := layers.LinkTypeEthernet
	if in.IP {
		link = layers.LinkTypeRaw
	}
	return pcapgo.NgInterface{
		Name:        in.Name,
		Description: in.Description,
		OS:          runtime.GOOS,
		LinkType:    link,
		SnapLength:  uint32(c.cfg.SnapLen), // 0: no limit
	}
}

// writeFrame writes a frame, and frees its memory.
func (c *Capture) writeFrame(w *pcapgo.NgWriter, r record) error {
	data := *r.data
	defer c.buffers.putBack(r.data)
	c.waiting.Add(-int64(len(data)))
	header := exteth.EthernetHeaderLen
	if r.tap.iface.IP {
		header = 0
	}
	if len(data) > header {
		// Metadata that does not fit its frame leaves the frame as it is: that
		// is what was on the fabric.
		_, _ = r.off.Complete(data[header:])
	}
	data = data[:c.snapLength(len(data))]
	flags := pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound}
	if r.direction == exn.TX {
		flags.Direction = pcapgo.NgEpbFlagDirectionOutbound
	}
	options := pcapgo.NgPacketOptions{Flags: &flags}
	if r.comment != "" {
		options.Comments = []string{r.comment}
	}
	if r.missed > 0 {
		options.DropCount = &r.missed
	}
	var err error
	if r.tap.index < 0 {
		if r.tap.index, err = w.AddInterface(c.describeInterface(r.tap.iface)); err != nil {
			return err
		}
	}
	err = w.WritePacketWithOptions(gopacket.CaptureInfo{
		Timestamp:      r.at,
		CaptureLength:  len(data),
		Length:         r.length,
		InterfaceIndex: r.tap.index,
	}, data, options)
	if err == nil {
		r.tap.written.Add(1)
	}
	return err
}

// writeStatistics writes the statistics of the interfaces.
func (c *Capture) writeStatistics(w *pcapgo.NgWriter) error {
	now := time.Now()
	var errs []error
	for _, t := range c.allSources() {
		if t.index < 0 {
			continue
		}
		s := t.Stats()
		errs = append(errs, w.WriteInterfaceStats(t.index, pcapgo.NgInterfaceStatistics{
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
