// Command echo is a Go server with direct sockets: it sends back what comes, until the end,
// and says how each connection ended.
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	"exnet/directsockets"
)

func main() {
	l, err := directsockets.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			n, err := io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 256<<10))
			c.Close()
			fmt.Printf("ended after %d bytes: %v\n", n, err)
		}()
	}
}
