package ofi

import (
	"fmt"
	"strings"
)

// version is a version number as libfabric has it: the upper 16 bits and the lower.
type version uint32

func (v version) String() string { return fmt.Sprintf("%d.%d", v>>16, v&0xffff) }

// unusable are the providers that were measured and lose data or spin.
var unusable = map[string]string{
	"net":     "it spins, and loses its connections",
	"sockets": "it spins",
	"udp":     "it loses messages",
}

// use says how the user can get out of it.
const use = "use tcp, or that of RDMA hardware, such as verbs"

// refusal says why a provider is not used.
func refusal(provider string) error {
	name, _, _ := strings.Cut(strings.ToLower(provider), ";")
	if why := unusable[name]; why != "" {
		return fmt.Errorf("%w: libfabric's provider %s is not supported: %s: %s", ErrRefused, name, why, use)
	}
	return nil
}

// info is what a helper says about its libfabric.
type info struct {
	library  version
	provider string
	version  version
}

// refusal says why this libfabric, or its provider, is not used. A provider that is part of
// libfabric has its version: 118.0 is that of 1.18.0.
func (i info) refusal() error {
	if err := refusal(i.provider); err != nil {
		return err
	}
	const bad = 1<<16 | 18
	if i.library == bad && i.version == 118<<16 {
		return fmt.Errorf("%w: libfabric 1.18.0 spins when nothing happens: install 1.17, or 1.18.1 or later", ErrRefused)
	}
	return nil
}
