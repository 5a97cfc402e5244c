package tcpbench

import (
	"fmt"
	"os"
	"testing"

	"exnet/internal/leaktest"
)

// congestion is the control that the kernel always has and everybody may choose
// (TCP_CONG_NON_RESTRICTED of net/ipv4/tcp_cong.c).
const congestion = "reno"

func TestMain(m *testing.M) {
	// A Pair starts /proc/self/exe as its worker, and that is this binary.
	if len(os.Args) == 2 && os.Args[1] == WorkerCommand {
		if err := RunWorker(os.Stdin, os.Stdout, func() { os.Exit(1) }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}
