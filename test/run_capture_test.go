package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"
)

// Direct connections are captured while their programs exchange data that is checked: the packets
// are those of TCP, in both directions, with the programs' names. Meanwhile new connections are on
// TCP; afterwards they are direct again, even if the capture was killed.
func TestRootRunCapture(t *testing.T) {
	needRun(t, "python3")
	const port = 7392 // which no other test has: all brokers are told
	checkLeaks(t)
	l := newLocal(t, true)
	script, stop := testdata(t, "run/checked.py"), filepath.Join(l.dir, "stop")
	server := l.serve(t, strconv.Itoa(port), "python3", script, "serve", strconv.Itoa(port))
	client := l.start(t, "python3", script, "ask", strconv.Itoa(port), "4", stop)
	// once makes connections until one goes as it has to.
	once := func(path string) {
		t.Helper()
		for end := time.Now().Add(hangTime); time.Now().Before(end); {
			before := len(l.reports)
			l.run(t, "python3", script, "once", strconv.Itoa(port), "500")
			for _, c := range l.connectionsAfter(t, before) {
				if c.Path == path && (path != "tcp" || strings.Contains(c.Choice, "switched off")) {
					return
				}
			}
		}
		t.Fatalf("no connection is on %s", path)
	}
	exnTun := filepath.Join(buildFor(t, "exn-tun"), "exn-tun")
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGKILL} {
		once("direct")
		file := filepath.Join(l.dir, sig.String()+".pcapng")
		c := startIn(t, l.ns, nil, exnTun, "capture", "--direct", "--port", strconv.Itoa(port), "-o", file)
		c.says(t, "back on TCP")
		once("tcp")
		if shown := startIn(t, l.ns, nil, exnTun, "direct", "show").wait(t); !strings.Contains(shown, "off --port "+strconv.Itoa(port)+" # as long as a capture runs") {
			t.Errorf("%q does not tell of the capture", shown)
		}
		c.until(t, "packet of each kind", func() bool { return packetsIn(t, file, port).all() })
		if err := c.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if sig != unix.SIGINT {
			<-c.done
		} else if said := c.wait(t); !strings.Contains(said, " connections written; ") {
			t.Errorf("at the end it says %q", said)
		}
		if p := packetsIn(t, file, port); p.wrong > 0 {
			t.Errorf("%d packets have a wrong checksum, or another port", p.wrong)
		}
	}
	once("direct")
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	client.wait(t)
	server.end(t)
}

// packetKinds counts packets by what they are.
type packetKinds struct{ begin, requests, answers, named, wrong int }

// all reports whether there are some of each kind: handshakes, data both ways, names of processes.
func (c packetKinds) all() bool { return c.begin > 0 && c.requests > 0 && c.answers > 0 && c.named > 1 }

// packetsIn reads a capture until it has some of each kind, or as far as it is written.
func packetsIn(t *testing.T, file string, port int) (c packetKinds) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		return c
	}
	for !c.all() {
		data, _, options, err := r.ReadPacketDataWithOptions()
		if err != nil {
			break // what follows is being written
		}
		p := gopacket.NewPacket(data, layers.LayerTypeIPv4, gopacket.DecodeOptions{NoCopy: true})
		tcp, ok := p.TransportLayer().(*layers.TCP)
		if !ok || !hasChecksum(p.NetworkLayer(), tcp) || int(tcp.SrcPort) != port && int(tcp.DstPort) != port {
			c.wrong++
			continue
		}
		switch {
		case tcp.SYN:
			c.begin++
		case len(tcp.Payload) > 0 && int(tcp.DstPort) == port:
			c.requests++
		case len(tcp.Payload) > 0:
			c.answers++
		}
		if len(options.Comments) > 0 && strings.Contains(options.Comments[0], "python3/") {
			c.named++
		}
	}
	return c
}

// hasChecksum reports whether the checksum of a segment is right.
func hasChecksum(ip gopacket.NetworkLayer, tcp *layers.TCP) bool {
	if tcp.SetNetworkLayerForChecksum(ip) != nil {
		return false
	}
	err, sum := tcp.VerifyChecksum()
	return err == nil && sum.Valid
}
