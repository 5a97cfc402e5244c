package ofi

// Pid is the helper's process.
func (e *Engine) Pid() int { return e.process.cmd.Process.Pid }

// Wakes is how often the helper has woken.
func (e *Engine) Wakes() uint64 { return e.ring.words[wakes].Load() }
