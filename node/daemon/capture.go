package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"

	"exnet/node/capture"
	"exnet/node/control"
)

// captureFrames sends a client the frames of the interface, and what direct sockets send to other
// hosts through the fabric, until the client ends it.
func (d *Daemon) captureFrames(ctx context.Context, conn *net.UnixConn, snapLen int) {
	out := json.NewEncoder(conn)
	if !d.capturing.CompareAndSwap(false, true) {
		_ = out.Encode(control.Reply{Error: "another capture is running: wait until it ends"}) // it may be gone
		return
	}
	defer d.capturing.Store(false)
	i := d.node.Interface
	if snapLen < 0 {
		_ = out.Encode(control.Reply{Error: fmt.Sprintf("snap length %d: use 0 or more", snapLen)})
		return
	}
	if out.Encode(control.Reply{}) != nil {
		return
	}
	c, err := capture.Start(capture.Config{
		Writer: conn,
		Interfaces: []capture.Interface{{
			Name:        d.node.Device.Name(),
			Description: fmt.Sprintf("node %d of fabric %s", d.member.ID(), d.cfg.Fabric),
		}, {
			Name:        d.node.Device.Name() + "-direct",
			Description: fmt.Sprintf("node %d of fabric %s: direct sockets through the fabric, as TCP segments", d.member.ID(), d.cfg.Fabric),
		}},
		SnapLen: snapLen,
	})
	if err != nil {
		d.cfg.Log.Warn("capture", "reason", err)
		return
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn) // ends with the client's side, or ctx
	}()
	i.SetTap(c.Tap(0))
	if d.carrier != nil {
		d.carrier.engine.SetTap(directTap(d.cfg.MACPrefix, d.member.ID(), c.Tap(1)))
	}
	select {
	case <-gone:
	case <-c.Done():
	case <-ctx.Done():
	}
	i.SetTap(nil)
	if d.carrier != nil {
		d.carrier.engine.SetTap(nil)
	}
	if err := c.Close(); err != nil {
		d.cfg.Log.Info("capture ended", "reason", err)
	}
	conn.Close()
	<-gone
}
