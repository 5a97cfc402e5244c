package cdi

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/preload"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Kind is the vendor and the class of the devices.
const Kind = "exnet.io/direct"

// Names of the devices.
const (
	All  = "all"
	File = "ld.so.preload"
	Go   = "go"
)

// Paths inside a container, and what of them stands for a folder.
const (
	inside     = "/usr/lib/exnet"
	token      = "$LIB"
	Preload    = inside + "/" + token + "/" + preload.Name
	preloadEtc = "/etc/ld.so.preload"
)

// ask is by what an agent knows who asks, and a program of exn-go that it shall.
const ask = "EXNET=1"

// folders are what glibc puts in the place of $LIB in a program of 64 bits: Debian's, Fedora's,
// and Arch's.
var folders = []string{multiarch[runtime.GOARCH], "lib64", "lib"}

var multiarch = map[string]string{"amd64": "lib/x86_64-linux-gnu", "arm64": "lib/aarch64-linux-gnu"}

// version of CDI: the lowest with all that is used here, as podman 4.3 knows no later one than 0.5.
const version = "0.3.0"

// Spec is a specification for the libraries of this host.
type Spec struct{ spec specs.Spec }

// Libraries are paths on this host. A container's mount of "" is left out.
type Libraries struct {
	Glibc, Musl string
	// Preload is a file for /etc/ld.so.preload that has the line Preload.
	Preload string
}

// New makes a specification.
func New(l Libraries) *Spec {
	s := &Spec{specs.Spec{Version: version, Kind: Kind}}
	s.spec.ContainerEdits.Mounts = []*specs.Mount{bind(client.SystemDir, client.SystemDir)}
	var mounts []*specs.Mount
	if l.Glibc != "" {
		for _, folder := range folders {
			mounts = append(mounts, bind(l.Glibc, filepath.Join(inside, folder, preload.Name)))
		}
	}
	if l.Musl != "" {
		mounts = append(mounts, bind(l.Musl, Preload))
	}
	s.addDevice(All, specs.ContainerEdits{Env: []string{ask, "LD_PRELOAD=" + Preload}, Mounts: mounts})
	if l.Preload != "" {
		s.addDevice(File, specs.ContainerEdits{Env: []string{ask}, Mounts: append(slices.Clone(mounts), bind(l.Preload, preloadEtc))})
	}
	s.addDevice(Go, specs.ContainerEdits{Env: []string{ask}})
	return s
}

func (s *Spec) addDevice(name string, e specs.ContainerEdits) {
	s.spec.Devices = append(s.spec.Devices, specs.Device{Name: name, ContainerEdits: e})
}

// bind is a mount that a container cannot write to.
func bind(host, container string) *specs.Mount {
	return &specs.Mount{HostPath: host, ContainerPath: container, Options: []string{"bind", "ro", "nosuid", "nodev"}}
}

// Write writes it as JSON, which YAML is a superset of.
func (s *Spec) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(s.spec)
}

// Qualified is the name by which a runtime knows a device.
func Qualified(device string) string { return Kind + "=" + device }

// Mount is a file or directory of the host that a container has at another path, read-only.
type Mount struct{ Host, Container string }

// Edits are what a container with the device All is given.
func (s *Spec) Edits() (env []string, mounts []Mount) {
	for _, e := range []specs.ContainerEdits{s.spec.ContainerEdits, s.spec.Devices[0].ContainerEdits} {
		env = append(env, e.Env...)
		for _, m := range e.Mounts {
			mounts = append(mounts, Mount{m.HostPath, m.ContainerPath})
		}
	}
	return env, mounts
}

// Find finds the libraries of this host, and builds that for glibc if need be. missing says what
// containers will not have, a sentence each.
func Find(ctx context.Context) (l Libraries, missing []string, err error) {
	l.Glibc, err = preload.Build(ctx)
	if err != nil {
		return l, nil, err
	}
	if l.Musl, err = preload.BuildMusl(ctx); err != nil {
		missing = append(missing, "images with musl (Alpine) stay on TCP: "+err.Error())
	}
	if preload.ForMusl(l.Glibc) {
		l.Glibc, missing = "", append(missing, "images with glibc stay on TCP: this host's library is for musl")
	}
	if l.Preload = preloadOf(l.Glibc); l.Preload == "" {
		missing = append(missing, "there is no device "+Qualified(File)+": its file is not beside "+preload.Name)
	}
	return l, missing, nil
}

// preloadOf finds the file for /etc/ld.so.preload beside the library.
func preloadOf(library string) string {
	path := filepath.Join(filepath.Dir(library), File)
	if text, err := os.ReadFile(path); err != nil || string(text) != Preload+"\n" {
		return ""
	}
	return path
}
