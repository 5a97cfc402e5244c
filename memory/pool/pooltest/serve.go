package pooltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"exnet/fabric"
	"exnet/memory/pool"
)

// SocketIn is the name of the socket for processes of node n that Serve runs in dir.
func SocketIn(dir string, n int) string { return socketIn(dir, n, "processes") }

func socketIn(dir string, n int, kind string) string {
	return filepath.Join(dir, fmt.Sprintf("%d.%s", n, kind))
}

// Serve runs node n of count until ctx ends. The others are processes that serve the same folder,
// so that a test can kill one.
func Serve(ctx context.Context, dir string, n, count int, limits pool.Limits) error {
	s := pool.New(pool.Config{
		Node: fabric.NodeID(n), Limits: limits,
		CheckPeer: func(*net.UnixConn, fabric.NodeID) error { return nil },
		Dial:      func(to fabric.NodeID) (*net.UnixConn, error) { return dial(socketIn(dir, int(to), "peers")) },
		Nodes: func() (near []pool.Neighbor) {
			for i := range count {
				if i != n {
					near = append(near, pool.Neighbor{Node: fabric.NodeID(i), Hops: 1})
				}
			}
			return near
		},
	})
	var all sync.WaitGroup
	defer all.Wait()
	defer s.Close()
	for kind, serve := range map[string]func(*net.UnixConn) error{"peers": s.Peer, "processes": s.Process} {
		path := socketIn(dir, n, kind)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // of one that was killed
			return err
		}
		ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			return err
		}
		defer ln.Close()
		all.Go(func() { accept(&all, ln, serve) })
	}
	<-ctx.Done()
	return nil
}

// accept serves connections, in goroutines that all counts, until ln is closed.
func accept(all *sync.WaitGroup, ln *net.UnixListener, serve func(*net.UnixConn) error) {
	for {
		conn, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		all.Go(func() { _ = serve(conn) }) // an error is that connection's
	}
}
