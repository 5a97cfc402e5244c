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

// Layout of the maps' keys and values.
const (
	numbersClient = 0 // uint32: the sequence number after the client's SYN
	numbersServer = 4 // uint32: after the server's
	numbersLen    = 8

	openedCookie = 0 // uint64: of the client's socket; 0: two claim to be it
	openedPort   = 8 // uint32: of the server, as the client has it, like ctxRemotePort
	openedLen    = 16

	pairCookie     = 0 // uint64: of the server's socket; 0: two claim to be it
	pairNetns      = 8 // uint64: of its network namespace
	pairFamily     = 16
	pairLocalPort  = 20 // like ctxLocalPort
	pairRemotePort = 24 // like ctxRemotePort
	pairLocalIP    = 32 // 16 bytes, IPv4 in the first 4
	pairRemoteIP   = 48
	pairNumbers    = 64 // as the map's key opened
	pairLen        = 72
)

// The frame of the program, below its frame pointer.
const (
	atNumbers = -numbersLen
	atCookie  = atNumbers - 8 // a key of pairs
	atPort    = atCookie - 8  // a key of services, and its value 4 bytes on
	atOpened  = atPort - openedLen
	atPair    = atOpened - pairLen
)

// maps are what the program fills.
type maps struct {
	// opened: numbers of a connection → its client's socket, until its server's is known.
	opened *ebpf.Map
	// pairs: cookie of the client's socket → the server's.
	pairs *ebpf.Map
	// services: the port to which a client connected → that at which its server listens, where they
	// differ.
	services *ebpf.Map
}

func newMaps() (m maps, err error) {
	for _, s := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&m.opened, ebpf.MapSpec{Name: "exn_opened", KeySize: numbersLen, ValueSize: openedLen, MaxEntries: maxPairs}},
		{&m.pairs, ebpf.MapSpec{Name: "exn_pairs", KeySize: 8, ValueSize: pairLen, MaxEntries: maxPairs}},
		{&m.services, ebpf.MapSpec{Name: "exn_services", KeySize: 4, ValueSize: 4, MaxEntries: maxServices}},
	} {
		s.spec.Type = ebpf.LRUHash
		if *s.to, err = ebpf.NewMap(&s.spec); err != nil {
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

// program writes the program. R6 is the socket (struct bpf_sock_ops), R7 the client's entry.
func (m maps) program() (*ebpf.Program, error) {
	var p asm.Instructions
	add := func(i ...asm.Instruction) { p = append(p, i...) }
	// lookup leaves a pointer to the value in R0, or 0.
	lookup := func(in *ebpf.Map, key int16) {
		add(asm.LoadMapPtr(asm.R1, in.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(key)), asm.FnMapLookupElem.Call())
	}
	update := func(in *ebpf.Map, key, value int16) {
		add(asm.LoadMapPtr(asm.R1, in.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(key)),
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, int32(value)), asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call())
	}
	// field copies a field of the socket to the frame.
	field := func(from, to int16) {
		add(asm.LoadMem(asm.R1, asm.R6, from, asm.Word), asm.StoreMem(asm.RFP, to, asm.R1, asm.Word))
	}
	// cookie puts the result of a helper that takes the socket into the frame.
	cookie := func(of asm.BuiltinFunc, to int16) {
		add(asm.Mov.Reg(asm.R1, asm.R6), of.Call(), asm.StoreMem(asm.RFP, to, asm.R0, asm.DWord))
	}

	add(asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R1, asm.R6, ctxOp, asm.Word),
		asm.JEq.Imm(asm.R1, opPassiveEstablished, "passive"),
		asm.JNE.Imm(asm.R1, opActiveEstablished, "end"))

	// The side that connected.
	field(ctxSndUna, atNumbers+numbersClient)
	field(ctxRcvNxt, atNumbers+numbersServer)
	cookie(asm.FnGetSocketCookie, atOpened+openedCookie)
	field(ctxRemotePort, atOpened+openedPort)
	add(asm.StoreImm(asm.RFP, atOpened+openedPort+4, 0, asm.Word))
	lookup(m.opened, atNumbers)
	add(asm.JEq.Imm(asm.R0, 0, "open"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, atOpened+openedCookie, asm.R1, asm.DWord)) // two claim to be it
	mark := len(p)
	update(m.opened, atNumbers, atOpened)
	p[mark] = p[mark].WithSymbol("open")
	add(asm.Ja.Label("end"))

	// The side that listens.
	mark = len(p)
	field(ctxRcvNxt, atNumbers+numbersClient)
	p[mark] = p[mark].WithSymbol("passive")
	field(ctxSndUna, atNumbers+numbersServer)
	lookup(m.opened, atNumbers)
	add(asm.JEq.Imm(asm.R0, 0, "end"),
		asm.LoadMem(asm.R1, asm.R0, openedCookie, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "end"),
		asm.StoreMem(asm.RFP, atCookie, asm.R1, asm.DWord),
		asm.LoadMem(asm.R7, asm.R0, openedPort, asm.Word))
	lookup(m.pairs, atCookie)
	add(asm.JEq.Imm(asm.R0, 0, "pair"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.R0, pairCookie, asm.R1, asm.DWord), // a client with two servers
		asm.Ja.Label("end"))
	mark = len(p)
	cookie(asm.FnGetSocketCookie, atPair+pairCookie)
	p[mark] = p[mark].WithSymbol("pair")
	cookie(asm.FnGetNetnsCookie, atPair+pairNetns)
	field(ctxFamily, atPair+pairFamily)
	field(ctxLocalPort, atPair+pairLocalPort)
	field(ctxRemotePort, atPair+pairRemotePort)
	add(asm.StoreImm(asm.RFP, atPair+pairRemotePort+4, 0, asm.Word))
	for i := int16(0); i < 16; i += 4 {
		field(ctxLocalIP6+i, atPair+pairLocalIP+i)
		field(ctxRemoteIP6+i, atPair+pairRemoteIP+i)
	}
	add(asm.LoadMem(asm.R1, asm.RFP, atPair+pairFamily, asm.Word), asm.JNE.Imm(asm.R1, afInet, "addressed"))
	field(ctxLocalIP4, atPair+pairLocalIP)
	field(ctxRemoteIP4, atPair+pairRemoteIP)
	mark = len(p)
	for i := int16(0); i < numbersLen; i += 4 {
		add(asm.LoadMem(asm.R1, asm.RFP, atNumbers+i, asm.Word), asm.StoreMem(asm.RFP, atPair+pairNumbers+i, asm.R1, asm.Word))
	}
	update(m.pairs, atCookie, atPair)
	p[mark] = p[mark].WithSymbol("addressed")
	// The numbers have their pair: a second server that has them comes too late.
	add(asm.LoadMapPtr(asm.R1, m.opened.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, atNumbers), asm.FnMapDeleteElem.Call())
	// A port that was translated.
	add(asm.HostTo(asm.BE, asm.R7, asm.Word),
		asm.LoadMem(asm.R1, asm.RFP, atPair+pairLocalPort, asm.Word),
		asm.JEq.Reg(asm.R1, asm.R7, "end"),
		asm.StoreMem(asm.RFP, atPort, asm.R7, asm.Word),
		asm.StoreMem(asm.RFP, atPort+4, asm.R1, asm.Word))
	update(m.services, atPort, atPort+4)

	add(asm.Mov.Imm(asm.R0, 1).WithSymbol("end"), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "exn_pairing", Type: ebpf.SockOps, Instructions: p, License: "Apache-2.0"})
	if err != nil {
		return nil, fmt.Errorf("pairing: program: %w", err)
	}
	return prog, nil
}
