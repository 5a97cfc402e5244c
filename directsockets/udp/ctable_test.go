package udp

import "exnet/internal/steps"

// cPhase is the state of a receiver's end of a flow in the C library (SPEC.md, 10.8). The model of
// SPEC 10.3 and 10.8 has its states: Go has fewer.
type cPhase uint8

const (
	cArmed cPhase = iota
	cRung
	cMemory
	cDraining
	cEnded
)

func (p cPhase) String() string {
	return [...]string{"armed", "rung", "memory", "draining", "ended"}[p]
}

// cEvent is what moves it.
type cEvent uint8

const (
	cRing cEvent = iota
	cWake
	cArm
	cEmpty
	cMoved
	cClose
	cDrop
)

func (e cEvent) String() string {
	return [...]string{"ring", "wake", "arm", "empty", "moved", "close", "drop"}[e]
}

// cSteps are all its steps.
var cSteps = steps.New(map[cPhase]map[cEvent]cPhase{
	cArmed:    {cRing: cRung, cWake: cMemory, cMoved: cDraining, cClose: cDraining, cDrop: cEnded},
	cRung:     {cWake: cMemory, cEmpty: cArmed, cMoved: cDraining, cClose: cDraining, cDrop: cEnded},
	cMemory:   {cArm: cRung, cMoved: cDraining, cClose: cDraining, cDrop: cEnded},
	cDraining: {cEmpty: cEnded, cDrop: cEnded},
})
