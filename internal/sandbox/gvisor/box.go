package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/guest/host"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// record is sandbox.json: what a later driver needs to adopt the sandbox.
type record struct {
	Spec      sandbox.Spec `json:"spec"`
	CreatedAt time.Time    `json:"createdAt"`
	Sentry    process      `json:"sentry"`
	Kernel    string       `json:"kernel"`
	Lower     string       `json:"lower"`
	Boot      string       `json:"boot"` // the machine's boot; after another one no process number means anything
	Dead      task.Reason  `json:"dead,omitempty"`
	Files     *protected   `json:"files,omitempty"` // nil: not protected
}

const recordName = "sandbox.json"

// box is a sandbox that this driver holds.
type box struct {
	dir string

	conn   *host.Conn // nil when dead at adoption
	pidfd  *os.File   // nil when dead at adoption
	fifos  []*os.File
	closed sync.Once

	protecting sync.Mutex // held while the workspace is being protected

	mu        sync.Mutex
	record    record
	journals  *host.Journals
	destroyed bool
}

func (b *box) spec() sandbox.Spec {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.record.Spec
}

func (b *box) sentry() process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.record.Sentry
}

func (b *box) isDestroyed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.destroyed
}

func (b *box) info() sandbox.Info {
	b.mu.Lock()
	r := b.record
	b.mu.Unlock()
	info := sandbox.Info{
		Spec: r.Spec, State: sandbox.Live, PID: r.Sentry.PID, Kernel: r.Kernel, CreatedAt: r.CreatedAt,
	}
	if r.Dead != "" {
		info.State, info.Reason, info.PID = sandbox.Dead, r.Dead, 0
	}
	info.Commands = b.statuses()
	return info
}

// dead returns why the sandbox is dead, as an error, or nil.
func (b *box) dead() error {
	b.mu.Lock()
	reason, id := b.record.Dead, b.record.Spec.ID
	b.mu.Unlock()
	if reason == "" {
		return nil
	}
	text := "its kernel ended without being asked to"
	if reason == task.LimitMemory {
		text = "it used all of its memory and was ended"
	}
	return task.Fail(reason, fmt.Sprintf("sandbox %q is dead: %s", id, text), nil)
}

// release lets go of the sandbox without ending it.
func (b *box) release() {
	b.closed.Do(func() {
		if b.conn != nil {
			b.conn.Close() // What is on disk stays as it is.
		}
		for _, file := range b.fifos {
			file.Close()
		}
		if b.pidfd != nil {
			b.pidfd.Close()
		}
	})
}

func readRecord(dir string) (record, error) {
	var r record
	text, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(dir, recordName), err)
	}
	return r, nil
}

// writeRecord replaces sandbox.json in one step. It is not synced: after a power
// cut no sandbox lives, and a missing record only means "remove it".
func writeRecord(dir string, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, recordName)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// bootID tells one run of the host's kernel from another.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(text)
}
