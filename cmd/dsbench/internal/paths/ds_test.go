package paths

import (
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/internal/tcpbench"
)

// TestDSOverTCPFails: a row that was not direct is none.
func TestDSOverTCPFails(t *testing.T) {
	if why := benchtest.NoBroker(t); why != "" {
		t.Skip(why)
	}
	p := newDS(tcpbench.Direct)(NodeConfig{})
	if err := p.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	spec := tcpbench.Spec{
		Kind: tcpbench.Stream, Size: 65536, Streams: 1, Duration: 50 * time.Millisecond,
		Congestion: benchtest.Congestion(t), CPUs: tcpbench.Anywhere(),
	}
	spec.Plain = true
	_, err := p.Measure(t.Context(), spec)
	if err == nil || !strings.Contains(err.Error(), "the direct path was not used: ") || !strings.Contains(err.Error(), "bytes went over TCP") {
		t.Errorf("error %v", err)
	}
}

// TestDSWithoutBroker: the error says what is missing.
func TestDSWithoutBroker(t *testing.T) {
	p := tcpbench.Between(tcpbench.End{Addr: loopback}, tcpbench.End{Addr: loopback})
	spec := tcpbench.Spec{
		Kind: tcpbench.Stream, Size: 64, Streams: 1, Duration: time.Millisecond, Congestion: benchtest.Congestion(t),
		Transport: tcpbench.Direct, CPUs: tcpbench.Anywhere(),
	}
	spec.Broker = t.TempDir() + "/nobody"
	if _, err := p.Measure(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "broker of direct sockets: ") {
		t.Errorf("error %v", err)
	}
}
