package measure

import (
	"errors"
	"regexp"
	"strconv"
)

// Iperf3Rate is the pattern of what the receiver got, bits a second, in iperf3's JSON.
const Iperf3Rate = `(?s)"sum_received":.*?"bits_per_second":\s*([0-9.e+]+)`

var errNoFigure = errors.New("it printed no figure")

// Figure finds a number above 0 in what a program has printed: the first group of the pattern, a
// regular expression.
func Figure(pattern, text string) (float64, error) {
	if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
		if v := Number(m[1]); v > 0 {
			return v, nil
		}
	}
	return 0, errNoFigure
}

// Number reads a number; 0: it is none.
func Number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return v
}
