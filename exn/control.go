package exn

import (
	"errors"

	"exnet/napi"
)

// Mode returns how the interface learns of received frames.
func (i *Interface) Mode() napi.Mode { return i.napi.Mode() }

// SetMode changes it; traffic continues.
func (i *Interface) SetMode(m napi.Mode) error { return i.napi.SetMode(m) }

// Coalesce returns which interrupts of the VELO unit are held back, as of the RMA unit.
func (i *Interface) Coalesce() napi.Coalesce { return i.veloIRQ.Coalesce() }

// SetCoalesce changes it for both units; traffic continues.
func (i *Interface) SetCoalesce(c napi.Coalesce) error {
	return errors.Join(i.veloIRQ.SetCoalesce(c), i.rmaIRQ.SetCoalesce(c))
}
