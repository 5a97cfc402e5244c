// Web is an HTTP server and its client. It says "done" after some requests, and keeps the
// connection until its standard input ends.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // ends with the program
		if _, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); !ok {
			http.Error(w, "no TCP address", http.StatusInternalServerError)
			return
		}
		b, _ := io.ReadAll(r.Body) // the client notices
		w.Write(b)
	}))
	for i := range 200 {
		text := strings.Repeat("x", i*100+1)
		r, err := http.Post("http://"+ln.Addr().String(), "text/plain", strings.NewReader(text))
		if err != nil {
			return err
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || string(b) != text {
			return fmt.Errorf("request %d: %d bytes came back of %d: %v", i, len(b), len(text), err)
		}
	}
	fmt.Println("done")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
