package exntun

import (
	"context"
	"fmt"
	"runtime"

	"exnet/internal/version"
)

func runVersion(_ context.Context, p program, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	fmt.Fprintln(p.stdout, "exn-tun", version.String(), runtime.Version())
	return nil
}
