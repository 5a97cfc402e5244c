package packet

import "exnet/internal/trash"

// Bare reports, after Abort, whether nothing waits on either side that has descriptors: Close takes
// no time then. It reads messages that have none.
func (o *Outbox) Bare() bool {
	o.mu.Lock()
	idle := len(o.queue) == 0 && !o.writing
	o.mu.Unlock()
	bare := false
	err := o.raw.Control(func(fd uintptr) { bare = idle && trash.Bare(int(fd)) })
	return err == nil && bare
}
