package exntun

import (
	"encoding/json"
	"strings"
	"testing"

	"exnet/directsockets/broker/connstats"
	"exnet/fabric"
	"exnet/internal/counter"
	"exnet/node/control"
)

// The nodes of a fabric without a topology are drawn with who is linked with whom, and what each
// link has carried each way.
func TestTopoOfPairs(t *testing.T) {
	var p pairing
	p.sent = make(map[[2]fabric.NodeID]uint64)
	p.addStatus(7, &control.Status{Fabric: "lab", Peers: []control.Peer{{Node: 3, Link: "shm"}, {Node: 9}},
		Counters: counter.List{{Name: "shm.node3.tx_bytes", Value: 1000}, {Name: "shm.node3.rx_bytes", Value: 5}, {Name: "shm.node31.tx_bytes", Value: 9}}})
	p.addStatus(3, &control.Status{Fabric: "lab", Peers: []control.Peer{{Node: 7, Link: "shm"}, {Node: 12, Link: "stream"}},
		Shared:   []control.Shared{{Node: 7, Total: connstats.Total{Sent: connstats.Amount{Bytes: 2000, Messages: 2}}}, {Node: 3}},
		Counters: counter.List{{Name: "stream.node12.tx_bytes", Value: 70}, {Name: "shm.node7.tx_bytes", Value: 5}}})
	f, err := p.drawnTopology()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := f.newDrawing().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "topo_pairs.txt", b.String())
	form, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "topo_pairs.json", string(form)+"\n")
}
