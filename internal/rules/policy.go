package rules

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
)

// Variables of the environment that a program's policy is in.
const (
	Env         = "EXNET_RULES"
	EnvLoopback = "EXNET_LOOPBACK"
	EnvClass    = "EXNET_CLASS"
)

// Policy is what decides about the connections of one program.
type Policy struct {
	Rules    Rules
	Program  string // basename of the executable file
	Invoked  string // basename by which it was executed: of a symbolic link
	Loopback bool   // loopback addresses are included
	Set      bool   // there are rules
	Off      bool   // they are malformed: everything is TCP
	Class    Class  // of the connections of which no rule says one
}

// FromEnvironment returns the policy of this process. It tells log if EXNET_RULES is
// malformed.
func FromEnvironment(log io.Writer) *Policy {
	text, set := os.LookupEnv(Env)
	p := &Policy{Set: set, Loopback: os.Getenv(EnvLoopback) == "1"}
	if exe, err := os.Readlink("/proc/self/exe"); err == nil {
		p.Program = filepath.Base(exe)
	}
	p.Invoked = invokedName()
	var err error
	if p.Rules, err = Compiled(text); err != nil || len(text) > MaxCompiled {
		p.Off = true
		fmt.Fprintln(log, "exnds: EXNET_RULES is malformed, everything stays on TCP: start the program with exn-run --rules")
	}
	if text := os.Getenv(EnvClass); text != "" {
		var ok bool
		if p.Class, ok = parseClass(text); !ok {
			fmt.Fprintln(log, "exnds: EXNET_CLASS is malformed, no connection has a class by it: use a number from 0 to 63")
		}
	}
	return p
}

// Decide returns what becomes of a connection, whose server's end has this address, or of a
// listener, and, if that is TCP, whether the reason is only that loopback addresses are not
// included.
func (p *Policy) Decide(role Role, server netip.AddrPort, listener bool) (a Action, notIncluded bool) {
	if p.Off || !server.Addr().IsValid() {
		return TCP, false
	}
	return p.Rules.Decide(p.questionOf(role, server, listener))
}

func (p *Policy) questionOf(role Role, server netip.AddrPort, listener bool) Question {
	return Question{
		Program: p.Program, Invoked: p.Invoked, Role: role, Listener: listener,
		Addr: server.Addr().WithZone(""), Port: server.Port(), Loopback: p.Loopback,
	}
}

// DecideUDP is Decide for datagrams: Client sends them, to this address, Server receives them
// there. Direct or Reliable: they may go through memory.
func (p *Policy) DecideUDP(role Role, server netip.AddrPort, listener bool) (a Action, notIncluded bool) {
	if p.Off || !server.Addr().IsValid() {
		return TCP, false
	}
	q := p.questionOf(role, server, listener)
	q.UDP = true
	return p.Rules.Decide(q)
}

// ClassOf returns the class of a connection, whose server's end has this address; 0: it has
// none, or what the program gives it.
func (p *Policy) ClassOf(role Role, server netip.AddrPort) Class {
	if p.Off || !server.Addr().IsValid() {
		return 0
	}
	if len(p.Rules) == 0 {
		return p.Class
	}
	r := p.Rules.findRule(Question{
		Program: p.Program, Invoked: p.Invoked, Role: role, Addr: server.Addr().WithZone(""), Port: server.Port(),
	})
	if r != nil && r.Classed {
		return r.Class
	}
	return p.Class
}

// atExecFn is the entry of the auxiliary vector with the address of the name by which
// the program was executed.
const atExecFn = 31

// invokedName returns the basename of that name, which, unlike os.Args[0], is the kernel's; "" if
// there is no telling.
func invokedName() string {
	aux, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return ""
	}
	for ; len(aux) >= 16; aux = aux[16:] {
		if binary.NativeEndian.Uint64(aux) == atExecFn {
			return filepath.Base(memoryAt(binary.NativeEndian.Uint64(aux[8:])))
		}
	}
	return ""
}

// memoryAt is the string at an address of this process, up to NAME_MAX and a path.
func memoryAt(addr uint64) string {
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return ""
	}
	defer mem.Close()
	var buf [4096]byte
	n, _ := mem.ReadAt(buf[:], int64(addr)) // the stack may end before buf does
	text, _, ended := bytes.Cut(buf[:n], []byte{0})
	if !ended {
		return ""
	}
	return string(text)
}
