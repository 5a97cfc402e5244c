package tcpbench

import (
	"io"
	"time"

	"golang.org/x/sync/errgroup"
)

// StreamOver measures bandwidth over connections that there are already, and
// whose two ends are both in this process: what Pair does where programs have
// no socket of the kernel. The congestion control is the connections' own, and
// the CPUs are the scheduler's choice. It closes the connections.
func StreamOver(spec StreamSpec, clients, servers []io.ReadWriteCloser) (StreamResult, error) {
	defer closeAll(clients)
	j := spec.job()
	j.inProcess = true
	if err := j.check(); err != nil {
		closeAll(servers)
		return StreamResult{}, err
	}
	start := time.Now()
	var got jobResult
	var g errgroup.Group
	g.Go(func() (err error) {
		got, err = receive(j, servers)
		closeAll(servers)
		return err
	})
	g.Go(func() error {
		_, err := send(j, clients, start)
		return err
	})
	if err := g.Wait(); err != nil {
		return StreamResult{}, err
	}
	// The CPU time of one end's result is that of both.
	return streamResult(got, got.cpu())
}

// PingPongOver measures latency in the same way.
func PingPongOver(spec PingPongSpec, client, server io.ReadWriteCloser) (PingPongResult, error) {
	defer server.Close()
	j := spec.job()
	j.inProcess = true
	if err := j.check(); err != nil {
		client.Close()
		return PingPongResult{}, err
	}
	var pinged jobResult
	var g errgroup.Group
	g.Go(func() (err error) {
		pinged, err = ping(j, client)
		client.Close()
		return err
	})
	g.Go(func() error {
		_, err := echo(j, server)
		return err
	})
	if err := g.Wait(); err != nil {
		return PingPongResult{}, err
	}
	return pingPongResult(pinged, pinged.cpu())
}
