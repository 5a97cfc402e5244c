// Web is an HTTP server and its client. It says "done" after some requests, and goes on
// until its standard input ends.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
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
	over := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin) // whatever ends it
		close(over)
	}()
	for i := 0; ; i++ {
		if i == 200 {
			fmt.Println("done")
		}
		if i >= 200 {
			select {
			case <-over:
				return nil
			case <-time.After(time.Millisecond):
			}
		}
		text := strings.Repeat("x", i%200*100+1)
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
}
