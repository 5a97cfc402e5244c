package control

import "time"

// What a Request of OpLease wants.
const (
	LeaseList   = "list"
	LeaseGrant  = "grant"  // the node lends so much
	LeaseRevoke = "revoke" // borrowers have to return leases
)

// RevokeTime is how long a borrower has to give back what is revoked, unless Within says more.
const RevokeTime = 5 * time.Second

// LeaseRequest asks for a node's leases, or for a change.
type LeaseRequest struct {
	Want  string     `json:"want"`
	Grant LendLimits `json:"grant,omitzero"` // of LeaseGrant
	// Of LeaseRevoke: which leases; all of them if nothing is said.
	ID   uint64  `json:"id,omitempty"`
	To   *int    `json:"to,omitempty"` // a node
	User *uint32 `json:"user,omitempty"`
	// Within is when what was not returned is taken. 0: as the node says.
	Within time.Duration `json:"within,omitempty"`
}

// LendLimits say how much memory a node lends, in bytes.
type LendLimits struct {
	Lend    int64 `json:"lend"`
	PerNode int64 `json:"per_node,omitempty"` // to all programs of one node; 0: all
	PerUser int64 `json:"per_user,omitempty"` // to one user of one node; 0: all
}

// Lease is a lease, as its lender or its borrower's node sees it.
type Lease struct {
	ID   uint64 `json:"id"`   // the lender's
	Node int    `json:"node"` // of the other end
	UID  uint32 `json:"uid"`  // of the borrower
	// Container says that the borrower is root of a container, whose limits are not root's.
	Container bool       `json:"container,omitempty"`
	PID       int        `json:"pid,omitempty"`
	Size      int64      `json:"size"`
	Huge      bool       `json:"huge,omitempty"`
	Since     time.Time  `json:"since"`
	Until     *time.Time `json:"until,omitempty"`  // left out: as long as the borrower lives
	Revoke    *time.Time `json:"revoke,omitempty"` // it has been asked to return the lease, until then
}

// Memory is what a node lends and has borrowed.
type Memory struct {
	LendLimits
	Lent     []Lease `json:"lent"`
	Borrowed []Lease `json:"borrowed"`
}

// Matches says whether a request is about a lease.
func (r LeaseRequest) Matches(l Lease) bool {
	return (r.ID == 0 || l.ID == r.ID) && (r.To == nil || l.Node == *r.To) && (r.User == nil || l.UID == *r.User)
}

// Leases are the leases of a node, those that it has given and those that its programs have.
type Leases struct {
	Node    int `json:"node"`
	Revoked int `json:"revoked,omitempty"` // by the request
	Memory
}

// Leases asks for a node's leases, or for a change of them.
func (c *Client) Leases(req LeaseRequest) (*Leases, error) {
	r, err := c.roundTrip(Request{Op: OpLease, Lease: &req})
	if err == nil && r.Leases == nil {
		err = errNothing(c.Node.Node)
	}
	return r.Leases, err
}
