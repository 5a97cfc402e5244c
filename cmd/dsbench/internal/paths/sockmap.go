package paths

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"exnet/internal/tcpbench"
)

// sockmapPath is TCP over the loopback interface whose two sockets are in a BPF map
// (BPF_MAP_TYPE_SOCKHASH). A program of type SK_MSG hands what one sends to the other's receive
// queue. See Documentation/bpf/map_sockmap.rst of the kernel.
type sockmapPath struct {
	loPath
	sockets, counts *ebpf.Map
}

func init() { tcpbench.IntoSocketMap = intoSocketMap }

// joinTime bounds how long an end waits until the other is in the map, too.
const joinTime = 30 * time.Second

// intoSocketMap puts a socket into the map, and waits for the other end, so that nothing is sent
// before the program can hand it over.
func intoSocketMap(fd int, id uint32, own, other tcpbench.SocketKey) error {
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Put(own, uint64(fd)); err != nil {
		return err
	}
	var cookie uint64
	for end := time.Now().Add(joinTime); ; time.Sleep(100 * time.Microsecond) { // a map has no wait
		if err := m.Lookup(other, &cookie); !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("the other end is not there after %v", joinTime)
		}
	}
}

func newSockmap(NodeConfig) Path { return &sockmapPath{} }

func (*sockmapPath) Info() Info { return Info{} }

// sockmapCounts are the bytes that the program has seen.
type sockmapCounts struct{ Handed, Left uint64 } // to the other socket, to TCP

// Setup implements Path.
func (p *sockmapPath) Setup(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(bpfError(err), p.Close())
		}
	}()
	if err := p.loPath.Setup(ctx); err != nil {
		return err
	}
	const entries = 1024 // two for each of a measurement's connections, and some that are closing
	p.sockets, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.SockHash, KeySize: 8, ValueSize: 8, MaxEntries: entries})
	if err != nil {
		return fmt.Errorf("BPF map of sockets: %w", err)
	}
	p.counts, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("BPF map of counts: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SkMsg, AttachType: ebpf.AttachSkMsgVerdict, License: "GPL", Instructions: p.program(),
	})
	if err != nil {
		return fmt.Errorf("BPF program: %w", err)
	}
	defer program.Close() // the map has it
	err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: p.sockets.FD(), Program: program, Attach: ebpf.AttachSkMsgVerdict})
	if err != nil {
		return fmt.Errorf("attaching the BPF program: %w", err)
	}
	return nil
}

// bpfError says what to do if the kernel does not let this process load BPF. A user namespace does
// not help: the right (CAP_BPF) is that of the first one.
func bpfError(err error) error {
	if errors.Is(err, unix.EPERM) {
		return errors.New("BPF takes root: run as root, or leave sockmap out of --paths")
	}
	return err
}

// program returns what runs for each message that a socket in the map sends. It hands the message
// to the socket with the ports the other way round, and counts its bytes; a message without such a
// socket stays on TCP.
func (p *sockmapPath) program() asm.Instructions {
	const remotePort, localPort, size = 60, 64, 68 // struct sk_msg_md, linux/bpf.h
	const ingress = 1                              // BPF_F_INGRESS
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, remotePort, asm.Word),
		asm.HostTo(asm.BE, asm.R2, asm.Word),
		asm.StoreMem(asm.RFP, -8, asm.R2, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, localPort, asm.Word),
		asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R2, p.sockets.FD()),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -8),
		asm.Mov.Imm(asm.R4, ingress),
		asm.FnMsgRedirectHash.Call(),
		asm.LoadMapValue(asm.R1, p.counts.FD(), 0),
		asm.JNE.Imm(asm.R0, 0, "count"), // not SK_DROP: there is such a socket
		asm.Add.Imm(asm.R1, 8),
		asm.LoadMem(asm.R2, asm.R6, size, asm.Word).WithSymbol("count"),
		asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
		asm.Mov.Imm(asm.R0, 1), // SK_PASS
		asm.Return(),
	}
}

// Measure implements Path. It fails unless the program has handed over all but a hundredth.
func (p *sockmapPath) Measure(ctx context.Context, spec tcpbench.Spec) (tcpbench.Result, error) {
	spec.Transport = tcpbench.Sockmap
	info, err := p.sockets.Info()
	if err != nil {
		return tcpbench.Result{}, err
	}
	id, _ := info.ID() // every kernel that can attach the program has it
	spec.SocketMap = uint32(id)
	if err := p.counts.Put(uint32(0), sockmapCounts{}); err != nil {
		return tcpbench.Result{}, err
	}
	r, err := p.Pair.Measure(ctx, spec)
	if err != nil {
		return r, err
	}
	var c sockmapCounts
	if err := p.counts.Lookup(uint32(0), &c); err != nil {
		return r, err
	}
	if c.Handed < uint64(r.Bytes) || c.Left > uint64(r.Bytes)/100 {
		return r, fmt.Errorf("sockmap was not used: of %d bytes the program handed over %d and left %d to TCP", r.Bytes, c.Handed, c.Left)
	}
	return r, nil
}

// Close implements Path.
func (p *sockmapPath) Close() error {
	for _, m := range []**ebpf.Map{&p.sockets, &p.counts} {
		(*m).Close() // nothing can be lost; of nil it does nothing
		*m = nil
	}
	return p.loPath.Close()
}
