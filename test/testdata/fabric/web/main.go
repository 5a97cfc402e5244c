// Command web is a Go HTTP server with direct sockets: it answers every request with the same
// 64 KiB.
package main

import (
	"bytes"
	"fmt"
	"log"
	"net/http"
	"os"

	"exnet/directsockets"
)

func main() {
	l, err := directsockets.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening")
	body := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	log.Fatal(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(body) // the client has gone
	})))
}
