package broker

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
)

// keepName is a file in root's directory for the sake of which no broker removes that directory.
const keepName = ".keep"

// Keep makes root's directory of brokers' sockets for good. Containers have it mounted, and would
// not see another one in its place.
func Keep() error {
	for tries := 1; ; tries++ {
		if err := makeDir(client.SystemDir, 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(client.SystemDir, keepName), os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
		if err == nil {
			return f.Close()
		}
		// The last broker may have removed the directory just now.
		if !os.IsNotExist(err) || tries == 10 {
			return fmt.Errorf("broker: %w", err)
		}
	}
}
