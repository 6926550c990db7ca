package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// Errors of this package, beside *guest.Error.
var (
	// ErrNotFound says that the sandbox never started such a command.
	ErrNotFound = errors.New("not found")
	// ErrClosed says that the channel was let go of, or broke.
	ErrClosed = errors.New("channel closed")
	// ErrInterrupted says that a transfer was cut when the channel began anew. It
	// may be tried again from the start.
	ErrInterrupted = errors.New("transfer interrupted")
)

// Journals are the outputs and statuses of a sandbox's commands on disk.
type Journals struct {
	dir string

	mu       sync.Mutex
	commands map[string]*command
	closed   chan struct{} // closed when nothing more will come
	once     sync.Once
}

// OpenJournals opens the folder of a sandbox whose guest is gone; Dial opens that
// of one that lives. A folder that is absent is made.
func OpenJournals(dir string) (*Journals, error) {
	j := &Journals{dir: dir, commands: map[string]*command{}, closed: make(chan struct{})}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journals: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"+recordSuffix))
	if err != nil {
		return nil, fmt.Errorf("journals: %w", err)
	}
	for _, name := range names {
		id := strings.TrimSuffix(filepath.Base(name), recordSuffix)
		if !guest.ValidID(id) {
			continue
		}
		c, err := loadCommand(dir, id)
		if err != nil {
			return nil, fmt.Errorf("journals: %w", err)
		}
		j.commands[id] = c
	}
	return j, nil
}

// Statuses returns where the commands stand, by id.
func (j *Journals) Statuses() []guest.Status {
	var statuses []guest.Status
	for _, c := range j.list() {
		if c.known() {
			statuses = append(statuses, c.status())
		}
	}
	slices.SortFunc(statuses, func(a, b guest.Status) int { return strings.Compare(a.ID, b.ID) })
	return statuses
}

// Status returns where a command stands.
func (j *Journals) Status(id string) (guest.Status, error) {
	c, err := j.find(id)
	if err != nil {
		return guest.Status{}, err
	}
	return c.status(), nil
}

// Attach returns the command's output from offset on, and its end.
func (j *Journals) Attach(ctx context.Context, id string, offset int64) (*Stream, error) {
	c, err := j.find(id)
	if err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, guest.Errorf(guest.ReasonInvalid, "offset %d is negative", offset)
	}
	return &Stream{ctx: ctx, journals: j, command: c, offset: offset, end: -1}, nil
}

// Lose ends every command that has not ended, for reason (such as
// "infra.sandbox_lost" or "limit.memory"): their sandbox is dead. What was
// recorded stays, and streams end after it.
func (j *Journals) Lose(reason string) error {
	var errs []error
	now := time.Now().UTC()
	for _, c := range j.list() {
		errs = append(errs, c.lose(reason, now))
	}
	return errors.Join(errs...)
}

// Close ends streams that wait for more with ErrClosed. What is on disk stays
// readable.
func (j *Journals) Close() error {
	j.once.Do(func() { close(j.closed) })
	for _, c := range j.list() {
		c.release()
	}
	return nil
}

func (j *Journals) list() []*command {
	j.mu.Lock()
	defer j.mu.Unlock()
	commands := make([]*command, 0, len(j.commands))
	for _, c := range j.commands {
		commands = append(commands, c)
	}
	return commands
}

// get returns the command of that id, known to the guest or not.
func (j *Journals) get(id string) (*command, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c, ok := j.commands[id]
	return c, ok
}

// find returns a command that was started.
func (j *Journals) find(id string) (*command, error) {
	c, ok := j.get(id)
	if !ok || !c.known() {
		return nil, fmt.Errorf("command %q: %w", id, ErrNotFound)
	}
	return c, nil
}

// ask returns the command and whether the caller is the one to ask the guest to
// start it. The record is on disk before that.
func (j *Journals) ask(cmd guest.Command) (c *command, mine bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c, ok := j.commands[cmd.ID]
	if !ok {
		c = newCommand(j.dir, cmd.ID)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record.Status.Phase != "" || c.launched {
		return c, false, nil
	}
	limit := cmd.MaxOutput
	if limit <= 0 {
		limit = guest.DefaultMaxOutput
	}
	if err := c.save(record{MaxOutput: limit, Terminal: cmd.Terminal != nil}); err != nil {
		return nil, false, err
	}
	c.launched = true
	j.commands[cmd.ID] = c
	return c, true, nil
}

// forget drops a command that the guest refused to start.
func (j *Journals) forget(c *command, refusal error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record.Status.Phase != "" {
		return
	}
	delete(j.commands, c.id)
	os.Remove(c.path + recordSuffix)
	c.refusal = refusal
	close(c.decided)
}
