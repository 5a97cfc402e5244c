//go:build race

package directsockets_test

const raceEnabled = true
