package velo_test

import (
	"errors"
	"fmt"
	"log"

	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/fabric/velo"
)

// A sender without credit is refused, and told when it may go on. Nothing is lost.
func Example_credits() {
	net := mem.NewFabric()
	var ends [2]*velo.Endpoint
	for i := range ends {
		n, err := nic.New(nic.Config{Node: fabric.NodeID(i)})
		if err != nil {
			log.Fatal(err)
		}
		defer n.Close()
		if err := net.Attach(n); err != nil {
			log.Fatal(err)
		}
		if ends[i], err = n.OpenVELO(1, velo.Config{Slots: 8, Credits: 4}); err != nil {
			log.Fatal(err)
		}
	}
	sender, mailbox := ends[0], ends[1]
	sender.OnCredit(func(n fabric.NodeID) { fmt.Println("node", n, "takes messages again") })

	sent := 0
	for {
		err := sender.Send(velo.Descriptor{Dst: 1, VPID: 1}, []byte{byte(sent)})
		if errors.Is(err, fabric.ErrAgain) {
			fmt.Println("no credit after", sent, "messages")
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		sent++
	}
	for {
		_, payload, ok := mailbox.Peek()
		if !ok {
			break
		}
		fmt.Print(payload[0], " ")
		mailbox.Advance()
	}
	fmt.Println()
	// Output:
	// no credit after 4 messages
	// 0 1 node 1 takes messages again
	// 2 3
}
