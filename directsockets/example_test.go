package directsockets_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"exnet/directsockets"
	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
)

// A server and a client, as with package net.
func Example() {
	l, err := directsockets.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.Copy(c, c)
	}()
	c, err := directsockets.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "hello")
	c.(*directsockets.Conn).CloseWrite()
	answer, err := io.ReadAll(c)
	fmt.Println(string(answer), err)
	// Output: hello <nil>
}

// http.Server and http.Transport need two lines.
func Example_http() {
	l, err := directsockets.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello")
	})}
	go srv.Serve(l)
	defer srv.Close()
	tr := &http.Transport{DialContext: directsockets.DialContext}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("http://" + l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(string(body))
	// Output: hello
}

// A program can bring its own broker, which then serves only those that know its
// socket, and ask how a connection carries its bytes.
func ExampleConn_Stats() {
	dir, err := os.MkdirTemp("", "broker")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	server, err := broker.New(broker.Config{Path: filepath.Join(dir, "ds.sock")})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	go server.Run(context.Background())
	names, err := client.Dial(client.Config{Path: server.Path()})
	if err != nil {
		log.Fatal(err)
	}
	defer names.Close()
	if err := names.Wait(context.Background()); err != nil {
		log.Fatal(err)
	}

	config := directsockets.Config{Broker: names}
	lc := directsockets.ListenConfig{Config: config}
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.Copy(c, c)
	}()
	d := directsockets.Dialer{Config: config}
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for !c.(*directsockets.Conn).Stats().Direct() {
		roundTrip(c, "hello")
	}
	fmt.Println(c.(*directsockets.Conn).Stats())
	// Output: rx direct, tx direct
}

func roundTrip(c net.Conn, text string) {
	if _, err := io.WriteString(c, text); err != nil {
		log.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, len(text))); err != nil {
		log.Fatal(err)
	}
}

// What is in a Buffer is copied once on its way.
func ExampleConn_WriteBuffer() {
	l, err := directsockets.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	received := make(chan string)
	go func() {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		data, _ := io.ReadAll(c)
		received <- string(data)
	}()
	c, err := directsockets.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	buf, err := directsockets.NewBuffer(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	defer buf.Close()
	n := copy(buf.Bytes(), "without a copy, when the connection is direct")
	if _, err := c.(*directsockets.Conn).WriteBuffer(buf, 0, n); err != nil {
		log.Fatal(err)
	}
	c.Close()
	fmt.Println(<-received)
	// Output: without a copy, when the connection is direct
}
