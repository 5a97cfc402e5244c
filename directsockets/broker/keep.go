package broker

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
)

// keepName is a file in root's directory that keeps brokers from removing that directory.
const keepName = ".keep"

// Keep makes root's directory of brokers' sockets, and has it stay: containers have it mounted, and
// would not see one that replaces it.
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
