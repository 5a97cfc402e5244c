package exngo

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/test/testlab"
)

// TestUDP builds a program whose UDP sockets answer each other: their datagrams go through memory,
// and are what was sent.
func TestUDP(t *testing.T) {
	s := testlab.StartBroker(t)
	program := exec.Command(buildProgram(t, copyTree(t, "datagrams")))
	program.Env = append(os.Environ(), "EXNET_LOOPBACK=1", client.PathEnv+"="+s.Path())
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	program.Stdout, program.Stderr = &out, &out
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ways := func() (sent, received int) {
		for _, c := range s.Connections() {
			if c.UDP && c.Mode == connstats.ModeDirect.String() && c.Sent.DirectBytes > 0 {
				sent++
			}
			if c.UDP && c.Server && c.Received.DirectBytes > 0 {
				received++
			}
		}
		return sent, received
	}
	direct := false
	for end := time.Now().Add(testWait); !direct && time.Now().Before(end); time.Sleep(time.Millisecond) {
		sent, received := ways()
		direct = sent >= 2 && received >= 2
	}
	in.Close()
	if err := program.Wait(); err != nil || out.String() != "ok\n" {
		t.Errorf("%v: %s", err, &out)
	}
	if !direct {
		t.Error("no datagrams went through memory")
	}
}
