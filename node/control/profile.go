package control

import (
	"fmt"

	"exnet/fabric/profile"
	"exnet/fabric/topo"
)

// What a Request of OpProfile wants.
const (
	ProfileStart = "start" // anew, if it counts already
	ProfileRead  = "read"
	ProfileStop  = "stop"
)

// Profile is what a node has counted of what it sent, and of the GETs that it started.
type Profile struct {
	Seconds    float64            `json:"seconds"`
	Flows      []ProfileFlow      `json:"flows"`
	Multicasts []ProfileMulticast `json:"multicasts"`
}

// ProfileFlow is a flow with the traffic that it put on each link of its way, headers included.
type ProfileFlow struct {
	profile.Flow
	Wire topo.Counts `json:"wire"`
}

// ProfileMulticast is multicasts with the traffic that they put on each link of their tree.
type ProfileMulticast struct {
	profile.Multicast
	Wire topo.Counts `json:"wire"`
}

// Profile begins, reads or ends a profile, as want says. It is nil for ProfileStart.
func (c *Client) Profile(want string) (*Profile, error) {
	r, err := c.roundTrip(Request{Op: OpProfile, Profile: want})
	if err == nil && r.Profile == nil && want != ProfileStart {
		err = fmt.Errorf("node %d returned no profile", c.Node.Node)
	}
	return r.Profile, err
}
