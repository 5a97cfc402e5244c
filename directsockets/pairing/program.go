package pairing

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Sizes of the maps, in entries.
const (
	maxPairs    = 1 << 16
	maxServices = 1 << 10
)

// Offsets in struct bpf_sock_ops (linux/bpf.h).
const (
	ctxOp         = 0
	ctxFamily     = 20
	ctxRemoteIP4  = 24 // network byte order, as all addresses
	ctxLocalIP4   = 28
	ctxRemoteIP6  = 32
	ctxLocalIP6   = 48
	ctxRemotePort = 64 // network byte order, as the upper half of 32 bits
	ctxLocalPort  = 68 // host byte order
	ctxRcvNxt     = 100
	ctxSndUna     = 108
)

// Values of its field op: a handshake is complete, on the side that connected or that listens.
const (
	opActiveEstablished  = 4 // BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB
	opPassiveEstablished = 5 // BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB
)

// Layout of the maps' values. The first word of each says whether somebody writes it.
const (
	openedLock    = 0  // uint64: 1: it is being read or written
	openedNumbers = 8  // uint64: the sequence number after the client's SYN, and << 32 after the server's
	openedCookie  = 16 // uint64: of the client's socket; 0: two claim to be it, or it has its pair
	openedSince   = 24 // uint64: when that was written, in ns; 0: it has its pair
	openedPort    = 32 // uint32: of the server, as the client has it, like ctxRemotePort
	openedLen     = 40

	pairChanges    = 0  // uint64: how often it was written, twice; odd: it is being written
	pairClient     = 8  // uint64: cookie of the client's socket
	pairCookie     = 16 // uint64: of the server's socket; 0: two claim to be it
	pairNetns      = 24 // uint64: of its network namespace
	pairFamily     = 32
	pairLocalPort  = 36 // like ctxLocalPort
	pairRemotePort = 40 // like ctxRemotePort
	pairLocalIP    = 44 // 16 bytes, IPv4 in the first 4
	pairRemoteIP   = 60
	pairFirst      = 76 // the client's sequence number and the server's
	pairLen        = 88
)

// youngTime is how long a place of opened is kept for a connection whose other end may come: no
// other one, with other numbers, takes it meanwhile.
const youngTime = 1_000_000_000 // ns

// The frame of the program, below its frame pointer.
const (
	atIndex = -8
	atNow   = -16
	atPort  = -24 // a key of services, and its value, of no meaning, 4 bytes on
)

// maps are what the program fills. Two are arrays: a place is found by some bits of numbers that
// nobody chooses for another's connection, or of a cookie, which the kernel counts. What is there
// already is lost, so a hash map would keep little more, and takes ten times as long. Who changes
// what is in them gives layout another name.
type maps struct {
	// opened: by the numbers of a connection, its client's socket, until its server's is known.
	opened *ebpf.Map
	// pairs: by the cookie of the client's socket, the server's.
	pairs *ebpf.Map
	// services: the port to which a client connected, and << 16 that at which its server listens,
	// where they differ. One port may lead to many: each network has services of its own.
	services *ebpf.Map
}

// newMaps makes the maps; with a directory of pinDir, only those that are not pinned there.
func newMaps(pinned string) (m maps, err error) {
	for _, s := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&m.opened, ebpf.MapSpec{Name: "exn_opened", Type: ebpf.Array, KeySize: 4, ValueSize: openedLen, MaxEntries: maxPairs}},
		{&m.pairs, ebpf.MapSpec{Name: "exn_pairs", Type: ebpf.Array, KeySize: 4, ValueSize: pairLen, MaxEntries: maxPairs}},
		{&m.services, ebpf.MapSpec{Name: "exn_services", Type: ebpf.LRUHash, KeySize: 4, ValueSize: 1, MaxEntries: maxServices}},
	} {
		if pinned != "" {
			s.spec.Pinning = ebpf.PinByName
		}
		if *s.to, err = ebpf.NewMapWithOptions(&s.spec, ebpf.MapOptions{PinPath: pinned}); err != nil {
			m.close()
			return maps{}, fmt.Errorf("pairing: map %s: %w", s.spec.Name, err)
		}
	}
	return m, nil
}

func (m maps) close() {
	for _, one := range []*ebpf.Map{m.opened, m.pairs, m.services} {
		if one != nil {
			_ = one.Close() // a descriptor of ours
		}
	}
}

// assembly is a program that is being written.
type assembly struct{ asm.Instructions }

func (a *assembly) addInstructions(i ...asm.Instruction) {
	a.Instructions = append(a.Instructions, i...)
}

// label marks the next instruction, which is of no effect.
func (a *assembly) label(name string) {
	a.addInstructions(asm.Mov.Reg(asm.R6, asm.R6).WithSymbol(name))
}

// lookupPlace leaves a pointer to a place of an array in R9, or goes to end; its index is at
// atIndex.
func (a *assembly) lookupPlace(in *ebpf.Map, end string) {
	a.addInstructions(asm.LoadMapPtr(asm.R1, in.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, atIndex), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, end), asm.Mov.Reg(asm.R9, asm.R0))
}

// writeIndex writes an index made of the register's lowest bits to atIndex.
func (a *assembly) writeIndex(r asm.Register) {
	a.addInstructions(asm.And.Imm(r, maxPairs-1), asm.StoreMem(asm.RFP, atIndex, r, asm.Word))
}

// readNumbers leaves the numbers of a connection in R7, and the index of their place at atIndex;
// client and server are the fields that have them.
func (a *assembly) readNumbers(client, server int16) {
	a.addInstructions(asm.LoadMem(asm.R7, asm.R6, client, asm.Word), asm.LoadMem(asm.R1, asm.R6, server, asm.Word), asm.Mov.Reg(asm.R2, asm.R7),
		asm.Xor.Reg(asm.R2, asm.R1))
	a.writeIndex(asm.R2)
	a.addInstructions(asm.LSh.Imm(asm.R1, 32), asm.Or.Reg(asm.R7, asm.R1))
}

// lockPlace takes the place of opened at R9, or goes to end: who has it is another connection's
// handshake, of which one in 65,536 has the same place.
func (a *assembly) lockPlace(end string) {
	a.addInstructions(asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R1, 1), asm.CmpXchg.Mem(asm.R9, asm.R1, asm.DWord, openedLock), asm.JNE.Imm(asm.R0, 0, end))
}

func (a *assembly) unlockPlace() {
	a.addInstructions(asm.Mov.Imm(asm.R1, 0), asm.Xchg.Mem(asm.R9, asm.R1, asm.DWord, openedLock))
}

// copyField copies a field of the socket to the value at R9.
func (a *assembly) copyField(from, to int16) {
	a.addInstructions(asm.LoadMem(asm.R1, asm.R6, from, asm.Word), asm.StoreMem(asm.R9, to, asm.R1, asm.Word))
}

// writeProgram writes the program. R6 is the socket (struct bpf_sock_ops), R7 the numbers, R8 the
// cookie of the client's socket, R9 a place.
func (m maps) writeProgram() (*ebpf.Program, error) {
	var a assembly
	a.addInstructions(asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R1, asm.R6, ctxOp, asm.Word),
		asm.JEq.Imm(asm.R1, opPassiveEstablished, "passive"),
		asm.JNE.Imm(asm.R1, opActiveEstablished, "end"))
	m.writeActive(&a)
	a.label("passive")
	m.writePassive(&a)
	a.addInstructions(asm.Mov.Imm(asm.R0, 1).WithSymbol("end"), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "exn_pairing", Type: ebpf.SockOps, Instructions: a.Instructions, License: "Apache-2.0"})
	if err != nil {
		return nil, fmt.Errorf("pairing: program: %w", err)
	}
	return prog, nil
}

// writeActive is for the side that connected: it takes the place of its numbers.
func (m maps) writeActive(a *assembly) {
	a.readNumbers(ctxSndUna, ctxRcvNxt)
	a.addInstructions(asm.Mov.Reg(asm.R1, asm.R6), asm.FnGetSocketCookie.Call(), asm.Mov.Reg(asm.R8, asm.R0),
		asm.FnKtimeGetCoarseNs.Call(), asm.StoreMem(asm.RFP, atNow, asm.R0, asm.DWord))
	a.lookupPlace(m.opened, "end")
	a.lockPlace("end")
	a.addInstructions(asm.LoadMem(asm.R3, asm.RFP, atNow, asm.DWord),
		asm.LoadMem(asm.R1, asm.R9, openedNumbers, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R7, "others"),
		asm.Mov.Imm(asm.R8, 0), // two claim to be it
		asm.Ja.Label("take"))
	a.addInstructions(asm.LoadMem(asm.R1, asm.R9, openedSince, asm.DWord).WithSymbol("others"),
		asm.JEq.Imm(asm.R1, 0, "take"),
		asm.Add.Imm(asm.R1, youngTime),
		asm.JGT.Reg(asm.R1, asm.R3, "taken"))
	a.addInstructions(asm.StoreMem(asm.R9, openedNumbers, asm.R7, asm.DWord).WithSymbol("take"),
		asm.StoreMem(asm.R9, openedCookie, asm.R8, asm.DWord),
		asm.StoreMem(asm.R9, openedSince, asm.R3, asm.DWord))
	a.copyField(ctxRemotePort, openedPort)
	a.label("taken")
	a.unlockPlace()
	a.addInstructions(asm.Ja.Label("end"))
}

// writePassive is for the side that listens: it looks for its client's socket, and makes the pair.
func (m maps) writePassive(a *assembly) {
	a.readNumbers(ctxRcvNxt, ctxSndUna)
	a.lookupPlace(m.opened, "end")
	a.addInstructions(asm.LoadMem(asm.R1, asm.R9, openedNumbers, asm.DWord), asm.JNE.Reg(asm.R1, asm.R7, "end")) // not of this host
	a.lockPlace("end")
	a.addInstructions(asm.Mov.Imm(asm.R8, 0),
		asm.LoadMem(asm.R1, asm.R9, openedNumbers, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R7, "seen"),
		asm.LoadMem(asm.R8, asm.R9, openedCookie, asm.DWord),
		asm.LoadMem(asm.R1, asm.R9, openedPort, asm.Word),
		asm.StoreMem(asm.RFP, atPort, asm.R1, asm.Word),
		asm.JEq.Imm(asm.R8, 0, "seen"),
		// They have their pair: a second server that has them comes too late.
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.R9, openedCookie, asm.R1, asm.DWord),
		asm.StoreMem(asm.R9, openedSince, asm.R1, asm.DWord))
	a.label("seen")
	a.unlockPlace()
	a.addInstructions(asm.JEq.Imm(asm.R8, 0, "end"), asm.Mov.Reg(asm.R2, asm.R8))
	a.writeIndex(asm.R2)
	a.lookupPlace(m.pairs, "end")
	a.addInstructions(asm.LoadMem(asm.R0, asm.R9, pairChanges, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R0), asm.And.Imm(asm.R3, 1), asm.JNE.Imm(asm.R3, 0, "end"), // another one is being written
		asm.Mov.Reg(asm.R3, asm.R0), asm.Mov.Reg(asm.R1, asm.R0), asm.Add.Imm(asm.R1, 1),
		asm.CmpXchg.Mem(asm.R9, asm.R1, asm.DWord, pairChanges), asm.JNE.Reg(asm.R0, asm.R3, "end"),
		asm.LoadMem(asm.R1, asm.R9, pairClient, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R8, "pair"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.R9, pairCookie, asm.R1, asm.DWord), // a client with two servers
		asm.Ja.Label("made"))
	a.addInstructions(asm.StoreMem(asm.R9, pairClient, asm.R8, asm.DWord).WithSymbol("pair"))
	for _, h := range []struct {
		of asm.BuiltinFunc
		to int16
	}{{asm.FnGetSocketCookie, pairCookie}, {asm.FnGetNetnsCookie, pairNetns}} {
		a.addInstructions(asm.Mov.Reg(asm.R1, asm.R6), h.of.Call(), asm.StoreMem(asm.R9, h.to, asm.R0, asm.DWord))
	}
	a.copyField(ctxLocalPort, pairLocalPort)
	a.copyField(ctxRemotePort, pairRemotePort)
	a.addInstructions(asm.StoreMem(asm.R9, pairFirst, asm.R7, asm.Word), asm.Mov.Reg(asm.R1, asm.R7), asm.RSh.Imm(asm.R1, 32), asm.StoreMem(asm.R9, pairFirst+4, asm.R1, asm.Word))
	a.copyField(ctxFamily, pairFamily)
	a.addInstructions(asm.JEq.Imm(asm.R1, afInet, "IPv4")) // field leaves it in R1
	for i := int16(0); i < 16; i += 4 {
		a.copyField(ctxLocalIP6+i, pairLocalIP+i)
		a.copyField(ctxRemoteIP6+i, pairRemoteIP+i)
	}
	a.addInstructions(asm.Ja.Label("made"))
	a.label("IPv4")
	a.copyField(ctxLocalIP4, pairLocalIP)
	a.copyField(ctxRemoteIP4, pairRemoteIP)
	// Only an atomic operation that fetches is ordered after the stores before it: an addition that
	// does not may be seen before them on arm64.
	a.addInstructions(asm.Mov.Imm(asm.R1, 1).WithSymbol("made"), asm.FetchAdd.Mem(asm.R9, asm.R1, asm.DWord, pairChanges))
	// A port that was translated.
	a.addInstructions(asm.LoadMem(asm.R7, asm.RFP, atPort, asm.Word),
		asm.HostTo(asm.BE, asm.R7, asm.Word),
		asm.LoadMem(asm.R8, asm.R6, ctxLocalPort, asm.Word),
		asm.JEq.Reg(asm.R7, asm.R8, "end"),
		asm.LSh.Imm(asm.R8, 16), asm.Or.Reg(asm.R7, asm.R8),
		asm.StoreMem(asm.RFP, atPort, asm.R7, asm.Word),
		asm.StoreImm(asm.RFP, atPort+4, 0, asm.Byte),
		asm.LoadMapPtr(asm.R1, m.services.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, atPort), asm.FnMapLookupElem.Call(),
		asm.JNE.Imm(asm.R0, 0, "end")) // that is known
	a.addInstructions(asm.LoadMapPtr(asm.R1, m.services.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, atPort),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, atPort+4), asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call())
}
