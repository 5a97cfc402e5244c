package ports

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// attachedEnv has this program be one that is attached to a node, instead of the tests:
//
//	serve                        prints "NODE VPID ADDRESS VPID", and reads what comes
//	hammer NODE VPID ADDRESS BOX says "connected", and PUTs and sends to those until the peer ends
const attachedEnv = "EXN_PORTS_TEST_ATTACHED"

// hammerVPID is that of a program that hammers.
const hammerVPID = goVPID + 1

// attached is the program. What fails ends it with a panic.
func attached(how string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	n, err := nic.Attach(nic.AttachConfig{})
	must(err)
	vpid, peer := goVPID, strings.Fields(how)[1:]
	if len(peer) > 0 {
		vpid = hammerVPID
	}
	box, err := n.OpenVELO(vpid, velo.Config{})
	must(err)
	ep, err := n.OpenRMA(vpid, rma.Config{})
	must(err)
	mem, err := n.ATU().Alloc(64 << 10)
	must(err)
	region, err := n.ATU().Register(vpid, mem, atu.Read|atu.Write)
	must(err)
	nla, err := region.LendAll()
	must(err)
	if len(peer) == 0 {
		fmt.Println(n.ID(), vpid, uint64(nla), vpid)
		for {
			for _, ok := ep.Next(); ok; _, ok = ep.Next() {
			}
			for _, _, ok := box.Peek(); ok; _, _, ok = box.Peek() {
				box.Advance()
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
	hammer(box, ep, region, peer)
}

// hammer PUTs and sends to a peer until a PUT is refused.
func hammer(box *velo.Endpoint, ep *rma.Endpoint, region *atu.Region, peer []string) {
	var node fabric.NodeID
	var to, toBox fabric.VPID
	var nla atu.NLA
	if _, err := fmt.Sscan(strings.Join(peer, " "), &node, &to, &nla, &toBox); err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		put := rma.PutReq{Local: region.NLA(), Remote: nla, Len: 4096, Node: node, VPID: to, Notify: rma.NotifyRequester | rma.NotifyCompleter}
		if err := ep.Put(put); err != nil {
			fmt.Println("gone:", err)
			return
		}
		n, ok := ep.Next()
		if !ok || n.Status != fabric.StatusOK && n.Status != fabric.StatusOverrun {
			fmt.Println("gone:", n.Status)
			return
		}
		_ = box.Send(velo.Descriptor{Dst: node, VPID: toBox}, make([]byte, 100)) // it may be full, or have ended
		if i == 0 {
			fmt.Println("connected")
		}
	}
}

// startAttached starts this program as one that is attached to a node.
func (n *node) startAttached(t *testing.T, how ...string) *process {
	t.Helper()
	name := strings.Join(how, " ")
	return n.startProgram(t, name, attachedEnv+"="+name, os.Args[0])
}

// A program in Go that is killed, at whatever moment, leaves nothing: its VPIDs are free, and
// whoever uses its memory, in Go or in C, is told.
func TestAttachKilled(t *testing.T) {
	all := nodes(t, 2)
	for round := range 6 {
		server := all[0].startAttached(t, "serve")
		peer := strings.Fields(server.line())
		inC := all[round%2].start(t, "plain", append([]string{"peers", "hammer"}, peer...)...)
		inGo := all[round%2].startAttached(t, append([]string{"hammer"}, peer...)...)
		for _, p := range []*process{inC, inGo} {
			if got := p.line(); got != "connected" {
				t.Fatalf("%s said %q", p.name, got)
			}
		}
		time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
		if err := server.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*process{inC, inGo} {
			if got := p.last(t); !strings.HasPrefix(got, "gone") {
				t.Fatalf("round %d: %s said %q", round, p.name, got)
			}
		}
		for _, n := range all {
			n.idle(t)
		}
	}
}

// One that is killed while it writes leaves what its peers have, and the rest of them are told.
func TestAttachKilledWriter(t *testing.T) {
	all := nodes(t, 2)
	for round := range 6 {
		inC := all[0].start(t, "plain", "peers", "serve")
		peer := strings.Fields(inC.line())
		g, mine := all[0].goPort(t)
		writers := []*process{
			all[round%2].startAttached(t, append([]string{"hammer"}, peer...)...),
			all[1-round%2].startAttached(t, append([]string{"hammer"}, mine...)...),
		}
		moved := func() (n int) {
			for _, ok := g.rma.Next(); ok; _, ok = g.rma.Next() {
				n++
			}
			for _, _, ok := g.velo.Peek(); ok; _, _, ok = g.velo.Peek() {
				g.velo.Advance()
			}
			return n
		}
		for _, p := range writers {
			if got := p.line(); got != "connected" {
				t.Fatalf("%s said %q", p.name, got)
			}
		}
		fabrictest.Eventually(t, "PUTs", func() bool { return moved() > 0 })
		time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
		for _, p := range writers {
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if got := inC.last(t); got != "gone" {
			t.Fatalf("round %d: the server said %q", round, got)
		}
		fabrictest.Eventually(t, "the end of the writers", func() bool { moved(); return len(all[1].Ports()) == 0 })
		// Its memory can be taken back, and is nobody else's.
		fabrictest.Eventually(t, "the region is taken back", g.region.Revoke)
		mem := g.region.Bytes()
		clear(mem)
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(mem, make([]byte, len(mem))) {
			t.Error("it was written to after it was taken back")
		}
		for _, n := range all {
			n.idle(t)
		}
	}
}
