package agent

import (
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// What the worker was told of a command's end in this epoch.
const (
	endOpen   = iota // nothing
	endExited        // its status
	endClosed        // and that nothing more can come
)

// command is a command that was started. Agent.mu guards what changes after ready
// is closed.
type command struct {
	number uint64
	mark   uint64        // the value of the limit that its tree carries; set by fork
	ready  chan struct{} // closed when it runs, or could not be started
	pid    int
	root   bool // the platform's
	sudo   bool // root for the workload
	nproc  int64
	dir    string
	limit  int64 // of its output
	status guest.Status
	timer  *time.Timer
	held   held

	input  *input // nil: it has none
	files  int64  // open files that each of its processes may have
	inodes int64  // files that may exist in the sandbox

	pipes   []*pipe
	pieces  []piece
	kept    int64 // bytes of pieces
	end     int64 // offset after the last byte that was read
	sent    int64 // in this epoch
	acked   int64
	space   *sync.Cond // the worker took output
	drained *sync.Cond // output was read

	resumed    bool // the worker said where to go on
	told       int
	exited     bool // the main process did
	final      bool // status is
	exitOffset int64
	overflow   bool // it wrote more than its limit
	cut        int64
	crowded    bool // its user was seen at the limit of processes
	filled     bool // a process of it was seen at the limit of open files
	ending     int  // tree killers at work
	settled    bool // the worker has everything
}

// closed says whether nothing more can be read. The caller holds mu.
func (c *command) closed() bool {
	for _, p := range c.pipes {
		if !p.over {
			return false
		}
	}
	return true
}

// blame notes the limit that ends the command; the first counts. The caller
// holds mu.
func (c *command) blame(reason string) {
	if !c.final && c.status.Reason == "" {
		c.status.Reason = reason
		c.status.TimedOut = reason == guest.ReasonTime
	}
}
