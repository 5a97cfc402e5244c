package nic_test

import (
	"fmt"
	"log"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// port is the VPID that both nodes of the examples use.
const port fabric.VPID = 7

// twoNodes joins two NICs, with the node IDs 1 and 2, by memory.
func twoNodes() (one, two *nic.NIC) {
	net := mem.NewFabric()
	var nics [2]*nic.NIC
	for i := range nics {
		n, err := nic.New(nic.Config{Node: fabric.NodeID(1 + i)})
		if err != nil {
			log.Fatal(err)
		}
		if err := net.Attach(n); err != nil {
			log.Fatal(err)
		}
		nics[i] = n
	}
	return nics[0], nics[1]
}

// A VELO message of at most 120 bytes goes into a mailbox of another node.
func ExampleNIC_OpenVELO() {
	one, two := twoNodes()
	defer one.Close()
	defer two.Close()
	sender, err := one.OpenVELO(port, velo.Config{})
	if err != nil {
		log.Fatal(err)
	}
	mailbox, err := two.OpenVELO(port, velo.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := sender.Send(velo.Descriptor{Dst: 2, VPID: port, Tag: 42}, []byte("hello")); err != nil {
		log.Fatal(err)
	}
	if status, payload, ok := mailbox.Peek(); ok {
		fmt.Printf("node %d, tag %d: %s\n", status.Src, status.Tag, payload)
		mailbox.Advance()
	}
	// Output:
	// node 1, tag 42: hello
}

// Node 2 reads the memory of node 1 by a GET, which both ends are notified of.
func ExampleNIC_OpenRMA() {
	one, two := twoNodes()
	defer one.Close()
	defer two.Close()
	origin, err := two.OpenRMA(port, rma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	target, err := one.OpenRMA(port, rma.Config{})
	if err != nil {
		log.Fatal(err)
	}
	source, err := one.ATU().Register(port, []byte("the memory of node 1"), atu.Read)
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	remote, err := source.Lend(2) // node 2 alone may read it
	if err != nil {
		log.Fatal(err)
	}
	sink, err := two.ATU().Register(port, make([]byte, source.Len()), atu.Write)
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close()
	if err := origin.Get(rma.GetReq{
		Local: sink.NLA(), Remote: remote, Len: source.Len(),
		Node: 1, VPID: port, Notify: rma.NotifyCompleter | rma.NotifyResponder,
	}); err != nil {
		log.Fatal(err)
	}
	if n, ok := origin.Next(); ok {
		fmt.Printf("%v: %v, %s\n", n.Writer, n.Status, sink.Bytes())
	}
	if n, ok := target.Next(); ok {
		fmt.Printf("%v: node %d has read %d bytes\n", n.Writer, n.Node, n.Len)
	}
	// Output:
	// completer: ok, the memory of node 1
	// responder: node 2 has read 20 bytes
}

// A program that is no node sends by the NIC of the node that is up ("exn-tun up"), to another
// program's mailbox at node 2: one in Go by Attach, or one in C by libvelo2.
func ExampleAttach() {
	n, err := nic.Attach(nic.AttachConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	mailbox, err := n.OpenVELO(40, velo.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mailbox.Send(velo.Descriptor{Dst: 2, VPID: 40, Tag: 42}, []byte("hello")); err != nil {
		log.Fatal(err)
	}
}
