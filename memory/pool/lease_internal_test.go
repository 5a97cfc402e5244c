package pool

import (
	"testing"

	"exnet/node/rpc/caller"
)

// Root of a container has an account of its own, and is shown as the user that it is.
func TestLeaseUser(t *testing.T) {
	for account, want := range map[caller.Account]Lease{
		caller.Root: {}, 1000: {UID: 1000}, caller.Guest: {UID: 0, Container: true},
	} {
		got := (&loan{account: account}).lease()
		if got.UID != want.UID || got.Container != want.Container {
			t.Errorf("%v: user %d, container %t", account, got.UID, got.Container)
		}
	}
}
