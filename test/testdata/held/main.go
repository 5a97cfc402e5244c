// Held registers a page for RMA in its place, and has it read by ports of its own through the node:
//
//	held FILE N    the page is of FILE; N ports ask for it, one after the other, and end without
//	               their answer
//	held "" N      the page is ordinary memory; N answers must be right
//
// The ports are another process's: while the node reads the page of a file that does not answer,
// the kernel lets the process that has it map no memory.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/node/rpc"
)

const text = "in its place"

func main() {
	var err error
	if os.Args[1] == asking {
		err = askFor(os.Args[2:])
	} else {
		err = run(os.Args[1], os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "held:", err)
		os.Exit(1)
	}
}

// asking is the first argument of the process with the ports.
const asking = "--ask"

// port is a connection to the node.
type port struct {
	*net.UnixConn
	in *rpc.Inbound
}

// ask sends a message with descriptors and returns the answer to it.
func (p *port) ask(m wire.Message, fds ...int) (wire.Message, rpc.Descriptors, error) {
	if err := p.send(m, fds...); err != nil {
		return m, nil, err
	}
	for {
		b, got, err := p.in.Next()
		var r wire.Message
		if err == nil {
			err = r.UnmarshalBinary(b)
		}
		if err != nil || r.Op == m.Op {
			return r, got, err
		}
		got.Close()
	}
}

func (p *port) send(m wire.Message, fds ...int) error {
	b, err := m.AppendBinary(nil)
	if err == nil {
		_, _, err = p.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	}
	return err
}

// open opens an RMA port.
func open() (*port, wire.Addr, rpc.Descriptors, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "@exn-ports", Net: "unixpacket"})
	if err != nil {
		return nil, wire.Addr{}, nil, err
	}
	p := &port{UnixConn: conn}
	if p.in, err = rpc.NewInbound(conn, wire.MessageSize, wire.Descriptors); err != nil {
		return nil, wire.Addr{}, nil, err
	}
	r, fds, err := p.ask(wire.Message{Op: wire.OpOpen, Unit: fabric.UnitRMA, A: wire.Version})
	if err == nil && r.Status != wire.StatusOK {
		err = fmt.Errorf("open: status %d", r.Status)
	}
	return p, r.Addr, fds, err
}

// page maps a page of a file, or of ordinary memory.
func page(file string) ([]byte, error) {
	if file == "" {
		b, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		copy(b, text)
		return b, err
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// run registers the page, and starts the process with the ports.
func run(file, times string) error {
	b, err := page(file)
	if err != nil {
		return err
	}
	owner, at, fds, err := open()
	if err != nil {
		return err
	}
	table, err := unix.Mmap(fds[3], 0, wire.TableSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	number := uint64(uintptr(unsafe.Pointer(&b[0]))) / uint64(os.Getpagesize())
	*(*uint64)(unsafe.Pointer(&table[0])) = 1<<39 | number&0xfffff<<19 | number>>20&0xffff<<40
	mem, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if r, _, err := owner.ask(wire.Message{Op: wire.OpReach, Unit: fabric.UnitRMA}, mem); err != nil || r.Status != wire.StatusOK {
		return fmt.Errorf("reach: status %d, %w", r.Status, err)
	}
	ports := exec.Command("/proc/self/exe", asking, fmt.Sprint(at.Node), fmt.Sprint(at.VPID), times, strconv.FormatBool(file == ""))
	ports.Stdin, ports.Stdout, ports.Stderr = os.Stdin, os.Stdout, os.Stderr
	return ports.Run()
}

// askFor has ports ask for the page: node, VPID, how many, whether they are answered.
func askFor(args []string) error {
	var at wire.Addr
	var n int
	var answered bool
	if _, err := fmt.Sscan(strings.Join(args, " "), &at.Node, &at.VPID, &n, &answered); err != nil {
		return err
	}
	for i := range n {
		if err := transfer(at, answered); err != nil {
			return fmt.Errorf("transfer %d: %w", i, err)
		}
	}
	fmt.Println("done")
	_, _ = io.Copy(io.Discard, os.Stdin) // it stays until the test has looked
	return nil
}

// transfer has a new port read the page.
func transfer(at wire.Addr, answered bool) error {
	p, _, fds, err := open()
	if err != nil {
		return err
	}
	defer p.Close()
	defer fds.Close()
	m := wire.Message{Op: wire.OpTransfer, Addr: at, Unit: fabric.UnitRMA, A: wire.Base(at.VPID), B: uint64(len(text))}
	if !answered {
		if err := p.send(m); err != nil {
			return err
		}
		_ = p.CloseWrite()
		for err == nil { // until the node has closed the port
			_, fds, err = p.in.Next()
			fds.Close()
		}
		return nil
	}
	r, _, err := p.ask(m)
	if err != nil || r.Status != wire.StatusOK {
		return fmt.Errorf("status %d, %w", r.Status, err)
	}
	got := make([]byte, len(text))
	if _, err := unix.Pread(fds[2], got, wire.WindowOff); err != nil {
		return err
	}
	if !bytes.Equal(got, []byte(text)) {
		return errors.New("it read " + string(got))
	}
	return nil
}
