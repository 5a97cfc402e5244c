package pattern

import (
	"fmt"
	"math/bits"
)

// cgClass is the size of NPB's CG: the order of the matrix and the iterations.
type cgClass struct{ order, iterations int }

// Classes are the letters that Params.Class may be.
const Classes = "SWABCDE"

var cgClasses = map[byte]cgClass{
	'S': {1400, 15}, 'W': {7000, 15}, 'A': {14000, 15},
	'B': {75000, 75}, 'C': {150000, 75}, 'D': {1500000, 100}, 'E': {9000000, 100},
}

const (
	cgSteps   = 25 // of the conjugate gradient in a call
	cgScalars = 2*cgSteps + 2 + 2
	double    = 8 // bytes
)

// cg is the exchange of NPB's CG, after setup_submatrix_info and conj_grad: ranks form
// rows and columns; each call adds up pieces of q along the row by recursive halving
// of the distance, and exchanges with the transpose.
func cg(p Params) (flows []Flow, err error) {
	class, ok := cgClasses[p.Class]
	if !ok {
		return nil, fmt.Errorf("%w: cg of class %q: use S, W, A, B, C, D or E", ErrInvalid, string(p.Class))
	}
	if p.Ranks&(p.Ranks-1) != 0 {
		return nil, fmt.Errorf("%w: cg of %d ranks: use a power of two", ErrInvalid, p.Ranks)
	}
	log := bits.Len(uint(p.Ranks)) - 1
	rows := 1 << (log / 2)
	cols := p.Ranks / rows
	calls := uint64(class.iterations + 1)
	pieces := calls * (cgSteps + 1) * double
	for me := range p.Ranks {
		row, col := me/cols, me%cols
		length := class.order / rows
		if row < class.order%rows {
			length++
		}
		send, other := length, length // what this rank sends, and the partner at distance 1 gets
		if cols != rows {
			send, other = (length+1-me%2)/2, (length+me%2)/2
		}
		for d := cols / 2; d > 0; d /= 2 {
			n := send
			if d == 1 {
				n = other
			}
			to := row*cols + col ^ d
			flows = append(flows, Flow{int32(me), int32(to), pieces * uint64(n)})
		}
		if cols > 1 {
			flows = append(flows, Flow{int32(me), int32(transposeOf(me, rows, cols)), pieces*uint64(send) + calls*cgScalars*double})
		}
	}
	return flows, nil
}

// transposeOf is the rank that exchanges with another one after a product.
func transposeOf(me, rows, cols int) int {
	if rows == cols {
		return me%rows*rows + me/rows
	}
	half := me / 2
	return 2*(half%rows*rows+half/rows) + me%2
}
