// Datagrams has a UDP socket answer another one until its standard input ends, by all methods of
// net.UDPConn.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
)

func main() {
	if err := run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func run() error {
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer server.Close()
	go answer(server)
	c, err := net.Dial("udp4", server.LocalAddr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	client := c.(*net.UDPConn)
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	got := make([]byte, 2000)
	for i := 0; !over.Load(); i++ {
		text := bytes.Repeat([]byte{byte(i)}, i%1500)
		var n int
		if i%2 == 0 {
			_, err = client.Write(text)
		} else {
			_, _, err = client.WriteMsgUDP(text, nil, nil)
		}
		if err != nil {
			return err
		}
		if n, err = client.Read(got); err != nil || !bytes.Equal(got[:n], text) {
			return fmt.Errorf("datagram %d: %d bytes of %d, %w", i, n, len(text), err)
		}
	}
	return nil
}

// answer uses the methods in turn.
func answer(c *net.UDPConn) {
	b := make([]byte, 2000)
	for i := 0; ; i++ {
		switch i % 3 {
		case 0:
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from)
		case 1:
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(b[:n], from)
		case 2:
			n, _, _, from, err := c.ReadMsgUDP(b, nil)
			if err != nil {
				return
			}
			_, _, _ = c.WriteMsgUDP(b[:n], nil, from)
		}
	}
}
