package ofi_test

import (
	"testing"

	"exnet/fabric/link/ofi"
)

func TestHardware(t *testing.T) {
	for name, want := range map[string]bool{
		"ofi:verbs": true, "ofi:verbs;ofi_rxm": true, "ofi:efa": true, "ofi:cxi": true, "ofi:psm3;ofi_rxd": true, "ofi:Verbs": true,
		"ofi:tcp": false, "ofi:tcp;ofi_rxm": false, "ofi:shm": false, "ofi:": false, "ofi": false, "": false,
		"stream": false, "stream, encrypted": false, "verbs": false, "ofi:ofi_rxm;verbs": false, "ofi:verbs2": false,
	} {
		if got := ofi.Hardware(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
