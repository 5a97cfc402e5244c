// Serve is an HTTP server (HTTP/1 and HTTP/2 without TLS) that prints its address, and
// answers every request with 64 MiB.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
)

func main() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(ln.Addr())
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	s := http.Server{Protocols: &p, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 64<<10)
		for range 1024 {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	})}
	fmt.Println(s.Serve(ln))
}
