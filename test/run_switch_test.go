package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/cmd/exn-run/exnrun"
	"exnet/internal/longtest"
	"exnet/internal/netns"
	"exnet/node/control"
	"exnet/test/testlab"
)

// switches is how often a test switches direct sockets off and on.
func switches() int {
	switch {
	case longtest.All():
		return 1000
	case testing.Short():
		return 10
	}
	return 20
}

// Direct sockets are switched off and on while programs in C and Go exchange data that is checked:
// connections that are direct go back to TCP, new ones stay there while it is off and are direct
// while it is on, and no byte is lost, and no datagram.
func TestRootRunSwitch(t *testing.T) {
	needRun(t, "python3")
	const port = "7391" // which no other test has: all brokers are told
	const connections = 4
	checkLeaks(t)
	l := newLocal(t, true)
	script, stop := testdata(t, "run/checked.py"), filepath.Join(l.dir, "stop")
	server := l.serve(t, port, "python3", script, "serve", port)
	datagrams := testdata(t, "run/checkedudp.py")
	udpServer := l.start(t, "python3", datagrams, "serve", port)
	bin := t.TempDir()
	if err := testlab.Into(bin, "./testdata/fabric/echo.go", "./testdata/run/checked.go"); err != nil {
		t.Fatal(err)
	}
	const goPort = "7393"
	goServer := startIn(t, l.ns, nil, bin+"/echo", "127.0.0.1:"+goPort)
	goServer.says(t, "listening")
	clients := []*process{
		l.start(t, "python3", script, "ask", port, strconv.Itoa(connections), stop),
		l.start(t, "python3", datagrams, "ask", port, stop),
		startIn(t, l.ns, nil, bin+"/checked", "127.0.0.1:"+goPort, strconv.Itoa(connections), stop),
	}
	exnTun := filepath.Join(buildFor(t, "exn-tun"), "exn-tun")
	say := func(what string) (back int) {
		t.Helper()
		return switched(t, l.ns, exnTun, what, "--port", port) + switched(t, l.ns, exnTun, what, "--port", goPort)
	}
	switchOften(t, say)
	// once makes connections until one is as it has to be, or none may be any more.
	once := func(is func(exnrun.Record) (so, done bool)) {
		t.Helper()
		for end := time.Now().Add(hangTime); time.Now().Before(end); {
			before := len(l.reports)
			l.run(t, "python3", script, "once", port, "500")
			for _, c := range l.connectionsAfter(t, before) {
				switch so, done := is(c); {
				case done:
					return
				case !so:
					t.Fatalf("a connection is %s: %s", c.Path, c.Choice)
				}
			}
		}
		t.Fatal("no connection is as it has to be")
	}
	say("off")
	rule := startIn(t, l.ns, nil, exnTun, "status", "--sockets", "--json").wait(t)
	if want := `"rule":"off --port ` + port + `"`; !strings.Contains(rule, want) {
		t.Errorf("exn-tun status does not show %s", want)
	}
	once(func(c exnrun.Record) (so, done bool) {
		return c.Path == "tcp", c.Path == "tcp" && strings.Contains(c.Choice, "switched off")
	})
	say("on")
	once(func(c exnrun.Record) (so, done bool) { return true, c.Path == "direct" })
	// So are those that were switched off while they lived.
	shown, direct, again := "", 0, 0
	for end := time.Now().Add(hangTime); (direct < connections || again == 0) && time.Now().Before(end); {
		shown = startIn(t, l.ns, nil, exnTun, "status", "--sockets", "--json").wait(t)
		direct, again, _ = clientsDirect(t, shown)
	}
	if direct < connections || again == 0 {
		t.Errorf("%d of %d connections are direct, %d of them again: %s", direct, connections, again, shown)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range clients {
		p.wait(t)
	}
	for _, p := range []*process{server, udpServer, goServer} {
		p.end(t)
	}
}

// switched says off or on, and returns how many connections and flows that took back.
func switched(t *testing.T, ns *netns.NS, exnTun, what string, flags ...string) (back int) {
	t.Helper()
	out := startIn(t, ns, nil, append([]string{exnTun, "direct", what, "--json"}, flags...)...).wait(t)
	var all []control.Switched
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, s := range all {
		back += s.Back
	}
	return back
}

// switchOften says off and on until something has gone back to TCP, and then as often as switches.
func switchOften(t *testing.T, say func(what string) (back int)) {
	t.Helper()
	back := 0
	for end := time.Now().Add(hangTime); back == 0 && time.Now().Before(end); say("on") {
		back = say("off")
	}
	if back == 0 {
		t.Error("no connection went back to TCP")
	}
	for range switches() {
		back += say("off")
		say("on")
	}
	t.Logf("%d times off and on, %d connections and flows went back to TCP", switches(), back)
}

// Direct sockets through the fabric are switched off and on at both hosts, while programs in C and
// Go exchange data that is checked. Their connections go back to TCP, and are direct again. No byte
// is lost, and nothing stands still.
func TestRootFabricSwitch(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	checkLeaks(t)
	c := newCarried(t, true, "--direct", "fabric:"+carriedPort)
	c.serve()
	fabricSwitch(t, c, true)
}

// The same with a server in C.
func TestRootFabricSwitchC(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	checkLeaks(t)
	c := newCarried(t, true, "--direct", "fabric:"+carriedPort)
	exnRun, err := buildExnRun()
	if err != nil {
		t.Fatal(err)
	}
	c.server = startIn(t, c.spaces[1], nil, "env", awaitBroker, "HOST=10.2.0.2", exnRun, "--", "python3", testdata(t, "run/checked.py"), "serve", carriedPort)
	c.server.listens(t, carriedPort)
	fabricSwitch(t, c, true)
}

// The same with a server's node of a release that does not know PAUSE: connections that went back
// stay on TCP, and new ones are direct.
func TestRootFabricSwitchReleases(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "git", "python3", "tar")
	last := filepath.Join(filepath.Dir(buildRelease(t, replaceable)), "exn-tun")
	checkLeaks(t)
	c := newCarried(t, true, "--direct", "fabric:"+carriedPort)
	c.nodes[1].stop()
	c.args[1][0] = last
	c.up(1)
	c.linked()
	c.serve()
	fabricSwitch(t, c, false)
}

// Connections that begin while direct sockets are off at their server's host are direct once they
// are on: their offers, which that refuses, are repeated.
func TestRootFabricSwitchServer(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	checkLeaks(t)
	c := newCarried(t, true, "--direct", "fabric:"+carriedPort)
	c.serve()
	exnRun, err := buildExnRun()
	if err != nil {
		t.Fatal(err)
	}
	const connections = 4
	stop := filepath.Join(sharedDir(t), "stop")
	status := func(flags ...string) string {
		t.Helper()
		return startIn(t, c.spaces[0], nil, append([]string{c.bin + "/exn-tun", "status", "--sockets", "--dir", c.dirs[0]}, flags...)...).wait(t)
	}
	say := func(what string) {
		t.Helper()
		switched(t, c.spaces[1], c.bin+"/exn-tun", what, "--port", carriedPort, "--dir", c.dirs[1])
	}
	say("off")
	client := startIn(t, c.spaces[0], nil, "env", awaitBroker, "HOST=10.2.0.2", exnRun, "--", "python3", testdata(t, "run/checked.py"), "ask", carriedPort, strconv.Itoa(connections), stop)
	eventually(t, func() error {
		if s := status(); strings.Count(s, "switched off") < connections {
			return errors.New("not all have been refused: " + s)
		}
		return nil
	})
	say("on")
	eventually(t, func() error {
		if direct, _, _ := clientsDirect(t, status("--json")); direct < connections {
			return errors.New("not all are direct: " + status())
		}
		return nil
	})
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Log(strings.TrimSpace(client.wait(t)))
	c.clean(0, 1)
	c.server.end(t)
}

// A node is killed while direct sockets are off: a connection that has gone back to TCP goes on
// there when the node is back, in C and in Go.
func TestRootFabricSwitchKilled(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	checkLeaks(t)
	c := newCarried(t, true, "--direct", "fabric:"+carriedPort)
	c.serve()
	exnRun, err := buildExnRun()
	if err != nil {
		t.Fatal(err)
	}
	c.killOff(t, "env", awaitBroker, "HOST=10.2.0.2", exnRun, "--", "python3", testdata(t, "run/checked.py"), "stay", carriedPort)
	c.server.end(t)
}

// The same of a connection whose server only reads, so that its own direction was never promoted.
func TestRootFabricSwitchKilledOneWay(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	checkLeaks(t)
	exnRun, err := buildExnRun()
	if err != nil {
		t.Fatal(err)
	}
	c := newCarried(t, true, "--direct", "fabric:"+carriedPort)
	if err := testlab.Into(c.bin, "./testdata/run/pour.go"); err != nil {
		t.Fatal(err)
	}
	python := []string{exnRun, "--", "python3", testdata(t, "run/checked.py")}
	env := []string{"env", awaitBroker, "HOST=10.2.0.2"}
	for name, kind := range map[string]struct{ server, client []string }{
		"to Go": {[]string{c.bin + "/pour", "drain", ":" + carriedPort}, slices.Concat(env, python, []string{"pour", carriedPort})},
		"to C":  {slices.Concat(env, python, []string{"drain", carriedPort}), []string{c.bin + "/pour", "10.2.0.2:" + carriedPort}},
	} {
		t.Run(name, func(t *testing.T) {
			server := startIn(t, c.spaces[1], nil, kind.server...)
			server.listens(t, carriedPort)
			c.killOff(t, kind.client...)
			server.end(t)
		})
	}
}

// killOff starts a client of one connection, whose last argument is a file that ends it, and kills
// a node while direct sockets are off; so with each node.
func (c *carried) killOff(t *testing.T, argv ...string) {
	t.Helper()
	status := func() string {
		t.Helper()
		return startIn(t, c.spaces[0], nil, c.bin+"/exn-tun", "status", "--sockets", "--json", "--dir", c.dirs[0]).wait(t)
	}
	say := func(what string) {
		t.Helper()
		for i, ns := range c.spaces {
			switched(t, ns, c.bin+"/exn-tun", what, "--port", carriedPort, "--dir", c.dirs[i])
		}
	}
	for killed := range c.nodes {
		stop := filepath.Join(sharedDir(t), "stop")
		client := startIn(t, c.spaces[0], nil, append(slices.Clip(argv), stop)...)
		eventually(t, func() error {
			if direct, _, _ := clientsDirect(t, status()); direct == 0 {
				return errors.New("it is not direct: " + status() + client.out.String())
			}
			return nil
		})
		say("off")
		eventually(t, func() error {
			if _, _, left := clientsDirect(t, status()); left == 0 {
				return errors.New("it is direct still: " + status())
			}
			return nil
		})
		before := c.count(0, "exteth.tx_bytes")
		eventually(t, func() error { // more than waits on the way: the server has read some of it
			if c.count(0, "exteth.tx_bytes") < before+1<<24 {
				return errors.New("nothing goes by TCP")
			}
			return nil
		})
		c.nodes[killed].stop()
		c.up(killed)
		c.linked()
		if client.over() {
			t.Errorf("node %d was killed: %s", 1+killed, client.out.String())
			continue
		}
		if err := os.WriteFile(stop, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Log(strings.TrimSpace(client.wait(t)))
		say("on")
	}
}

// fabricSwitch switches direct sockets of two hosts off and on, under clients of a server that
// listens. again: connections are direct again.
func fabricSwitch(t *testing.T, c *carried, again bool) {
	t.Helper()
	if err := testlab.Into(c.bin, "./testdata/run/checked.go"); err != nil {
		t.Fatal(err)
	}
	exnRun, err := buildExnRun()
	if err != nil {
		t.Fatal(err)
	}
	dir := sharedDir(t)
	stop := filepath.Join(dir, "stop")
	const connections = 4
	clients := []*process{
		startIn(t, c.spaces[0], nil, "env", awaitBroker, "HOST=10.2.0.2", exnRun, "--", "python3", testdata(t, "run/checked.py"), "ask", carriedPort, strconv.Itoa(connections), stop),
		startIn(t, c.spaces[0], nil, c.bin+"/checked", "10.2.0.2:"+carriedPort, strconv.Itoa(connections), stop),
	}
	moves := func() { // something goes through the fabric
		t.Helper()
		moved := c.count(0, "relay.bytes_sent")
		eventually(t, func() error {
			if c.count(0, "relay.bytes_sent") < moved+1<<16 {
				return errors.New("nothing goes through the fabric")
			}
			return nil
		})
	}
	eventually(t, func() error { // both programs have begun
		shown := startIn(t, c.spaces[0], nil, c.bin+"/exn-tun", "status", "--sockets", "--json", "--dir", c.dirs[0]).wait(t)
		if direct, _, _ := clientsDirect(t, shown); direct < 2*connections {
			return errors.New("not all are direct: " + shown)
		}
		return nil
	})
	switchOften(t, func(what string) (back int) {
		if what == "off" {
			moves()
		}
		for i, ns := range c.spaces {
			back += switched(t, ns, c.bin+"/exn-tun", what, "--port", carriedPort, "--dir", c.dirs[i])
		}
		return back
	})
	moves()
	// Of those that went back to TCP while they lived, those in Go, and some in C.
	shown, direct, left, done := "", 0, 0, false
	for end := time.Now().Add(hangTime); !done && time.Now().Before(end); {
		shown = startIn(t, c.spaces[0], nil, c.bin+"/exn-tun", "status", "--sockets", "--json", "--dir", c.dirs[0]).wait(t)
		if _, direct, left = clientsDirect(t, shown); again {
			done = direct > connections && left == 0
		} else {
			done = direct == 0 && left > connections
		}
	}
	if t.Logf("%d connections are direct again, %d are not", direct, left); !done {
		t.Errorf("%d connections are direct again, %d of those that were direct are on TCP: %s", direct, left, shown)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range clients {
		t.Log(strings.TrimSpace(p.wait(t)))
	}
	c.clean(0, 1)
	c.server.end(t)
}

// clientsDirect counts the clients' ends of TCP connections in a status of exn-tun that are direct,
// those of them that have been on TCP since they were direct before, and those that were direct and
// are on TCP.
func clientsDirect(t *testing.T, status string) (direct, again, left int) {
	t.Helper()
	var brokers []struct {
		Connections []struct {
			Mode        string
			Server      bool
			UDP         bool
			Since       time.Time
			DirectSince time.Time `json:"direct_since"`
			Returns     uint64
		}
	}
	if err := json.Unmarshal([]byte(status), &brokers); err != nil {
		t.Fatal(err)
	}
	for _, b := range brokers {
		for _, c := range b.Connections {
			if c.Server || c.UDP {
				continue
			}
			if c.Mode != "direct" {
				if c.Returns > 0 {
					left++
				}
				continue
			}
			direct++
			if c.Returns > 0 {
				again++
			}
			if c.DirectSince.Before(c.Since) {
				t.Errorf("a connection of %v is direct since %v", c.Since, c.DirectSince)
			}
		}
	}
	return direct, again, left
}
