package exteth_test

import (
	"fmt"
	"log"

	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/foreign"
)

// printer prints what arrives at a node.
type printer struct{}

// ReceiveFrame implements exteth.Receiver.
func (printer) ReceiveFrame(src fabric.NodeID, _ exteth.Offload, frame foreign.Frame) error {
	fmt.Printf("node %d: a frame of %d bytes, %q\n", src, frame.Len(), frame.Head()[exteth.EthernetHeaderLen:][:5])
	return nil
}

// A short frame goes eagerly, as VELO messages. Of a long one only an advert goes, and the
// receiver GETs it. In a program package napi polls the Ports; package exn does all of this.
func ExamplePort_Send() {
	net := mem.NewFabric()
	var ports [2]*exteth.Port
	for i := range ports {
		card, err := nic.New(nic.Config{Node: fabric.NodeID(1 + i)})
		if err != nil {
			log.Fatal(err)
		}
		defer card.Close()
		if err := net.Attach(card); err != nil {
			log.Fatal(err)
		}
		if ports[i], err = exteth.Open(card, exteth.Config{Receiver: printer{}}); err != nil {
			log.Fatal(err)
		}
		defer ports[i].Close()
	}
	for _, size := range []int{100, 9000} {
		b := ports[0].Alloc()
		copy(b.Mem()[exteth.Headroom:], "hello")
		b.SetPacket(size)
		if err := ports[0].Send(2, b); err != nil {
			log.Fatal(err)
		}
		ports[1].PollVELO(64)
		ports[1].PollRMA(64)
		ports[0].PollRMA(64) // the buffer of the long frame is free again
	}
	fmt.Println(ports[0].Stats().TxEager, "eager,", ports[0].Stats().TxRendezvous, "by GET")
	// Output:
	// node 1: a frame of 114 bytes, "hello"
	// node 1: a frame of 9014 bytes, "hello"
	// 1 eager, 1 by GET
}
