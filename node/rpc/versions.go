package rpc

import (
	"fmt"
	"math"
)

// Versions are the versions of a protocol that a program speaks. Both sides of a session say
// theirs, and speak the highest that is common to both.
type Versions struct{ Oldest, Newest uint8 }

// Said returns the versions of a message that says the oldest and the newest one. Who was made
// before versions had a range says no newest: the oldest is the only one.
func Said(oldest uint8, newest uint64) Versions {
	if newest > math.MaxUint8 {
		newest = 0
	}
	return Versions{oldest, max(oldest, uint8(newest))}
}

// Common returns the highest version that both sides speak. ok: there is one.
func (v Versions) Common(other Versions) (version uint8, ok bool) {
	version = min(v.Newest, other.Newest)
	return version, version >= max(v.Oldest, other.Oldest)
}

// Agreed is the version of the answer to a message that says the oldest and the newest version of
// its sender. If there is none, ok is false and it is the newest one here.
func (v Versions) Agreed(oldest, newest uint64) (version uint64, ok bool) {
	common, ok := v.Common(Said(uint8(min(oldest, math.MaxUint8)), newest))
	if !ok {
		common = v.Newest
	}
	return uint64(common), ok
}

// Has says whether a version is one of these.
func (v Versions) Has(version uint8) bool { return version >= v.Oldest && version <= v.Newest }

// String is "2" or "2 to 3".
func (v Versions) String() string {
	if v.Oldest == v.Newest {
		return fmt.Sprint(v.Oldest)
	}
	return fmt.Sprintf("%d to %d", v.Oldest, v.Newest)
}
