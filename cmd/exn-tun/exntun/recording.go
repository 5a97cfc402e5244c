package exntun

import (
	"errors"
	"fmt"
	"net"
	"os"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/outfile"
	"exnet/node/capture"
)

// recording is the capture of a demonstration's frames in a file. All methods of
// a nil recording do nothing.
type recording struct {
	file *outfile.Live
	lab  *lab.Lab
	c    *capture.Capture
}

// openRecording opens the file of --output, or returns nil without one. For a named pipe it
// waits for a reader. Call it before signals are caught, so that any of them ends the wait.
func openRecording(o demoOptions) (*recording, error) {
	if o.capture == "" {
		return nil, nil
	}
	f, err := outfile.OpenLive(o.capture)
	if err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	return &recording{file: f}, nil
}

// startCapture captures the frames of all nodes of a lab from now on.
func (r *recording) startCapture(l *lab.Lab) error {
	if r == nil {
		return nil
	}
	var interfaces []capture.Interface
	for i, n := range l.Cluster.Nodes {
		mac := n.Interface.MAC()
		interfaces = append(interfaces, capture.Interface{
			Name:        fmt.Sprintf("%s/%d", n.Device.Name(), 1+i),
			Description: fmt.Sprintf("node %d, %v", 1+i, net.HardwareAddr(mac[:])),
		})
	}
	c, err := capture.Start(capture.Config{Writer: r.file, Interfaces: interfaces})
	if err != nil {
		return err
	}
	r.lab, r.c = l, c
	for i, n := range l.Cluster.Nodes {
		n.Interface.SetTap(c.Tap(i))
	}
	return nil
}

// stopCapture ends the capture, while the lab is still there, and says in words what
// is in the file.
func (r *recording) stopCapture() (string, error) {
	if r == nil || r.c == nil {
		return "", nil
	}
	for _, n := range r.lab.Cluster.Nodes {
		n.Interface.SetTap(nil)
	}
	err := r.c.Close()
	var all capture.Stats
	for i := range r.lab.Cluster.Nodes {
		s := r.c.Stats(i)
		all.Frames += s.Frames
		all.Written += s.Written
	}
	r.c = nil
	detail := fmt.Sprintf("%d frames of all nodes in %s", all.Written, r.file.Name())
	if n := all.Lost(); n > 0 {
		detail += fmt.Sprintf("; %d more were lost, because it is slower than the fabric", n)
	}
	return detail, err
}

// close closes the file.
func (r *recording) close() error {
	if r == nil {
		return nil
	}
	if err := r.file.Close(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("--output: %w", err)
	}
	return nil
}
