package topo_test

import (
	"fmt"
	"log"

	"exnet/fabric/topo"
)

// The way through a torus goes along x, then y, then z, by the shorter way round.
func Example() {
	dims, err := topo.ParseDims("4x4x2")
	if err != nil {
		log.Fatal(err)
	}
	torus, err := topo.NewTorus(dims, 0)
	if err != nil {
		log.Fatal(err)
	}
	routes, err := topo.NewRoutes(torus)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(torus.Nodes()), "nodes,", len(torus.Links()), "links")
	fmt.Println("from 0 to 27:", routes.Hops(0, 27), "hops")
	// Output:
	// 32 nodes, 80 links
	// from 0 to 27: 4 hops
}
