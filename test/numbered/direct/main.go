// Command direct is package numbered's Command on package directsockets. Its clients offer their
// peers a segment at the first send.
package main

import (
	"os"

	"exnet/directsockets"
	"exnet/test/numbered"
)

func main() {
	var d directsockets.Dialer
	d.Config.UpgradeSends = 1
	os.Exit(numbered.Command(os.Args[1:], d.DialContext, directsockets.Listen))
}
