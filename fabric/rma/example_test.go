package rma_test

import (
	"fmt"

	"exnet/fabric/atu"
	"exnet/fabric/rma"
)

// A notification carries the address of the last packet of a transfer, from which the
// receiver of many finds the transfer that has ended (equations 5.1 and 5.2).
func ExampleLastFragment() {
	const start = atu.NLA(0)
	for _, n := range []int{1, 496, 497, 65536, 1 << 20} {
		fmt.Printf("%7d bytes: +%d\n", n, rma.LastFragment(start, n))
	}
	// Output:
	//       1 bytes: +0
	//     496 bytes: +0
	//     497 bytes: +496
	//   65536 bytes: +65472
	// 1048576 bytes: +1048544
}
