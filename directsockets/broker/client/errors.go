package client

import (
	"errors"
	"os"

	"exnet/directsockets/broker/connstats"
)

var (
	// ErrNoBroker says that no broker serves this network namespace, or that it cannot be
	// trusted. Use TCP; a Client keeps looking for one.
	ErrNoBroker = errors.New("broker: no broker serves this network namespace")

	// ErrVersion says that this program and the broker of this network namespace speak no common
	// version: bring the older of the two up to date. It comes with ErrNoBroker.
	ErrVersion = errors.New("broker: no version in common with the broker")

	// ErrFull says that this program's owner has as many clients of the broker as it may have. It
	// comes with ErrNoBroker.
	ErrFull = errors.New("broker: as many programs are served as may be")

	// ErrNone says that there is no offer for a connection. Stay on TCP.
	ErrNone = errors.New("broker: no offer for this connection")
)

// whyAbsent is the reason of a connection that an attempt to find a broker, which has
// ended in err, leaves on TCP.
func whyAbsent(err error) connstats.Why {
	switch {
	case errors.Is(err, ErrVersion):
		return connstats.WhyVersion
	case errors.Is(err, ErrFull):
		return connstats.WhyNoMemory
	case errors.Is(err, os.ErrDeadlineExceeded):
		return connstats.WhySilent
	}
	return connstats.WhyNoBroker
}
