package pressure

import "fmt"

func errNot(what string, got, want int) error { return fmt.Errorf("%d %s, want %d", got, what, want) }
