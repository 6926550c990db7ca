package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/guest"
)

const (
	recordSuffix  = ".json"
	journalSuffix = ".journal"
	// outputSlack is how far a command's journal may pass its limit: nothing, from
	// an honest guest.
	outputSlack = guest.MaxChunk
	maxText     = 1 << 10
	maxChildren = 1000
)

// record is what stands on disk about a command. A record without a phase says
// that the guest was asked to start it, and no answer was seen.
type record struct {
	Status    guest.Status `json:"status"`
	MaxOutput int64        `json:"maxOutput"`
	Terminal  bool         `json:"terminal,omitempty"` // it was asked for with one
	Closed    bool         `json:"closed,omitempty"`   // no process has its pipes
}

// command is one command of the sandbox.
type command struct {
	id   string
	path string // of its files, without the suffix

	mu       sync.Mutex
	changed  chan struct{} // closed and made anew at each change
	record   record
	journal  *journal // nil: not opened yet
	decided  chan struct{}
	launched bool  // a call is asking the guest to start it
	broken   bool  // output that was acknowledged is not on disk any more
	refusal  error // why the guest did not, when it answered so
}

func newCommand(dir, id string) *command {
	return &command{
		id: id, path: filepath.Join(dir, id),
		changed: make(chan struct{}), decided: make(chan struct{}),
	}
}

// loadCommand reads a command from disk.
func loadCommand(dir, id string) (*command, error) {
	c := newCommand(dir, id)
	text, err := os.ReadFile(c.path + recordSuffix)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &c.record); err != nil {
		return nil, fmt.Errorf("%s: %w", c.path+recordSuffix, err)
	}
	if c.record.Status.Phase != "" {
		close(c.decided)
	}
	return c, nil
}

// save replaces the record on disk in one step. The caller holds mu.
func (c *command) save(r record) error {
	path := c.path + recordSuffix
	err := os.WriteFile(path+".new", guest.Marshal(r), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("command %q: %w", c.id, err)
	}
	c.record = r
	return nil
}

// notify wakes whoever waits for a change. The caller holds mu.
func (c *command) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// known says whether the guest is known to have started it.
func (c *command) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.Status.Phase != ""
}

// status returns a copy that callers may keep.
func (c *command) status() guest.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.record.Status
	s.Output = c.lengthLocked()
	return s
}

func (c *command) lengthLocked() int64 {
	if c.journal == nil && c.record.Closed {
		return c.record.Status.Output // Without reading a journal that is complete.
	}
	if err := c.loadLocked(); err != nil {
		return 0
	}
	return c.journal.length()
}

func (c *command) loadLocked() (err error) {
	if c.journal == nil {
		c.journal, err = loadJournal(c.path + journalSuffix)
	}
	return err
}

// started records the guest's word that the command runs, or could not be started.
func (c *command) started(s guest.Status) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record.Status.Phase != "" {
		return nil
	}
	r := c.record
	r.Status = clean(s, c.id)
	r.Status.Terminal = r.Terminal
	if s.Ended() && s.Error != "" {
		r.Status.Phase = guest.Exited // It could not be started.
	} else {
		r.Status.Phase = guest.Running // Its end comes as an Exit, after its output.
	}
	if err := c.save(r); err != nil {
		return err
	}
	close(c.decided)
	c.notify()
	return nil
}

var errGap = errors.New("output is missing")

// append records output; what is recorded already is ignored.
func (c *command) append(chunk guest.Chunk) (size int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadLocked(); err != nil {
		return 0, err
	}
	size = c.journal.length()
	if c.broken {
		return chunk.Offset + int64(len(chunk.Data)), nil
	}
	if chunk.Offset > size {
		return size, errGap
	}
	known := size - chunk.Offset
	if known >= int64(len(chunk.Data)) {
		return size, nil
	}
	chunk.Data = chunk.Data[known:]
	if size+int64(len(chunk.Data)) > c.record.MaxOutput+outputSlack {
		return size, guest.Errorf(guest.ReasonOutput, "command %q: the guest sends more than the limit", c.id)
	}
	if err := c.journal.append(chunk.Fd, chunk.Data); err != nil {
		return size, err
	}
	c.notify()
	return size + int64(len(chunk.Data)), nil
}

// ended records the command's end, and later that its pipes are closed.
func (c *command) ended(e guest.Ending) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadLocked(); err != nil {
		return err
	}
	if e.Offset > c.journal.length() && !c.broken {
		return errGap
	}
	r := c.record
	if !r.Status.Ended() {
		r.Status = clean(e.Status, c.id)
		r.Status.Terminal = r.Terminal
		r.Status.Phase = guest.Exited
	}
	r.Closed = r.Closed || e.Closed
	r.Status.Output = c.journal.length()
	if err := c.save(r); err != nil {
		return err
	}
	c.closeLocked()
	c.notify()
	return nil
}

func (c *command) closeLocked() {
	select {
	case <-c.decided:
	default:
		close(c.decided)
	}
	if c.record.Closed && c.journal != nil {
		c.journal.close()
	}
}

// resume returns where the guest is to go on. acked is what it was told before.
func (c *command) resume(acked int64) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadLocked(); err != nil {
		return 0, err
	}
	size := c.journal.length()
	if size >= acked {
		return size, nil
	}
	c.broken = true
	if !c.record.Status.Ended() {
		r := c.record
		r.Status.Phase, r.Status.Reason, r.Status.ExitCode = guest.Exited, guest.ReasonInternal, -1
		r.Status.Error = fmt.Sprintf("its output between %d and %d was recorded and is gone", size, acked)
		r.Status.EndedAt = time.Now().UTC()
		if err := c.save(r); err != nil {
			return 0, err
		}
		c.notify()
	}
	return acked, nil
}

// forgotten ends a command that was started and that the guest doesn't know.
func (c *command) forgotten() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record.Status.Phase == "" || c.record.Closed {
		return nil
	}
	return c.loseLocked(guest.ReasonLost, "the sandbox's first process does not know the command any more", time.Now().UTC())
}

// lose ends the command, if it had not ended, because its sandbox did.
func (c *command) lose(reason string, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record.Status.Phase == "" || c.record.Closed {
		return nil
	}
	return c.loseLocked(reason, "the sandbox ended before the command did", now)
}

func (c *command) loseLocked(reason, text string, now time.Time) error {
	r := c.record
	if !r.Status.Ended() {
		r.Status.Phase, r.Status.Reason, r.Status.ExitCode = guest.Exited, reason, -1
		r.Status.Error, r.Status.EndedAt = text, now
	}
	r.Status.Output = c.lengthLocked()
	r.Closed, r.Status.Children = true, nil
	err := c.save(r)
	c.record = r // Also when the disk is full: whoever waits must not wait for ever.
	c.closeLocked()
	c.notify()
	return err
}

// release closes the journal without ending the command.
func (c *command) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.journal != nil {
		c.journal.close()
	}
}

// clean makes a status of the guest's safe to keep and to show: the guest may say
// anything.
func clean(s guest.Status, id string) guest.Status {
	s.ID, s.Started, s.Output = id, false, 0
	if s.PID < 0 {
		s.PID = 0
	}
	if s.ExitCode < -1 || s.ExitCode > 255 {
		s.ExitCode = -1
	}
	if s.Signal < 0 || s.Signal > 64 {
		s.Signal = 0
	}
	switch s.Reason {
	case "", guest.ReasonTime, guest.ReasonOutput, guest.ReasonPIDs, guest.ReasonDisk, guest.ReasonMemory, guest.ReasonInodes, guest.ReasonFiles:
	default:
		s.Reason = guest.ReasonInternal
	}
	s.TimedOut = s.Reason == guest.ReasonTime
	s.Cut, s.Input, s.InputOpen = max(s.Cut, 0), max(s.Input, 0), s.InputOpen && !s.Ended()
	s.Error = cleanText(s.Error)
	if len(s.Children) > maxChildren {
		s.Children = s.Children[:maxChildren]
	}
	if !guest.PlausibleTime(s.StartedAt) {
		s.StartedAt = time.Now()
	}
	if !s.EndedAt.IsZero() && !guest.PlausibleTime(s.EndedAt) {
		s.EndedAt = time.Now()
	}
	s.StartedAt = s.StartedAt.UTC()
	s.EndedAt = s.EndedAt.UTC()
	return s
}

// cleanText bounds a text and takes out what a terminal would act on or hide.
func cleanText(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
