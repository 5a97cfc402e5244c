package exn

import (
	"errors"

	"exnet/napi"
)

// Mode returns how the interface learns of received frames.
func (i *Interface) Mode() napi.Mode { return i.napi.Mode() }

// SetMode changes that while traffic goes on.
func (i *Interface) SetMode(m napi.Mode) error { return i.napi.SetMode(m) }

// Coalesce returns how interrupts are held back.
func (i *Interface) Coalesce() napi.Coalesce { return i.veloIRQ.Coalesce() }

// SetCoalesce changes that for both units while traffic goes on.
func (i *Interface) SetCoalesce(c napi.Coalesce) error {
	return errors.Join(i.veloIRQ.SetCoalesce(c), i.rmaIRQ.SetCoalesce(c))
}
